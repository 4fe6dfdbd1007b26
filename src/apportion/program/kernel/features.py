"""Numbers that describe a kernel: what it is made of, how much stands in loops, how large its arrays are.

They are counted on the program graph and made so that they hardly depend on the compiler that wrote the IR:
pointers are one type whatever they point to, address spaces are dropped, and markers that no machine executes
(`llvm.lifetime`, `llvm.dbg`, `llvm.assume`) are not counted.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from apportion.program.graph import NO_TEXT, Flow, NodeType, ProgramGraph

OPCODES = (
    "add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or", "xor", "fadd",
    "fsub", "fmul", "fdiv", "frem", "fneg", "icmp", "fcmp", "select", "phi", "br", "switch", "ret", "call",
    "alloca", "load", "store", "getelementptr", "trunc", "zext", "sext", "fptrunc", "fpext", "fptoui",
    "fptosi", "uitofp", "sitofp", "ptrtoint", "inttoptr", "bitcast", "extractelement", "insertelement",
    "shufflevector",
    "atomicrmw", "cmpxchg", "unreachable",
)  # fmt: skip
TYPES = (
    "i1", "i8", "i16", "i32", "i64", "half", "float", "double", "pointer", "vector", "array", "structure",
    "other",
)  # fmt: skip
CALLS = (
    "get_global_id", "get_local_id", "get_group_id", "get_local_size", "get_global_size", "get_num_groups",
    "barrier", "atomic", "fused", "root", "power", "trigonometric", "extremum", "memory", "conversion",
    "other",
)  # fmt: skip
GROUPS: Mapping[str, frozenset[str]] = {
    "integer": frozenset(OPCODES[:13]),
    "float": frozenset(("fadd", "fsub", "fmul", "fdiv", "frem", "fneg")),
    "memory": frozenset(("load", "store", "atomicrmw", "cmpxchg")),
    "comparison": frozenset(("icmp", "fcmp", "select")),
    "call": frozenset(("call",)),
}
DEPTHS = 3
"Loops inside loops are told apart up to this depth; deeper ones count as this deep."

_CALLEE = re.compile(r'@"?(?:_Z\d+)?([A-Za-z_][\w.]*)')
_MARKER = re.compile(r"@llvm\.(?:lifetime|dbg|assume|invariant|experimental\.noalias)")
_SPACE = re.compile(r" ?addrspace\(\d+\)")
_EXTENT = re.compile(r"(\d+) x ")
_INTEGER = re.compile(r"^i\d+ (-?\d+)$")
_FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    *((name, re.compile(name)) for name in CALLS[:6]),
    ("barrier", re.compile(r"barrier|mem_fence")),
    ("atomic", re.compile(r"^atom")),
    ("fused", re.compile(r"fmuladd|^fma[dfD]|^mad|^llvm\.fma")),
    ("root", re.compile(r"sqrt|rsqrt")),
    ("power", re.compile(r"^(?:native_|half_|llvm\.)?(?:exp|log|pow)")),
    ("trigonometric", re.compile(r"^(?:native_|half_|llvm\.)?a?(?:sin|cos|tan)")),
    ("extremum", re.compile(r"^(?:llvm\.)?(?:f?min|f?max|[su]min|[su]max|f?abs|clamp|minnum|maxnum)")),
    ("memory", re.compile(r"^llvm\.mem|^vload|^vstore|async_work")),
    ("conversion", re.compile(r"^convert_|^as_")),
)

FEATURES: tuple[str, ...] = (
    "nodes", "control edges", "data edges", "call edges", "functions", "blocks", "loop blocks",
    "deepest loop",
    "largest array", "arrays", "largest constant", "mean constant",
    *(f"instruction {name}" for name in OPCODES), "instruction other",
    *(f"variable {name}" for name in TYPES),
    *(f"constant {name}" for name in TYPES),
    *(f"call {name}" for name in CALLS),
    *(f"{group} at depth {depth}" for group in GROUPS for depth in range(DEPTHS + 1)),
    *(f"share of {group}" for group in GROUPS),
    *(f"share of call {name}" for name in CALLS[:9]),
)  # fmt: skip
"Names of what `vector_of` gives, in order."
SUMMARY = (
    "nodes", "blocks", "loop blocks", "deepest loop", "largest array", "largest constant", "mean constant",
    "share of integer", "share of float", "share of memory", "share of comparison", "share of call",
    "call get_local_id", "call barrier", "call other", "call fused", "call root", "call power",
    "instruction load", "instruction store", "instruction fmul", "instruction fdiv", "instruction sdiv",
    "instruction br", "instruction phi", "variable double", "variable float", "variable pointer",
    *(f"{group} at depth {depth}" for group in ("memory", "float") for depth in range(DEPTHS + 1)),
)  # fmt: skip
"A quarter of `FEATURES` that tells most of a kernel: beside it, the inputs weigh more in a tree's choices."
INPUTS = (
    "bytes moved", "work-group size", "bytes per work-item of a group", "zeros of bytes moved",
    "zeros of work-group size",
)  # fmt: skip
"Names of what `inputs_of` gives, in order. Zeros: how often a size can be halved; 0 of 0."
RANGE_INPUTS = ("work-items", "work-groups", "bytes per work-item")
"What `inputs_of` adds where the range of the launch is known; CGO17 does not publish it."


def vector_of(graph: ProgramGraph) -> NDArray[np.float64]:
    """(len(FEATURES),): counts as log(1 + count), shares from 0 to 1."""
    return in_order(features_of(graph))


def in_order(found: Mapping[str, float]) -> NDArray[np.float64]:
    """(len(FEATURES),): what `features_of` found, in the order of `FEATURES`."""
    return np.array([found.get(name, 0.0) for name in FEATURES])


def inputs_of(bytes_moved: int, work_group: int, work_items: int | None = None) -> NDArray[np.float64]:
    """(I,): what a launch is given beside its code, as logarithms: `INPUTS`, and with the number of
    work-items `RANGE_INPUTS` too."""
    size, group = math.log1p(bytes_moved), math.log1p(work_group)
    named = [size, group, size - group, _halvings(bytes_moved), _halvings(work_group)]
    if work_items is not None:
        items = math.log1p(work_items)
        named += [items, items - group, size - items]
    return np.array(named)


def _halvings(number: int) -> float:
    return float((number & -number).bit_length() - 1) if number else 0.0


def features_of(graph: ProgramGraph) -> dict[str, float]:
    """Name → value of every feature that is not 0; see `FEATURES`."""
    counted = _counted(graph)
    numbers = counted.counts()
    count = {FEATURES[number]: float(numbers[number]) for number in np.flatnonzero(numbers).tolist()}
    instructions = len(counted.instructions)
    shares: dict[str, float] = {}
    for group in GROUPS:
        total = sum(count.get(f"{group} at depth {depth}", 0.0) for depth in range(DEPTHS + 1))
        if total:
            shares[f"share of {group}"] = total / instructions
    for name in CALLS[:9]:
        if f"call {name}" in count:
            shares[f"share of call {name}"] = count[f"call {name}"] / instructions
    blocks = np.unique(graph.node_block[counted.instructions])
    flows = np.bincount(graph.edge_flow, minlength=4)
    count |= {
        "nodes": graph.nodes,
        "control edges": int(flows[Flow.CONTROL]),
        "data edges": int(flows[Flow.DATA]),
        "call edges": int(flows[Flow.CALL]),
        "functions": len(graph.functions),
        "blocks": len(blocks),
        "loop blocks": int((counted.depth[blocks] > 0).sum()),
    }
    constants = counted.constant[counted.constant >= 0].tolist()
    plain = {
        "deepest loop": float(counted.depth.max(initial=0)),
        "largest array": float(counted.extent.max(initial=0.0)),
        "largest constant": max(constants, default=0.0),
        "mean constant": sum(constants) / len(constants) if constants else 0.0,
    }
    return {**{name: math.log1p(value) for name, value in count.items()}, **shares, **plain}


def nodes_of(graph: ProgramGraph) -> dict[str, list[int]]:
    """Feature → the nodes that it was counted on, in rising order, where there are any.

    Features of the program as a whole (`nodes`, edges, `functions`, `blocks`) belong to no node.
    """
    counted = _counted(graph)
    found: dict[str, list[int]] = defaultdict(list)
    for role in (counted.kind, counted.family, counted.group, counted.array):
        for node in np.flatnonzero(role >= 0).tolist():
            found[FEATURES[role[node]]].append(node)
    inside = counted.depth[graph.node_block[counted.instructions]]
    found["loop blocks"] = counted.instructions[inside > 0].tolist()
    deepest = counted.depth.max(initial=0)
    found["deepest loop"] = counted.instructions[(inside == deepest) & (inside > 0)].tolist()
    for group in GROUPS:
        names = [f"{group} at depth {depth}" for depth in range(DEPTHS + 1)]
        found[f"share of {group}"] = sorted(node for name in names for node in found.get(name, ()))
    for name in CALLS[:9]:
        found[f"share of call {name}"] = found.get(f"call {name}", [])
    for name, values in (("largest array", counted.extent), ("largest constant", counted.constant)):
        found[name] = np.flatnonzero((values >= 0) & (values == values.max(initial=-1.0))).tolist()
    found["mean constant"] = np.flatnonzero(counted.constant >= 0).tolist()
    return {name: nodes for name, nodes in found.items() if nodes}


@dataclass(frozen=True, eq=False)
class _Counted:
    """What each node counts for: numbers in `FEATURES`, -1 for none."""

    kind: NDArray[np.int64]  # (N,) which instruction, variable or constant
    family: NDArray[np.int64]  # (N,) of a call
    group: NDArray[np.int64]  # (N,) with its depth of loops
    array: NDArray[np.int64]  # (N,)
    extent: NDArray[np.float64]  # (N,) logarithm of how many elements an array type has; -1 for others
    constant: NDArray[np.float64]  # (N,) logarithm of 1 + the size of an integer constant; -1 for others
    depth: NDArray[np.int64]  # (blocks,) in how many loops each stands
    instructions: NDArray[np.int64]  # those that a machine executes

    def counts(self) -> NDArray[np.int64]:
        """(len(FEATURES),)."""
        every = np.concatenate([self.kind, self.family, self.group, self.array])
        return np.bincount(every[every >= 0], minlength=len(FEATURES))


def _counted(graph: ProgramGraph) -> _Counted:
    # Most texts stand on many nodes: each is looked at once for each kind of node.
    keys, key = np.unique(graph.node_text.astype(np.int64) * 4 + graph.node_type, return_inverse=True)
    texts = graph.strings.chosen(keys >> 2)
    seen = [_looked_at(text, number & 3) for text, number in zip(texts, keys.tolist(), strict=True)]
    kind = np.array([one[0] for one in seen], np.int64)[key]
    opcode_group = np.array([one[1] for one in seen], np.int64)[key]
    extent = np.array([one[2] for one in seen], np.float64)[key]
    family = np.full(graph.nodes, -1, np.int64)
    calls = np.flatnonzero((kind == _CALL) & (graph.node_full_text != NO_TEXT))
    family[kind == _CALL] = _PLACE["call other"]
    for node, printed in zip(
        calls.tolist(), graph.strings.chosen(graph.node_full_text[calls].astype(np.int64)), strict=True
    ):
        if _MARKER.search(printed):
            kind[node] = opcode_group[node] = family[node] = -1
            continue
        found = family_of(printed)
        family[node] = _PLACE[f"call {found}"]
        if found == "fused":
            opcode_group[node] = _FLOAT
    loops = _block_depths(graph)
    depth = np.zeros(int(graph.node_block.max(initial=0)) + 1, np.int64)
    for block, value in loops.items():
        depth[block] = value
    group = np.where(opcode_group >= 0, opcode_group + np.minimum(depth[graph.node_block], DEPTHS), -1)
    executed = (graph.node_type == NodeType.INSTRUCTION) & (kind >= 0)
    array = np.where(extent >= 0, _PLACE["arrays"], -1)
    return _Counted(
        kind, family, group, array, extent, _integers(graph, extent), depth, np.flatnonzero(executed)
    )


@lru_cache(maxsize=4096)
def _looked_at(text: str, kind: int) -> tuple[int, int, float]:
    """What a text counts for on nodes of one kind: the feature, the group at depth 0, an array's extent."""
    if kind == NodeType.INSTRUCTION:
        if text.startswith(("[", "<")) or text == "; undefined function":
            return -1, -1, -1.0  # the root and declarations: no machine executes them
        return _PLACE[f"instruction {text if text in _KNOWN else 'other'}"], _GROUP_OF.get(text, -1), -1.0
    kept = _SPACE.sub("", text)
    extent = sum(math.log(int(n) or 1) for n in _EXTENT.findall(kept)) if "[" in kept else -1.0
    role = "variable" if kind == NodeType.VARIABLE else "constant"
    return _PLACE[f"{role} {_type_name(kept)}"], -1, extent


