"""What a kernel does with the integers it is given: bounds, row lengths, loop counts, divisors, offsets.

A value that comes from one argument alone is followed to the instructions that use it together with
something else: compared with a work-item's id it bounds the range, multiplied with one it is a row length,
compared with a loop counter it is the loop's trip count. Its uses say what it may be worth.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from apportion.program.kernel.control_flow import ControlFlow
from apportion.program.kernel.instructions import Instruction, IRFunction

Tags = frozenset[str]
_NONE: Tags = frozenset()
_QUERY = re.compile(r"^_Z\d+get_(global_id|group_id|local_id|global_linear_id|local_linear_id)")
_SIZES = re.compile(r"^_Z\d+get_(?:global_size|local_size|num_groups|enqueued_local_size)")
_ROUNDS = 8
"Rounds in which tags flow through loops; more nested ones are rare."
_COMPARING = re.compile(r"llvm\.[su](?:min|max)|_Z3(?:min|max)|_Z5clamp")


def roles_of(function: IRFunction) -> dict[int, frozenset[str]]:
    """Parameter → what it is used for.

    `bound D`: compared with a work-item's id in dimension D. `stride D`, `stride loop`: multiplied with an id
    or a loop counter. `loop`: compared with a loop counter. `divisor D`, `divisor`: an id, or something else,
    is divided by it. `shift`, `offset`: it shifts, or is added to, what becomes an index. `data`: the rest.
    `trips`, of a pointer: a loop counter is compared with what was read there. `nest K`, of what is a `loop`:
    so many loops that arguments, or counters of loops (`for i < n: for j < i`), limit stand in each other.
    """
    order = {i.result: number for number, i in enumerate(function.instructions) if i.result is not None}
    parameters = {name: number for number, name in enumerate(function.parameters)}
    tags = _flow(function, parameters, order)
    found: dict[int, set[str]] = defaultdict(set)
    limits: dict[str, set[int]] = defaultdict(set)
    for instruction in function.instructions:
        if _limited_by_counter(instruction, tags):
            limits[instruction.block].update(())
        known = [(operand, tags.get(operand, _NONE)) for operand in instruction.operands]
        for position, (_, mine) in enumerate(known):
            for number in _read_from(mine) if _limits_loop(instruction, position, known) else ():
                found[number].add("trips")
            argument = _alone(mine)
            if argument is None:
                continue
            others = [(other, theirs) for place, (other, theirs) in enumerate(known) if place != position]
            uses = set(_uses(instruction, position, others, order))
            found[argument] |= uses
            if "loop" in uses:
                limits[instruction.block].add(argument)
    for number, depth in _nests(function, limits).items():
        found[number].add(f"nest {depth}")
    return {number: frozenset(uses) for number, uses in found.items()}


def _flow(function: IRFunction, parameters: Mapping[str, int], order: Mapping[str, int]) -> dict[str, Tags]:
    """Value → what it is made of: ids, loop counters, data, arguments."""
    tags: dict[str, Tags] = {name: frozenset([f"arg {number}"]) for name, number in parameters.items()}
    for _ in range(_ROUNDS):
        changed = False
        for number, instruction in enumerate(function.instructions):
            if instruction.result is None:
                continue
            new = _made_of(instruction, number, tags, order)
            if new != tags.get(instruction.result, _NONE):
                tags[instruction.result] = new
                changed = True
        if not changed:
            break
    return tags


def _made_of(
    instruction: Instruction, number: int, tags: Mapping[str, Tags], order: Mapping[str, int]
) -> Tags:
    if instruction.opcode in ("load", "atomicrmw", "cmpxchg"):
        pointer = tags.get(instruction.operands[0], _NONE)
        return frozenset(["data", *(f"from {tag[4:]}" for tag in pointer if tag.startswith("arg "))])
    if match := _QUERY.match(instruction.callee):
        dimension = instruction.operands[0] if instruction.operands else "0"
        word = "local" if match[1].startswith("local") else "id"
        return frozenset([f"{word} {dimension if dimension.isdigit() else 0}"])
    if _SIZES.match(instruction.callee):
        return frozenset(["size"])
    parts = [tags.get(operand, _NONE) for operand in instruction.operands]
    if (turned := _turned(instruction)) is not None:
        parts[turned] = frozenset(tag.replace("id ", "back ") for tag in parts[turned])
    made = frozenset[str]().union(*parts)
    if instruction.opcode == "phi" and any(
        order.get(operand, -1) >= number for operand in instruction.operands
    ):
        return made | {"loop"}
    return made


def _turned(instruction: Instruction) -> int | None:
    """The operand that counts down in the result where it counts up, as the id in `n - 1 - id`."""
    if instruction.opcode == "xor" and instruction.operands[1] == "-1":
        return 0
    return 1 if instruction.opcode == "sub" else None


def _limits_loop(instruction: Instruction, position: int, known: list[tuple[str, Tags]]) -> bool:
    others = [tags for place, (_, tags) in enumerate(known) if place != position]
    return (
        instruction.opcode == "icmp"
        and "loop" not in known[position][1]
        and any("loop" in tags for tags in others)
    )


def _nests(function: IRFunction, limits: Mapping[str, set[int]]) -> dict[int, int]:
    """Argument → of how many limited loops the deepest nest is made in which it limits one.

    Args:
        limits: block → which arguments limit loops there; without any where a loop's counter does.
    """
    if len(limits) < 2:  # one loop, which needs no search
        return {number: 1 for numbers in limits.values() for number in numbers}
    loops = ControlFlow(function).loops()
    limited: dict[frozenset[str], set[int]] = {}
    for block, numbers in limits.items():
        around = [loop for loop in loops if block in loop]
        if around:
            limited.setdefault(min(around, key=len), set()).update(numbers)
    found: dict[int, int] = {}
    for inner in limited:
        nest = [loop for loop in limited if inner <= loop]
        for number in set().union(*(limited[loop] for loop in nest)):
            found[number] = max(found.get(number, 1), len(nest))
    return found


def _limited_by_counter(instruction: Instruction, tags: Mapping[str, Tags]) -> bool:
    """Whether a loop's counter is compared with what comes of another loop's."""
    return instruction.opcode == "icmp" and all(
        "loop" in tags.get(operand, _NONE) for operand in instruction.operands
    )


def _read_from(tags: Tags) -> list[int]:
    """The pointers that a value was read from."""
    return [int(tag.removeprefix("from ")) for tag in tags if tag.startswith("from ")]


def _alone(mine: Tags) -> int | None:
    """The argument that a value comes from, where it comes from nothing else."""
    if len(mine) != 1:
        return None
    (tag,) = mine
    return int(tag.removeprefix("arg ")) if tag.startswith("arg ") else None


def _uses(
    instruction: Instruction, position: int, others: list[tuple[str, Tags]], order: Mapping[str, int]
) -> Iterable[str]:
    theirs = frozenset[str]().union(*(tags for _, tags in others))
    ids = sorted({tag[-1] for tag in theirs if tag.startswith(("id ", "back "))})
    moving = "loop" in theirs or any(tag.startswith("local ") for tag in theirs)
    opcode = instruction.opcode
    if opcode == "icmp" or _COMPARING.match(instruction.callee):
        yield from (f"bound {dimension}" for dimension in ids)
        if moving and not ids:
            yield "loop"
        elif "data" in theirs and not ids:
            yield "data"
    elif opcode == "phi" and any(
        order.get(other, -1) > order.get(instruction.result or "", 0) for other, _ in others
    ):
        yield "loop"  # it counts down from there
    elif opcode == "mul":
        yield from (f"stride {dimension}" for dimension in ids)
        if "loop" in theirs:
            yield "stride loop"
    elif opcode in ("udiv", "sdiv", "urem", "srem") and position == 1:
        yield from ([f"divisor {dimension}" for dimension in ids] or ["divisor"])
    elif opcode in ("shl", "lshr", "ashr") and position == 1:
        yield "shift"
    elif opcode == "add" and (back := [tag[-1] for tag in theirs if tag.startswith("back ")]):
        yield from (f"bound {dimension}" for dimension in back)  # ids are subtracted from it
    elif opcode == "sub" and position == 0 and ids:
        yield from (f"bound {dimension}" for dimension in ids)
    elif opcode in ("add", "sub", "or", "getelementptr") and (ids or moving or opcode == "getelementptr"):
        yield "offset"
    elif opcode in ("sitofp", "uitofp", "store", "fmul", "fadd", "fdiv", "fsub", "call"):
        yield "data"
