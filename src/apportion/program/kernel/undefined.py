"""Lanes of vectors that a function never sets: what is stored of them is whatever the compiler left there.

`float4 f; f.x = f.y = f.z = 0; out[i] = f;` stores a fourth number that nobody chose, and that two compilers
choose differently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from apportion.program.kernel.instructions import Instruction, IRFunction

Lanes = frozenset[int]
_NONE: Lanes = frozenset()
_VECTOR = re.compile(r"<(\d+) x [\w ]+>")
_NOWHERE = re.compile(r"\b(?:undef|poison)$")
_EACH = {
    "fadd", "fsub", "fmul", "fdiv", "frem", "fneg", "add", "sub", "mul", "udiv", "sdiv", "urem", "srem",
    "shl", "lshr", "ashr", "and", "or", "xor", "fpext", "fptrunc", "sitofp", "uitofp", "fptosi", "fptoui",
    "zext", "sext", "trunc",
}  # fmt: skip
"Operations on each lane by itself: what one operand lacks, the result lacks."


def undefined_lanes(function: IRFunction) -> dict[str, Lanes]:
    """Value → its lanes (0 of a scalar) that are set on no path; values without any are left out."""
    made = [(i.result, i) for i in function.instructions if i.result is not None]
    known: dict[str, Lanes] = {name: frozenset(range(_width(i))) for name, i in made}
    changed = True
    while changed:  # each round takes lanes away, and never gives one back
        changed = False
        for name, instruction in made:
            lacking = _lacking(instruction, known) & known[name]
            changed |= lacking != known[name]
            known[name] = lacking
    return {name: lanes for name, lanes in known.items() if lanes}


def stored_lanes(store: Instruction, known: Mapping[str, Lanes]) -> tuple[int, Lanes]:
    """How many lanes a store writes, and which of them nobody set."""
    width = _width(store)
    return width, _of(store.operands[0], width, known)


def _lacking(instruction: Instruction, known: Mapping[str, Lanes]) -> Lanes:
    operands, width = instruction.operands, _width(instruction)
    lacks = [_of(operand, width, known) for operand in operands]
    match instruction.opcode:
        case "insertelement":
            if not operands[2].isdigit():
                return _NONE
            lane = frozenset([int(operands[2])])
            return lacks[0] | lane if _of(operands[1], 1, known) else lacks[0] - lane
        case "extractelement":
            return frozenset([0]) if operands[1].isdigit() and int(operands[1]) in lacks[0] else _NONE
        case "shufflevector":
            first = int(_VECTOR.findall(instruction.text)[0])
            both = _of(operands[0], first, known) | {first + lane for lane in _of(operands[1], first, known)}
            taken = enumerate(_mask(operands[2], width))
            return frozenset(lane for lane, from_lane in taken if from_lane is None or from_lane in both)
        case "phi":
            return frozenset(range(width)).intersection(*lacks)
        case "select":
            return lacks[1] & lacks[2]
        case opcode if opcode in _EACH:
            return frozenset[int]().union(*lacks)
    return _NONE


def _of(operand: str, width: int, known: Mapping[str, Lanes]) -> Lanes:
    """The lanes that a value lacks, or that a constant leaves open."""
    if operand.startswith("%"):
        return known.get(operand, _NONE)
    if operand in ("undef", "poison"):
        return frozenset(range(width))
    if operand.startswith("<"):
        parts = operand.strip("<>").split(", ")
        return frozenset(lane for lane, part in enumerate(parts) if _NOWHERE.search(part))
    return _NONE


def _mask(mask: str, width: int) -> list[int | None]:
    """The lanes that a shuffle takes; None for those that it leaves open."""
    if mask == "zeroinitializer":
        return [0] * width
    if mask in ("poison", "undef"):
        return [None] * width
    parts = (part.split()[-1] for part in mask.strip("<>").split(","))
    return [int(part) if part.isdigit() else None for part in parts]


def _width(instruction: Instruction) -> int:
    """The lanes of what an instruction makes, or stores: those of the vectors that it names first."""
    found = _VECTOR.findall(instruction.text)
    if not found or instruction.opcode == "extractelement":
        return 1
    return int(found[-1 if instruction.opcode == "shufflevector" else 0])
