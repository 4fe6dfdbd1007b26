"""How often blocks run where ids and scalar arguments decide: a kernel's control flow, followed for a few
work-items.

Loops that end by arithmetic on ids (the cycles of a transposition in place, Mandelbrot's steps) cannot be
counted by looking at them. But what ends them is a small part of a kernel: the branches, and what their
conditions are made of. That part is translated once into a program of plain numbers, and native code runs it
for a sample of the work-items. A value that comes from memory, or from a function that is not known here, is
unknown; a branch on such a value ends the attempt.
"""

from __future__ import annotations

import random
import re
import struct
import weakref
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from apportion import _native
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.instructions import Instruction, IRFunction

BUDGET = 8_000_000
"Operations that are run in all, which takes some 25 ms: half by the work-items at the ends, half by others."
_ITEM_PART = 0.8
"Of such a half, what a single work-item may use: one that does not end must leave something to others."
_FIRST, _LAST, _SPREAD = 8, 4, 36
_SEED = 1


@dataclass(frozen=True)
class Simulated:
    """How often blocks ran in a sample of work-items."""

    mean: Mapping[str, float]
    "Block → times per work-item, on average; those at the ends of the range count as the few that they are."
    longest: Mapping[str, float]
    "Block → times in the work-item that executed most instructions."
    items: int
    "Work-items that ran to their end."
    whole: bool
    "Whether all did; otherwise the budget ran out, and counts are lower bounds over those that began."