def _integers(graph: ProgramGraph, extent: NDArray[np.float64]) -> NDArray[np.float64]:
    values = np.full(graph.nodes, -1.0)
    chosen = np.flatnonzero(
        (graph.node_type == NodeType.CONSTANT) & (extent < 0) & (graph.node_full_text >= 0)
    )
    texts, which = np.unique(graph.node_full_text[chosen], return_inverse=True)
    matches = [_INTEGER.match(text) for text in graph.strings.chosen(texts.astype(np.int64))]
    sizes = [math.log1p(min(abs(int(match[1])), 1 << 40)) if match else -1.0 for match in matches]
    values[chosen] = np.array(sizes)[which] if sizes else -1.0
    return values


def family_of(printed: str) -> str:
    """Which of `CALLS` an instruction that calls belongs to, by the name of what it calls."""
    match = _CALLEE.search(printed)
    return _family(match[1] if match else "")


@lru_cache(maxsize=4096)
def _family(name: str) -> str:
    return next((family for family, pattern in _FAMILIES if pattern.search(name)), "other")


def asks_for_its_place(found: Mapping[str, float]) -> bool:
    """Whether a program with these features asks which work-item it is; without, all of them do the same."""
    return any(f"call {name}" in found for name in ("get_global_id", "get_local_id", "get_group_id"))


