"""How a kernel uses each of its arguments, and which merge that allows when several devices share the work.

Every pointer is followed back to the argument it came from. What its index is made of (ids, data, loop
counters) says whether two work-groups can write the same place, and the atomics say whether partial results
can be summed. That writes are indexed by ids is necessary for them to be disjoint, not sufficient
(`out[gid / 2]`): the runtime checks the first launch, and counts conflicts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from apportion.errors import UnknownName
from apportion.program.kernel.bounds import IndexProgram, Reach
from apportion.program.kernel.instructions import IRFunction, IRModule, read_module
from apportion.program.kernel.pointers import AtomicUse, Gathered, Pointer, Use, Walk
from apportion.program.kernel.roles import roles_of
from apportion.program.kernel.signature import KernelArgument, Signature, signatures_of

MERGES = ("none", "slice", "diff", "sum", "min", "max", "and", "or", "xor", "refuse")
"""What may be done with what several devices leave in their copies of an argument.

`none`: it is not written. `slice`: each device's part is a range of bytes. `diff`: what a device changed is
taken. `sum` … `xor`: copies are combined element by element. `refuse`: the work cannot be shared.
"""

_RANGE_WIDE = {"group id", "global size", "group count", "global offset", "global linear id"}
"Queries whose answer changes when a device gets only part of the range."
_IDS = {"global id", "group id", "global linear id"}
_ROUNDING = {"fadd", "fsub", "fmul", "fdiv", "frem", "fptrunc", "sitofp", "uitofp", "call"}
"Operations whose floating-point results are rounded; a call may be one of a function of OpenCL."
_FLOAT = re.compile(r"\b(?:half|bfloat|float|double)\b")
_FLOAT_BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8}
_MERGE_OF_ATOMIC = {
    "add": "sum", "sub": "sum", "inc": "sum", "dec": "sum", "min": "min", "max": "max", "umin": "min",
    "umax": "max", "and": "and", "or": "or", "xor": "xor",
}  # fmt: skip


@dataclass(frozen=True)
class ArgumentAccess:
    """How a kernel uses one argument."""

    index: int
    name: str
    space: str
    reads: bool = False
    writes: bool = False
    indexed_by: frozenset[str] = frozenset()
    "What the indices of its writes (else of its reads) are made of: ids, `data`, `loop`, `argument`."
    atomics: tuple[AtomicUse, ...] = ()
    merge: str = "none"
    reason: str = "it is not written"
    read_reach: tuple[Reach, ...] | None = ()
    "Where it is read; None where that is not known, empty where nowhere."
    write_reach: tuple[Reach, ...] | None = ()
    "Where it is written, likewise."
    is_index: bool = False
    "Its contents serve to index memory."
    roles: frozenset[str] = frozenset()
    "What an integer passed by value, or what a pointer leads to, is used for: see `roles.roles_of`."
    settled: bool = False
    "Which places are written depends on ids and scalar arguments alone, never on data."
    lanes: int = 1
    "Of the vectors that every write to it stores."
    undefined_lanes: frozenset[int] = frozenset()
    "Those that no write ever sets: what they hold afterwards is any compiler's choice."


@dataclass(frozen=True)
class KernelAccess:
    """How a kernel uses its arguments."""

    kernel: str
    arguments: tuple[ArgumentAccess, ...]
    program: IndexProgram
    virtual_indices: bool
    "It asks for group ids, counts or global sizes, which must stay those of the whole range."
    has_barrier: bool = False
    untraced: str = ""
    "Why some access could not be followed to an argument; empty when all were."
    computes_in: int = 8
    "Bytes of the narrowest floating-point type it computes in; 8 where it computes in none."

    @property
    def obstacles(self) -> list[str]:
        """Why the work cannot be shared between devices; empty when it can."""
        found = [f"{a.name}: {a.reason}" for a in self.arguments if a.merge == "refuse"]
        return [*found, self.untraced] if self.untraced else found

    def argument(self, name: str) -> ArgumentAccess:
        """The access to the argument called `name`."""
        for argument in self.arguments:
            if argument.name == name:
                return argument
        raise UnknownName("argument", name, [argument.name for argument in self.arguments])


def accesses_of(ir: str, source: str = "") -> dict[str, KernelAccess]:
    """How each kernel of a module uses its arguments.

    Args:
        ir: LLVM IR of OpenCL C for spir64, optimised (so that values stand in registers).
        source: the OpenCL C it came from, for the names of the arguments.
    """
    module = read_module(ir)
    return {
        name: _access(module, module.functions[name], signature)
        for name, signature in signatures_of(module, source).items()
    }


def _access(module: IRModule, kernel: IRFunction, signature: Signature) -> KernelAccess:
    pointers = [a for a in signature.arguments if a.is_pointer]
    gathered = Gathered(module, {a.index: Use() for a in pointers})
    values: dict[str, Pointer | tuple[int | None, frozenset[str]]] = {}
    for argument, name in zip(signature.arguments, kernel.parameters, strict=True):
        if argument.is_pointer:
            values[name] = Pointer(frozenset([argument.index]), gathered.step("constant"), frozenset())
        else:
            values[name] = gathered.step("argument", value=argument.index), frozenset(["argument"])
    Walk(gathered, kernel, values, 0).run()
    roles = roles_of(kernel)
    arguments = tuple(
        _of_image(a) if a.is_image
        else _conclude(a.index, a.name, a.space, gathered.uses.get(a.index), roles.get(a.index, frozenset()))
        for a in signature.arguments
    )  # fmt: skip
    return KernelAccess(
        kernel.name, arguments, IndexProgram(tuple(gathered.steps)),
        bool(gathered.queries & _RANGE_WIDE), gathered.has_barrier, gathered.untraced,
        _narrowest(module, kernel.name),
    )  # fmt: skip


def _narrowest(module: IRModule, kernel: str) -> int:
    """Bytes of the narrowest floating-point type in which a kernel, and what it calls, rounds results."""
    found, left, known = 8, [kernel], {kernel}
    while left:
        for instruction in module.functions[left.pop()].instructions:
            callee = instruction.callee
            if callee in module.functions and callee not in known:
                known.add(callee)
                left.append(callee)
            if instruction.opcode in _ROUNDING and (kind := _FLOAT.search(instruction.type)):
                found = min(found, _FLOAT_BYTES[kind[0]])
    return found


def _of_image(argument: KernelArgument) -> ArgumentAccess:
    """An image: its qualifier says whether it is read and written, nothing says where."""
    writes = argument.access in ("write_only", "read_write")
    return ArgumentAccess(
        argument.index, argument.name, argument.space,
        reads=argument.access != "write_only", writes=writes, merge="diff" if writes else "none",
        reason="it is an image; what a device changed is taken" if writes else "it is not written",
        read_reach=None, write_reach=None if writes else (),
    )  # fmt: skip


def _conclude(index: int, name: str, space: str, use: Use | None, roles: frozenset[str]) -> ArgumentAccess:
    if use is None or space == "local":
        return ArgumentAccess(index, name, space, reason="it is not shared between work-groups", roles=roles)
    merge, reason = _merge_of(use)
    sources = use.write_sources or use.read_sources
    reads, writes = _all(use.reads), _all(use.writes)
    lanes, undefined = _undefined(use)
    return ArgumentAccess(
        index, name, space,
        reads=bool(use.reads), writes=bool(use.writes or use.atomics),
        indexed_by=frozenset().union(*sources), atomics=tuple(use.atomics), merge=merge, reason=reason,
        read_reach=None if use.atomics else reads, write_reach=None if use.atomics else writes,
        is_index=use.is_index, roles=roles & {"trips"},
        settled=use.settled and bool(use.writes) and not use.atomics, lanes=lanes, undefined_lanes=undefined,
    )  # fmt: skip


def _undefined(use: Use) -> tuple[int, frozenset[int]]:
    """The lanes of every write, and those of them that none sets."""
    widths = {lanes for lanes, _ in use.stored}
    if len(widths) != 1 or use.atomics:
        return 1, frozenset()
    (lanes,) = widths
    undefined = frozenset(range(lanes)).intersection(*(lost for _, lost in use.stored))
    return lanes, undefined if len(undefined) < lanes else frozenset()


def _all(reaches: list[Reach | None]) -> tuple[Reach, ...] | None:
    known = tuple(dict.fromkeys(reach for reach in reaches if reach is not None))
    return known if len(known) == len(set(reaches)) else None


def _merge_of(use: Use) -> tuple[str, str]:
    if use.atomics:
        return _merge_of_atomics(use)
    if not use.writes:
        return "none", "it is not written" if use.reads else "it is not used"
    sources = frozenset[str]().union(*use.write_sources)
    inside = "; it is also read at other places, which only this launch's own work-groups may have written"
    note = inside if set(use.read_sources) - set(use.write_sources) else ""
    if "atomic result" in sources:
        return (
            "refuse",
            "the place it is written at comes from an atomic operation, whose order devices do not share",
        )
    if "data" in sources:
        return "diff", "the places it is written at depend on data" + note
    if not all(source & _IDS for source in use.write_sources):
        return "diff", "some writes do not depend on which work-item makes them" + note
    if _all(use.writes) is None:
        return "diff", "its writes follow the work-item ids, but their bounds are not known" + note
    return "slice", "its writes follow the work-item ids" + note


def _merge_of_atomics(use: Use) -> tuple[str, str]:
    for atomic in use.atomics:
        if atomic.operation not in _MERGE_OF_ATOMIC:
            return "refuse", f"atomic {atomic.operation} orders work-groups, which devices cannot share"
        if atomic.result_used:
            return (
                "refuse",
                f"the result of atomic {atomic.operation} is used, and depends on every other work-group",
            )
    ways = {_MERGE_OF_ATOMIC[atomic.operation] for atomic in use.atomics}
    if len(ways) > 1:
        return "refuse", f"atomics of different kinds ({', '.join(sorted(ways))}) act on it"
    if use.reads or use.writes:
        return "refuse", "it is updated by atomics and also read or written plainly"
    way = ways.pop()
    return way, f"only atomics whose results are not used act on it, and they combine by {way}"
