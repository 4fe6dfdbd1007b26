"""Following a kernel's pointers to the arguments they came from, through arithmetic, loops and calls."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from apportion.program.kernel.bounds import IndexStep, Reach
from apportion.program.kernel.instructions import Instruction, IRFunction, IRModule
from apportion.program.kernel.undefined import stored_lanes, undefined_lanes

_QUERIES = {
    "_Z13get_global_idj": "global id", "_Z12get_local_idj": "local id", "_Z12get_group_idj": "group id",
    "_Z15get_global_sizej": "global size", "_Z14get_local_sizej": "local size",
    "_Z23get_enqueued_local_sizej": "local size", "_Z14get_num_groupsj": "group count",
    "_Z17get_global_offsetj": "global offset", "_Z20get_global_linear_idv": "global linear id",
    "_Z19get_local_linear_idv": "local id", "_Z12get_work_dimv": "dimensions",
}  # fmt: skip
_UNSETTLED = {"data", "atomic result"}

_ATOMIC = re.compile(r"^_Z\d+(?:atomic|atom)_(?:fetch_)?([a-z]+(?:_[a-z]+)*?)(?:_explicit)?P")
_BUILTIN_ARITHMETIC = {
    "llvm.smin": "min", "llvm.umin": "min", "llvm.smax": "max", "llvm.umax": "max", "_Z3min": "min",
    "_Z3max": "max", "_Z5clamp": "clamp", "_Z5mul24": "mul", "_Z5mad24": "multiply-add",
}  # fmt: skip
_IGNORED_CALLS = re.compile(
    r"^(?:llvm\.(?:lifetime|assume|dbg|invariant|experimental)|.*(?:barrier|mem_fence|printf))"
)
_ARITHMETIC = ("add", "sub", "mul", "shl", "udiv", "sdiv", "urem", "srem", "lshr", "ashr", "and", "or", "xor")
_LANEWISE = (*_ARITHMETIC, "sext", "zext", "trunc")
_DEPTH = 8
"Calls inside calls that are followed."
_LONGEST = 150
"Operations on the way from a value to where it came from; beyond that it counts as unknown."


@dataclass(frozen=True)
class AtomicUse:
    """One atomic operation on an argument."""

    operation: str
    result_used: bool


@dataclass
class Use:
    """What was seen of one argument so far."""

    read_sources: list[frozenset[str]] = field(default_factory=list)
    write_sources: list[frozenset[str]] = field(default_factory=list)
    reads: list[Reach | None] = field(default_factory=list)
    writes: list[Reach | None] = field(default_factory=list)
    atomics: list[AtomicUse] = field(default_factory=list)
    is_index: bool = False
    settled: bool = True
    stored: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    "Of each write: how many lanes it has, and which of them nobody set."


@dataclass(frozen=True)
class Pointer:
    """Where a pointer leads: the arguments it may come from, its byte offset, what the offset is made of."""

    arguments: frozenset[int]
    offset: int | None
    sources: frozenset[str]
    other: str = ""
    "Memory that is no argument: `local`, `private`, `program` (a constant of the program) or `unknown`."


@dataclass
class Gathered:
    """What one analysis gathers over a kernel and the functions it calls."""

    module: IRModule
    uses: dict[int, Use]
    steps: list[IndexStep] = field(default_factory=list)
    queries: set[str] = field(default_factory=set)
    has_barrier: bool = False
    untraced: str = ""

    def step(self, operation: str, operands: tuple[int, ...] = (), value: int = 0) -> int:
        self.steps.append(IndexStep(operation, operands, value))
        return len(self.steps) - 1


class Walk:
    """One function's instructions, followed with what is known of its parameters."""

    def __init__(
        self,
        gathered: Gathered,
        function: IRFunction,
        values: dict[str, Pointer | tuple[int | None, frozenset[str]]],
        depth: int,
    ) -> None:
        self.gathered, self.function, self.depth = gathered, function, depth
        self.definitions = function.by_result()
        self.values = values
        self.times_used = Counter(o for i in function.instructions for o in i.operands)
        self.pending: set[str] = set()
        self._ends = {i.block: i for i in function.instructions}  # the last one of each block remains
        self._data_decides: bool | None = None
        self._cuts = 0
        self._known_lanes: dict[tuple[str, int], int | None] = {}
        self._undefined: dict[str, frozenset[int]] | None = None
        self._index_loads: dict[str, Instruction] = {}
        "Loads that an index is made of, or a pointer, by their results."

    def run(self) -> None:
        for instruction in self.function.instructions:
            match instruction.opcode:
                case "load":
                    self._touch(
                        instruction.operands[0], instruction, write=False, width=self._bytes(instruction.type)
                    )
                case "store":
                    self._touch(
                        instruction.operands[1], instruction, write=True, width=self._bytes(instruction.type)
                    )
                case "atomicrmw" | "cmpxchg":
                    self._atomic(instruction, instruction.element or "cmpxchg")
                case "call":
                    self._call(instruction)
        self._mark_indices()

    # Memory

    def _touch(self, pointer: str, instruction: Instruction, *, write: bool, width: int) -> None:
        where = self.pointer(pointer)
        if where.other == "unknown" and write:
            kind = instruction.operand_types[-1] if instruction.operand_types else "ptr"
            if "addrspace(3)" not in kind:
                self.gathered.untraced = (
                    f"a write goes to memory that could not be traced: {instruction.text}"
                )
        reach = Reach(where.offset, width) if where.offset is not None and width else None
        for index in where.arguments:
            use = self.gathered.uses[index]
            (use.write_sources if write else use.read_sources).append(where.sources)
            (use.writes if write else use.reads).append(reach if len(where.arguments) == 1 else None)
            if write:
                use.stored.append(self._stored(instruction))
            if write and (where.sources & _UNSETTLED or not self._always(instruction.block)):
                use.settled = False

    def _stored(self, instruction: Instruction) -> tuple[int, frozenset[int]]:
        """How many lanes a write has, and which of them nobody set."""
        if instruction.opcode != "store" or not instruction.type.startswith("<"):
            return 1, frozenset()
        if self._undefined is None:
            self._undefined = undefined_lanes(self.function)
        return stored_lanes(instruction, self._undefined)

    def _always(self, block: str) -> bool:
        """Whether data cannot keep a block from being executed: no test asks, or all paths lead there."""
        if self.depth:
            return False  # the call itself may depend on data
        if self._data_decides is None:
            tests = [i for i in self.function.instructions if i.opcode in ("br", "switch") and i.operands]
            self._data_decides = any(self.sources(test.operands[0]) & _UNSETTLED for test in tests)
        if not self._data_decides:
            return True
        waiting, seen = [self.function.instructions[0].block], {block}
        while waiting:
            here = waiting.pop()
            if here in seen:
                continue
            seen.add(here)
            end = self._ends[here]
            if end.opcode not in ("br", "switch"):
                return False  # the function can be left without it
            waiting.extend(end.incoming)
        return True

    def _atomic(self, instruction: Instruction, operation: str) -> None:
        where = self.pointer(instruction.operands[0])
        used = instruction.result is not None and self.times_used[instruction.result] > 0
        for index in where.arguments:
            self.gathered.uses[index].atomics.append(AtomicUse(operation, used))
        if where.other == "unknown" and "addrspace(3)" not in " ".join(instruction.operand_types):
            self.gathered.untraced = f"an atomic acts on memory that could not be traced: {instruction.text}"

    def _call(self, call: Instruction) -> None:
        callee = call.callee
        if callee in _QUERIES:
            self.gathered.queries.add(_QUERIES[callee])
        if "barrier" in callee:
            self.gathered.has_barrier = True
        if _IGNORED_CALLS.match(callee) or callee in _QUERIES:
            return
        if match := _ATOMIC.match(callee):
            self._atomic(call, match[1])
        elif callee in self.gathered.module.functions:
            self._enter(call, self.gathered.module.functions[callee])
        else:
            for position, (kind, value) in enumerate(zip(call.operand_types, call.operands, strict=False)):
                if kind.startswith("ptr"):
                    for write in _declared_access(callee, position):
                        self._touch(value, call, write=write, width=0)

    def _enter(self, call: Instruction, callee: IRFunction) -> None:
        if self.depth >= _DEPTH:
            self.gathered.untraced = f"calls are nested too deeply at {callee.name}"
            return
        values: dict[str, Pointer | tuple[int | None, frozenset[str]]] = {}
        for kind, value, name in zip(call.operand_types, call.operands, callee.parameters, strict=False):
            if kind.startswith("ptr"):
                values[name] = self.pointer(value)
            else:
                values[name] = self.index(value), self.sources(value)
        Walk(self.gathered, callee, values, self.depth + 1).run()

    def pointer(self, value: str) -> Pointer:
        """Where a pointer value leads."""
        known = self.values.get(value)
        if isinstance(known, Pointer):
            return known
        instruction = self.definitions.get(value)
        if instruction is None:
            inside = re.search(r"@[-\w$.]+", value)
            return Pointer(
                frozenset(), None, frozenset(), "program" if inside or value == "null" else "unknown"
            )
        if value in self.pending:  # a pointer that a loop moves on: its other operand says where it starts
            self._cuts += 1
            return Pointer(frozenset(), None, frozenset(["loop"]), "private")
        if len(self.pending) > _LONGEST:
            return Pointer(frozenset(), None, frozenset(["data"]), "unknown")
        cuts = self._cuts
        self.pending.add(value)
        found = self._pointer(instruction)
        self.pending.discard(value)
        if cuts == self._cuts or not self.pending:  # else it may lack what the loop it is part of adds
            self.values[value] = found
        return found

    def _pointer(self, instruction: Instruction) -> Pointer:
        operands = instruction.operands
        match instruction.opcode:
            case "getelementptr":
                base = self.pointer(operands[0])
                sources = base.sources.union(*(self.sources(o) for o in operands[1:]))
                return Pointer(base.arguments, self._offset(base, instruction), sources, base.other)
            case "bitcast" | "addrspacecast" | "freeze":
                return self.pointer(operands[0])
            case "phi" | "select":
                choices = [
                    self.pointer(o) for o in (operands[1:] if instruction.opcode == "select" else operands)
                ]
                extra = frozenset(["loop"]) if instruction.opcode == "phi" else self.sources(operands[0])
                others = {c.other for c in choices}
                return Pointer(
                    frozenset().union(*(c.arguments for c in choices)),
                    None,
                    extra.union(*(c.sources for c in choices)),
                    "unknown" if "unknown" in others else next(iter(sorted(others, reverse=True)), ""),
                )
            case "alloca":
                return Pointer(frozenset(), None, frozenset(), "private")
        return Pointer(frozenset(), None, frozenset(["data"]), "unknown")

    def _offset(self, base: Pointer, pointer: Instruction) -> int | None:
        """The step that computes a getelementptr's byte offset from the argument it came from."""
        if base.offset is None:
            return None
        gathered, total, kind = self.gathered, base.offset, pointer.element
        for position, value in enumerate(pointer.operands[1:]):
            if position and (array := re.fullmatch(r"[\[<]\d+ x (.+)[\]>]", kind)):
                kind = array[1]
            elif position:
                field_offset, kind = gathered.module.offset_of(kind, int(value))
                total = gathered.step("add", (total, gathered.step("constant", value=field_offset)))
                continue
            index = self.index(value)
            if index is None:
                return None
            width = gathered.step("constant", value=self._bytes(kind))
            total = gathered.step("add", (total, gathered.step("mul", (index, width))))
        return total

    def _bytes(self, kind: str) -> int:
        return self.gathered.module.bytes_of(kind)

    # Values

    def sources(self, value: str) -> frozenset[str]:
        """What a value is made of."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting = [value]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            known = self.values.get(name)
            if known is not None:
                found |= known.sources if isinstance(known, Pointer) else known[1]
                continue
            instruction = self.definitions.get(name)
            if instruction is None:
                continue
            if instruction.opcode == "load":
                found.add("data")
                self._index_loads.setdefault(name, instruction)
            elif instruction.opcode in ("atomicrmw", "cmpxchg") or _ATOMIC.match(instruction.callee):
                found.add("atomic result")
            elif instruction.callee in _QUERIES:
                found.add(_QUERIES[instruction.callee])
            else:
                if instruction.opcode == "phi":
                    found.add("loop")
                waiting.extend(instruction.operands)
        return frozenset(found)

    def _mark_indices(self) -> None:
        """Mark what the loads that indices are made of read, and what the places of those are made of."""
        marked: set[str] = set()
        while left := [load for name, load in self._index_loads.items() if name not in marked]:
            marked.update(load.result or "" for load in left)
            for load in left:
                for index in self.pointer(load.operands[0]).arguments:
                    self.gathered.uses[index].is_index = True

    def index(self, value: str) -> int | None:
        """The step of the index program that computes an integer value, if it can be written down."""
        if re.fullmatch(r"-?\d+", value):
            return self.gathered.step("constant", value=int(value))
        known = self.values.get(value)
        if known is not None:
            return None if isinstance(known, Pointer) else known[0]
        instruction = self.definitions.get(value)
        if instruction is None or value in self.pending or len(self.pending) > _LONGEST:
            return None
        self.pending.add(value)
        step = self._index(instruction)
        self.pending.discard(value)
        self.values[value] = step, self.sources(value)
        return step

    def _index(self, instruction: Instruction) -> int | None:
        opcode, operands = instruction.opcode, instruction.operands
        bits = re.fullmatch(r"i(\d+)", instruction.type)
        width = int(bits[1]) if bits else 0
        if opcode == "call":
            return self._called(instruction, width)
        if opcode == "phi":
            counter = self._counter(instruction)
            return counter if counter is not None else self._combined("join", operands, 0)
        if opcode == "select":
            return self._combined("join", operands[1:], 0)
        if opcode == "freeze":
            return self.index(operands[0])
        if opcode in _ARITHMETIC:
            return self._combined(opcode, operands, width)
        if opcode in ("zext", "sext"):
            inner = re.fullmatch(r"i(\d+)", instruction.operand_types[0])
            return self._combined(opcode, operands, int(inner[1]) if inner else 0)
        if opcode == "trunc":
            return self._combined(opcode, operands, width)
        if opcode == "extractelement" and operands[1].isdigit():
            return self._lane(operands[0], int(operands[1]))
        return None

    def _lane(self, vector: str, lane: int) -> int | None:
        """The step of one element of a vector: the compiler puts index arithmetic into vectors, too."""
        if (vector, lane) not in self._known_lanes:
            self._known_lanes[vector, lane] = None  # for a vector that a loop makes from itself
            self._known_lanes[vector, lane] = self._element(vector, lane)
        return self._known_lanes[vector, lane]

    def _element(self, vector: str, lane: int) -> int | None:
        if vector.startswith("<"):
            constants = re.findall(r"i\d+ (-?\d+|poison|undef)", vector)
            known = lane < len(constants) and constants[lane].lstrip("-").isdigit()
            return self.gathered.step("constant", value=int(constants[lane])) if known else None
        if vector == "zeroinitializer":
            return self.gathered.step("constant")
        made = self.definitions.get(vector)
        if made is None:
            return None
        operands = made.operands
        bits = re.search(r" x i(\d+)>", made.type)
        width = int(bits[1]) if bits else 0
        match made.opcode:
            case "insertelement" if operands[2].isdigit():
                return self.index(operands[1]) if int(operands[2]) == lane else self._lane(operands[0], lane)
            case "shufflevector":
                return self._shuffled(made, lane)
            case "sext" | "zext":
                inner = re.search(r" x i(\d+)>", made.operand_types[0])
                width = int(inner[1]) if inner else 0
        if made.opcode in _LANEWISE:
            steps = [self._lane(operand, lane) for operand in operands]
            known_steps = tuple(step for step in steps if step is not None)
            if len(known_steps) == len(steps):
                return self.gathered.step(made.opcode, known_steps, width)
        return None

    def _shuffled(self, shuffle: Instruction, lane: int) -> int | None:
        first, second, mask = shuffle.operands
        size = re.match(r"<(\d+) x", shuffle.type)
        picks = re.findall(r"i32 (\d+)", mask)
        pick = 0 if mask == "zeroinitializer" else int(picks[lane]) if lane < len(picks) else None
        if pick is None or size is None:
            return None
        count = int(size[1])
        return self._lane(first, pick) if pick < count else self._lane(second, pick - count)

    def _called(self, call: Instruction, width: int) -> int | None:
        query = _QUERIES.get(call.callee)
        if query is not None:
            if (
                query in ("global linear id", "dimensions")
                or not call.operands
                or not call.operands[0].isdigit()
            ):
                return None
            return self.gathered.step(query, value=int(call.operands[0]))
        for prefix, operation in _BUILTIN_ARITHMETIC.items():
            if call.callee.startswith(prefix):
                return self._combined(operation, call.operands, width)
        return None

    def _combined(self, operation: str, operands: tuple[str, ...], width: int) -> int | None:
        steps = [self.index(operand) for operand in operands]
        if operation in ("and", "urem") and steps[0] is None and steps[1] is not None:
            steps[0] = self.gathered.step("unknown")
        known = tuple(step for step in steps if step is not None)
        return self.gathered.step(operation, known, width) if len(known) == len(steps) else None

    def _counter(self, phi: Instruction) -> int | None:
        """The step of a loop counter: `phi [start], [phi + step]`, bounded by a test at the loop's end."""
        if len(phi.operands) != 2:
            return None
        for start, following in (phi.operands, phi.operands[::-1]):
            increment = self.definitions.get(following)
            if increment is None or increment.opcode != "add" or phi.result not in increment.operands:
                continue
            other = [o for o in increment.operands if o != phi.result]
            first, by = self.index(start), self.index(other[0]) if other else None
            last = self._last(phi, increment)
            if first is None or by is None or last is None:
                return None
            limit, operation = last
            return self.gathered.step(operation, (first, by, limit))
        return None

    def _last(self, phi: Instruction, increment: Instruction) -> tuple[int, str] | None:
        """The step of the largest (smallest, counting down) value that a counter may reach."""
        for branch in self.function.instructions:
            if branch.opcode != "br" or len(branch.incoming) != 2 or phi.block not in branch.incoming:
                continue
            test = self.definitions.get(branch.operands[0]) if branch.operands else None
            if test is None or test.opcode != "icmp" or increment.result not in test.operands:
                continue
            predicate = test.element
            bound = test.operands[1] if test.operands[0] == increment.result else test.operands[0]
            if test.operands[0] != increment.result:
                predicate = _swapped(predicate)
            if branch.incoming[0] != phi.block:  # the loop goes on when the comparison fails
                predicate = _negated(predicate)
            limit = self.index(bound)
            by = next((o for o in increment.operands if o != phi.result), "")
            if limit is None:
                return None
            step = self.gathered.step
            match predicate:
                case "slt" | "ult":
                    return step("sub", (limit, step("constant", value=1))), "count up"
                case "sle" | "ule":
                    return limit, "count up"
                case "sgt" | "ugt":
                    return step("add", (limit, step("constant", value=1))), "count down"
                case "sge" | "uge":
                    return limit, "count down"
                case "ne" if re.fullmatch(r"-?\d+", by) and int(by) != 0:
                    up = int(by) > 0
                    return step(
                        "sub", (limit, step("constant", value=int(by)))
                    ), "count up" if up else "count down"
        return None


def _swapped(predicate: str) -> str:
    """`a < b` as `b > a`."""
    if predicate in ("eq", "ne"):
        return predicate
    return predicate[0] + {"l": "g", "g": "l"}[predicate[1]] + predicate[2]


def _negated(predicate: str) -> str:
    if predicate in ("eq", "ne"):
        return "ne" if predicate == "eq" else "eq"
    sign, direction, edge = predicate[0], predicate[1], predicate[2]
    return sign + {"l": "g", "g": "l"}[direction] + {"t": "e", "e": "t"}[edge]


def _declared_access(callee: str, position: int) -> tuple[bool, ...]:
    """Whether a builtin reads (False) or writes (True) the pointer it is given at this position."""
    if re.search(r"vload|prefetch", callee):
        return (False,)
    if re.search(r"async_work_group_(?:strided_)?copy|llvm\.memcpy|llvm\.memmove", callee):
        return (position == 0,)
    if re.search(r"vstore|llvm\.memset", callee):
        return (True,)
    return (False, True)