def grewe_ratios(counts: Mapping[str, float], bytes_moved: int, work_group: int) -> NDArray[np.float64]:
    """(4,): the four combined features of Grewe, Wang and O'Boyle (CGO'13): transfer per operation, coalesced
    per access, local per access times work-items, operations per access; 0 where there is nothing to divide
    by."""
    operations = counts["comp"] + counts["mem"]
    accesses = counts["mem"]
    return np.array(
        [
            bytes_moved / operations if operations else 0.0,
            counts["coalesced"] / accesses if accesses else 0.0,
            counts["localmem"] / accesses * work_group if accesses else 0.0,
            counts["comp"] / accesses if accesses else 0.0,
        ]
    )


def fingerprint(graph: ProgramGraph, *, rounds: int = 6) -> str:
    """A name that graphs share when `rounds` steps of message passing cannot tell them apart.

    Weisfeiler and Leman's colours, over both directions, with flows and positions. Extents of arrays and
    address spaces are left out of the texts: NPB's problem classes are one program with other extents.
    """
    plain = [_EXTENT.sub("n x ", _SPACE.sub("", text)) for text in graph.texts()]
    numbers = {text: _number(text) for text in set(plain)}
    colour = np.array([numbers[text] for text in plain], np.uint64)
    edge = (graph.edge_position.astype(np.uint64) << np.uint64(4)) + graph.edge_flow.astype(np.uint64)
    source, target = graph.edges
    for _ in range(rounds):
        heard = np.zeros_like(colour)
        np.add.at(heard, target, _mixed(colour[source] ^ _mixed(edge)))
        np.add.at(heard, source, _mixed(colour[target] ^ _mixed(edge + np.uint64(1 << 40))))
        colour = _mixed(colour + _mixed(heard))
    return hashlib.sha256(np.sort(colour).tobytes()).hexdigest()