def simulated(
    function: IRFunction, span: NDRange, scalars: Mapping[int, int], *, budget: int = BUDGET
) -> Simulated | None:
    """How often each block of a kernel runs, if ids, sizes and scalar arguments decide that.

    Args:
        scalars: argument number → value, for integers passed by value.
        budget: operations that may be run in all.
    """
    control = _control_of(function)
    if control is None:
        return None
    values, known = control.values.copy(), control.known.copy()
    for number, register, width in control.arguments:
        if number in scalars:
            values[register] = int(scalars[number]) & ((1 << width) - 1)
            known[register] = 1
    mean = np.zeros(len(control.blocks))
    longest = np.zeros(len(control.blocks), np.int64)
    all_ended = 0
    for items, stand_for in _parts(span):
        found = _native.simulate_control(
            control.code,
            control.queries,
            values,
            known,
            control.weights,
            span.dimensions,
            _padded(span.global_size, 1),
            _padded(span.local_size, 1),
            _padded(span.offset, 0),
            items,
            max(budget // 2, 1),
            max(int(budget / 2 * _ITEM_PART), 1),
        )
        if found is None:
            return None
        total, most, begun, ended = found
        mean += np.array(total, np.float64) * (stand_for / begun)
        longest = max(longest, np.array(most, np.int64), key=lambda counts: int(counts @ control.weights))
        all_ended += ended
    return Simulated(
        dict(zip(control.blocks, (mean / span.work_items).tolist(), strict=True)),
        {block: float(count) for block, count in zip(control.blocks, longest, strict=True)},
        all_ended,
        all_ended == len(sample(span)),
    )


@lru_cache(maxsize=256)
def sample(span: NDRange) -> tuple[int, ...]:
    """The work-items that are followed, by their number in the range, dimension 0 the quickest: some spread
    over the range, then the last and the first ones, since work often grows or shrinks towards an end."""
    count = span.work_items
    if count <= _FIRST + _SPREAD + _LAST:
        return tuple(range(count))
    generator = random.Random(_SEED)
    between = count - _FIRST - _LAST
    ends = [_FIRST + between * part // _SPREAD for part in range(_SPREAD + 1)]
    spread = [generator.randrange(start, end) for start, end in pairwise(ends)]
    return (*spread, *range(count - _LAST, count), *range(_FIRST))


@lru_cache(maxsize=256)
def _parts(span: NDRange) -> tuple[tuple[NDArray[np.uint64], int], ...]:
    """Work-items of the sample, and how many of the range they stand for."""
    items, count = np.array(sample(span), np.uint64), span.work_items
    if len(items) == count:
        return ((items, count),)
    return (items[:_SPREAD], count - _FIRST - _LAST), (items[_SPREAD:], _FIRST + _LAST)


def _padded(sizes: tuple[int, ...], filler: int) -> tuple[int, ...]:
    return (*sizes, filler, filler)[:3]


# A function's control as numbers: native/simulate.cpp says what they mean.


@dataclass(frozen=True, eq=False)
class _Control:
    """What decides where a function goes, as a program for `simulate_control`."""

    blocks: tuple[str, ...]
    weights: NDArray[np.int64]  # (blocks,): instructions of each
    code: NDArray[np.int32]  # (6 · operations,)
    queries: NDArray[np.int32]  # (4 · queries,)
    values: NDArray[np.uint64]  # (registers,): constants; 0 where a register is not one
    known: NDArray[np.uint8]  # (registers,)
    arguments: tuple[tuple[int, int, int], ...]
    "(number, register, bits) of the integers passed by value that control needs."


_controls: dict[int, tuple[weakref.ref[IRFunction], _Control | None]] = {}


def _control_of(function: IRFunction) -> _Control | None:
    """A function's control, translated once: functions hold a dict and cannot be keys, so their place is."""
    place = id(function)
    held = _controls.get(place)
    if held is not None and held[0]() is function:
        return held[1]
    control = _translated(function)
    # The entry goes when the function does, before something else can lie at its place.
    _controls[place] = (weakref.ref(function, lambda _: _controls.pop(place, None)), control)
    return control


_OPERATION = {name: number for number, name in enumerate(_native.CONTROL_OPERATIONS)}
_QUERY = {name: number for number, name in enumerate(_native.CONTROL_QUERIES)}
_QUERY["get_enqueued_local_size"] = _QUERY["get_local_size"]  # work-groups are whole here
_WITHOUT_DIMENSION = {"get_work_dim", "get_global_linear_id", "get_local_linear_id"}
_UNKNOWN = 0
"The register that is never written, of all values that are not known."
_SPARE = 1
"The register that helps values to change places."

_TYPE = r"(?:i\d+|float|double)"
_VALUE = r"[^\s,]+"
_FLAGS = r"(?:(?:nuw|nsw|exact|disjoint|nneg|samesign|fast|nnan|ninf|nsz|arcp|contract|afn|reassoc) )*"
_PLAIN = re.compile(
    rf" = \w+ {_FLAGS}(?:([a-z]+) )?({_TYPE}) ({_VALUE})(?:, ({_VALUE}))?(?: to ({_TYPE}))?(?=,|\s*$|\s*;)"
)
_SELECT = re.compile(
    rf" = select {_FLAGS}i1 ({_VALUE}), ({_TYPE}) ({_VALUE}), {_TYPE} ({_VALUE})(?=,|\s*$|\s*;)"
)
_BRANCH = re.compile(rf"^br i1 ({_VALUE}), label")
_SWITCH = re.compile(rf"^switch (i\d+) ({_VALUE}), label")
_CASE = re.compile(r'i\d+ (-?\w+), label (%(?:[-\w$.]+|"[^"]*"))')
_GET = re.compile(r"^(?:_Z\d+)?(get_[a-z_]+?)[jv]?$")
_INTRINSIC = re.compile(r"^llvm\.([a-z]+(?:\.sat)?)\.(?:i\d+|f32|f64)$")
_BUILTIN = re.compile(r"^_Z(\d+)([a-z]+)$")

_BINARY = {"add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or", "xor"}
_FLOATS = {"fadd", "fsub", "fmul", "fdiv", "frem", "fneg"}
_COPIES = {"zext", "freeze", "bitcast"}  # integers are kept with zeros above them, floats as their bits
_CASTS = {"sext", "sitofp", "uitofp", "fptosi", "fptoui", "fpext", "fptrunc"}
_ORDER = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
          "uno", "ueq", "ugt", "uge", "ult", "ule", "une", "true")  # fmt: skip
_INTRINSICS = {
    "umin": "umin", "umax": "umax", "smin": "smin", "smax": "smax", "abs": "abs", "ctpop": "ctpop",
    "ctlz": "ctlz", "cttz": "cttz", "uadd.sat": "uadd.sat", "usub.sat": "usub.sat", "fshl": "fshl",
    "fshr": "fshr", "fma": "fma", "fmuladd": "fma", "fabs": "fabs", "floor": "floor", "ceil": "ceil",
    "trunc": "round to zero", "minnum": "fmin", "maxnum": "fmax",
}  # fmt: skip
_SIGNED_BUILTINS = {
    "min": "smin", "max": "smax", "abs": "abs", "popcount": "ctpop", "clz": "ctlz", "ctz": "cttz",
}  # fmt: skip
_UNSIGNED_BUILTINS = _SIGNED_BUILTINS | {"min": "umin", "max": "umax", "abs": "copy"}
_FLOAT_BUILTINS = {
    "min": "fmin", "max": "fmax", "fmin": "fmin", "fmax": "fmax", "fabs": "fabs", "fma": "fma",
    "floor": "floor", "ceil": "ceil", "trunc": "round to zero",
}  # fmt: skip
_BUILTINS = (
    dict.fromkeys("csil", _SIGNED_BUILTINS) | dict.fromkeys("htjm", _UNSIGNED_BUILTINS)
    | dict.fromkeys("fd", _FLOAT_BUILTINS)
)  # fmt: skip
"By the letter of their operands' type in a mangled name."
_ARITY = {
    "copy": 1, "abs": 1, "ctpop": 1, "ctlz": 1, "cttz": 1, "fabs": 1, "floor": 1, "ceil": 1,
    "round to zero": 1, "fma": 3, "fshl": 3, "fshr": 3,
}  # fmt: skip
"Operands of what is called, where they are not two."


@dataclass(frozen=True)
class _Meaning:
    """What an instruction does: an operation on typed values, `(type, value)`."""

    operation: str
    width: int
    operands: tuple[tuple[str, str], ...]
    extra: int = 0
    "The bits of what a cast starts from, or the predicate of a comparison of floats."


def _translated(function: IRFunction) -> _Control | None:
    return _Translation(function).control() if function.instructions else None


class _Translation:
    """One function on its way to a program."""

    def __init__(self, function: IRFunction) -> None:
        self.function = function
        self.by_result = function.by_result()
        self.lines: dict[str, list[Instruction]] = defaultdict(list)
        for one in function.instructions:
            self.lines[one.block].append(one)
        self.entry = function.instructions[0].block
        self.code: list[tuple[int | str, ...]] = []
        "Places to go to are names at first: of a block, or of what happens on the way to one."
        self.starts: dict[str, int] = {}
        self.values: list[int] = [0, 0]
        self.known: list[bool] = [False, False]
        self.registers: dict[str, int] = {}
        self.constants: dict[tuple[str, str], int] = {}
        self.queries: list[int] = []
        self.arguments: list[tuple[int, int, int]] = []
        self.meanings: dict[str, _Meaning] = {}
        self.same: dict[str, str] = {}
        "Value → the one whose bits it has: each is defined once, so they can share a register."
        self.phis: dict[str, list[Instruction]] = defaultdict(list)
        self.ways: dict[str, tuple[str, list[tuple[int, int]]]] = {}
        "What happens on the way from block to block: where it leads, and which registers change."

    def control(self) -> _Control | None:
        self._slice()
        for number, (block, lines) in enumerate(self.lines.items()):
            self.starts[block] = len(self.code)
            self._emit("enter", target=number)
            for one in lines:
                if one.result in self.meanings:
                    self._operation(self.meanings[one.result], self.registers[one.result])
            self._end(lines[-1])
        for way, (target, moves) in self.ways.items():
            self.starts[way] = len(self.code)
            for register, source in moves:
                self._emit("copy", target=register, a=source)
            self._emit("jump", target=target)
        if any(part not in self.starts for one in self.code for part in one if isinstance(part, str)):
            return None  # a branch to a block that the function does not have
        return _Control(
            tuple(self.lines),
            np.array([len(lines) for lines in self.lines.values()], np.int64),
            self._numbers(),
            np.array(self.queries, np.int32),
            np.array(self.values, np.uint64),
            np.array(self.known, np.uint8),
            tuple(self.arguments),
        )

    # What control needs

    def _slice(self) -> None:
        """Give a register to each value that a branch depends on, however far back."""
        numbers = {name: number for number, name in enumerate(self.function.parameters)}
        pending = [_condition(lines[-1])[1] for lines in self.lines.values()]
        while pending:
            name = pending.pop()
            if not name.startswith("%") or name in self.registers or name in self.same:
                continue
            one = self.by_result.get(name)
            if one is not None and one.opcode == "phi":
                self.registers[name] = self._register()
                self.phis[one.block].append(one)
                pending += one.operands
            elif one is not None and (meaning := _meaning(one)) is not None:
                pending += [value for _, value in meaning.operands]
                if meaning.operation == "copy" and pending[-1].startswith("%"):
                    self.same[name] = pending[-1]
                else:
                    self.registers[name] = self._register()
                    self.meanings[name] = meaning
            elif one is not None:
                self.registers[name] = self._asked(one)
            else:
                self.registers[name] = self._argument(numbers.get(name))

    def _register(self, value: int = 0, *, known: bool = False) -> int:
        self.values.append(value)
        self.known.append(known)
        return len(self.values) - 1

    def _argument(self, number: int | None) -> int:
        width = _width(self.function.parameter_types[number]) if number is not None else None
        if number is None or width is None or not self.function.parameter_types[number].startswith("i"):
            return _UNKNOWN
        register = self._register()
        self.arguments.append((number, register, width))
        return register

    def _asked(self, one: Instruction) -> int:
        """The register that holds the answer to `get_global_id(0)` and its like; otherwise not known."""
        found = _GET.match(one.callee)
        width = _width(one.type)
        if one.opcode != "call" or found is None or found[1] not in _QUERY or width is None:
            return _UNKNOWN
        dimension = "0" if found[1] in _WITHOUT_DIMENSION else one.operands[0] if one.operands else ""
        if not dimension.isdigit():
            return _UNKNOWN
        register = self._register()
        # All dimensions that no range has are answered alike.
        self.queries += [register, _QUERY[found[1]], min(int(dimension), 3), width]
        return register

    def _read(self, kind: str, value: str) -> int:
        """The register of an operand."""
        for _ in self.same:  # not for ever: what is never reached may be defined by itself
            if value not in self.same:
                break
            value = self.same[value]
        if value.startswith("%"):
            return self.registers.get(value, _UNKNOWN)
        if (kind, value) not in self.constants:
            bits = _bits(kind, value)
            self.constants[kind, value] = _UNKNOWN if bits is None else self._register(bits, known=True)
        return self.constants[kind, value]

    # What is run

    def _emit(
        self,
        operation: str,
        width: int = 0,
        target: int | str = 0,
        a: int | str = 0,
        b: int | str = 0,
        c: int | str = 0,
    ) -> None:
        self.code.append((_OPERATION[operation], width, target, a, b, c))

    def _operation(self, meaning: _Meaning, target: int) -> None:
        sources = [self._read(kind, value) for kind, value in meaning.operands]
        a, b, c = (*sources, 0, 0)[:3]
        if (
            meaning.operation in ("smin", "umin", "fmin") and len(sources) == 3
        ):  # clamp: first the lower bound
            self._emit(meaning.operation.replace("min", "max"), meaning.width, _SPARE, a, b)
            self._emit(meaning.operation, meaning.width, target, _SPARE, c)
        else:
            self._emit(
                meaning.operation, meaning.width, target, a, b, c if len(sources) > 2 else meaning.extra
            )

    def _end(self, last: Instruction) -> None:
        kind, condition = _condition(last)
        if last.opcode == "br" and len(last.incoming) == 1:
            self._emit("jump", target=self._way(last.block, last.incoming[0]))
        elif last.opcode == "br" and len(last.incoming) == 2 and kind:
            ways = [self._way(last.block, target) for target in last.incoming]
            self._emit("branch", a=self._read(kind, condition), b=ways[0], c=ways[1])
        elif last.opcode == "switch" and last.incoming and kind:
            self._switch(last, kind, self._read(kind, condition))
        else:
            self._emit("finish" if last.opcode == "ret" else "give up")

    def _switch(self, last: Instruction, kind: str, asked: int) -> None:
        """One comparison after another: switches are short, and rarely stand in long loops."""
        for value, target in _CASE.findall(last.text[last.text.find("[") :]):
            self._emit("icmp eq", _width(kind) or 0, _SPARE, asked, self._read(kind, value))
            after = f"after {len(self.code)}"
            self._emit("branch", a=_SPARE, b=self._way(last.block, target), c=after)
            self.starts[after] = len(self.code)
        self._emit("jump", target=self._way(last.block, last.incoming[0]))

    def _way(self, source: str, target: str) -> str:
        """Where to go for a block: there, or where its phis get their values first."""
        moves = {
            self.registers[phi.result or ""]: self._read(phi.type.split(" ")[-1], self._coming(phi, source))
            for phi in self.phis.get(target, ())
        }
        if not moves:
            return target
        way = f"{source} to {target}"
        self.ways[way] = target, _in_turn(moves)
        return way

    def _coming(self, phi: Instruction, source: str) -> str:
        """What a phi is, coming from a block.

        The first block may go without a label; then its name is the one that no block has.
        """
        for value, block in zip(phi.operands, phi.incoming, strict=False):
            if block == source or (source == self.entry and block not in self.lines):
                return value
        return "undef"

    def _numbers(self) -> NDArray[np.int32]:
        parts = [self.starts[part] if isinstance(part, str) else part for one in self.code for part in one]
        return np.array(parts, np.int32)


def _in_turn(moves: Mapping[int, int]) -> list[tuple[int, int]]:
    """Assignments that all happen at once, target → source, as ones that happen one after the other."""
    left = {target: source for target, source in moves.items() if target != source}
    found = []
    while left:
        read = set(left.values())
        free = [target for target in left if target not in read]
        found += [(target, left.pop(target)) for target in free]
        if not free:  # values that change places in a ring: one is kept aside
            kept = next(iter(left))
            found.append((_SPARE, kept))
            left = {target: _SPARE if source == kept else source for target, source in left.items()}
    return found


# What instructions mean. They are read from their text, which has the constants and types of all of them.


def _condition(last: Instruction) -> tuple[str, str]:
    """The type and the value that decide where a block leads; empty where nothing does."""
    if last.opcode == "br" and (found := _BRANCH.match(last.text)):
        return "i1", found[1]
    if last.opcode == "switch" and (found := _SWITCH.match(last.text)):
        return found[1], found[2]
    return "", ""


def _meaning(one: Instruction) -> _Meaning | None:
    """What an instruction does, where that is an operation that native code knows."""
    if one.opcode == "call":
        return _called(one)
    if one.opcode == "select":
        chosen = _SELECT.search(one.text)
        if chosen is None or (width := _width(chosen[2])) is None:
            return None
        return _Meaning("select", width, (("i1", chosen[1]), (chosen[2], chosen[3]), (chosen[2], chosen[4])))
    found = _PLAIN.search(one.text)
    width = _width(found[2]) if found else None
    if found is None or width is None:
        return None
    predicate, kind, first, second, made = found.groups()
    operands = ((kind, first), (kind, second)) if second else ((kind, first),)
    opcode = one.opcode
    if opcode in ("icmp", "fcmp"):
        if len(operands) != 2:
            return None
        if opcode == "fcmp":
            return _Meaning("fcmp", width, operands, _ORDER.index(predicate)) if predicate in _ORDER else None
        name = f"icmp {predicate}"
        return _Meaning(name, width, operands) if name in _OPERATION else None
    if (opcode in _BINARY or opcode in _FLOATS) and len(operands) == (1 if opcode == "fneg" else 2):
        return _Meaning(opcode, width, operands)
    if opcode in _COPIES:
        return _Meaning("copy", width, operands[:1])
    if made is not None and (target := _width(made)) is not None:
        if opcode == "trunc":
            return _Meaning("trunc", target, operands[:1])
        if opcode in _CASTS:
            return _Meaning(opcode, target, operands[:1], width)
    return None


def _called(one: Instruction) -> _Meaning | None:
    """What a call to an intrinsic or a builtin of OpenCL means, where that is certain to the last bit."""
    width = _width(one.type)
    operands = tuple(zip(one.operand_types, one.operands, strict=False))
    name: str | None = None
    if found := _INTRINSIC.match(one.callee):
        name = _INTRINSICS.get(found[1])
        if name in ("abs", "ctlz", "cttz"):  # with a flag that says what is left open
            operands = operands[:1]
    elif found := _BUILTIN.match(one.callee):
        called, kinds = found[2][: int(found[1])], found[2][int(found[1]) :]
        builtins = _BUILTINS.get(kinds[:1], {}) if len(set(kinds)) == 1 else {}
        name = builtins.get(called)
        if called == "clamp" and builtins and len(operands) == 3 and width is not None:
            return _Meaning(builtins["min"], width, operands)
    if name is None or width is None or len(operands) != _ARITY.get(name, 2):
        return None
    return _Meaning(name, width, operands)


def _width(kind: str) -> int | None:
    """The bits of a type, if it is one that is followed."""
    if kind in ("float", "double"):
        return 32 if kind == "float" else 64
    bits = int(kind[1:]) if kind[:1] == "i" and kind[1:].isdigit() else 0
    return bits if 1 <= bits <= 64 else None


def _bits(kind: str, value: str) -> int | None:
    """A constant as LLVM prints it, as bits; None for `undef` and what else has none."""
    width = _width(kind)
    if width is None:
        return None
    try:
        if kind.startswith("i"):
            number = {"true": 1, "false": 0}.get(value)
            return (int(value) if number is None else number) & ((1 << width) - 1)
        # Hexadecimal is a double, also where it stands for a float.
        real = (
            struct.unpack("<d", struct.pack("<Q", int(value, 16)))[0] if value[:2] == "0x" else float(value)
        )
        return int.from_bytes(struct.pack("<f" if kind == "float" else "<d", real), "little")
    except (ValueError, OverflowError, struct.error):
        return None