_KNOWN = frozenset(OPCODES)
_PLACE = {name: number for number, name in enumerate(FEATURES)}
_CALL = _PLACE["instruction call"]
_FLOAT = _PLACE["float at depth 0"]
_GROUP_OF = {opcode: _PLACE[f"{group} at depth 0"] for group, members in GROUPS.items() for opcode in members}


def _type_name(text: str) -> str:
    if text.endswith("*") or text == "ptr":
        return "pointer"
    if text.startswith("["):
        return "array"
    if text.startswith("<") and " x " in text:
        return "vector"
    if text.startswith(("{", "%", "struct", "<{")):
        return "structure"
    return text if text in TYPES else "other"


def _block_depths(graph: ProgramGraph) -> dict[int, int]:
    """Block → in how many loops it stands, where in any.

    A loop is a strongly connected part of the blocks; the loops inside it are those that are left when the
    block through which it is entered is taken out.
    """
    after: dict[int, set[int]] = defaultdict(set)
    control = graph.edges_of(Flow.CONTROL)
    heads, tails = graph.node_block[control[0]].tolist(), graph.node_block[control[1]].tolist()
    # Within a block control goes forward; only a block that branches to itself has an edge back.
    backward = (control[1] <= control[0]).tolist()
    for head, tail, back in zip(heads, tails, backward, strict=True):
        if head != tail or back:
            after[head].add(tail)
    depth: dict[int, int] = defaultdict(int)
    pending = [set(after) | {tail for tails in after.values() for tail in tails}]
    while pending:
        inside = pending.pop()
        for part in _strong_parts(inside, after):
            if len(part) == 1 and not any(block in after[block] for block in part):
                continue
            for block in part:
                depth[block] += 1
            # Blocks are numbered as they are printed, and compilers print the header of a loop first.
            rest = part - {min(part)}
            if rest:
                pending.append(rest)
    return dict(depth)


def _strong_parts(inside: set[int], after: Mapping[int, set[int]]) -> list[set[int]]:
    """Tarjan's strongly connected components, without recursion: kernels may have thousands of blocks."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    waiting: set[int] = set()
    parts: list[set[int]] = []
    for start in sorted(inside):
        if start in order:
            continue
        order[start] = low[start] = len(order)
        stack.append(start)
        waiting.add(start)
        work = [(start, iter(sorted(after.get(start, set()) & inside)))]
        while work:
            block, following = work[-1]
            for nearby in following:
                if nearby not in order:
                    order[nearby] = low[nearby] = len(order)
                    stack.append(nearby)
                    waiting.add(nearby)
                    work.append((nearby, iter(sorted(after.get(nearby, set()) & inside))))
                    break
                if nearby in waiting:
                    low[block] = min(low[block], order[nearby])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[block])
                if low[block] == order[block]:
                    part: set[int] = set()
                    while block not in part:
                        part.add(stack.pop())
                    waiting -= part
                    parts.append(part)
    return parts


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest())


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: near numbers become far ones."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
