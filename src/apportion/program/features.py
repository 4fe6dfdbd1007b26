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
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from apportion.program.graph import Flow, NodeType, ProgramGraph

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
GREWE = ("comp", "rational", "mem", "localmem", "coalesced", "atomic")
"Grewe, Wang and O'Boyle (CGO'13): the static counts, under the names that the CGO17 tables give them."

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
INPUTS = ("bytes moved", "work-group size", "bytes per work-item of a group")
"Names of what `inputs_of` gives, in order."


def vector_of(graph: ProgramGraph) -> NDArray[np.float64]:
    """(len(FEATURES),): counts as log(1 + count), shares from 0 to 1."""
    return in_order(features_of(graph))


def in_order(found: Mapping[str, float]) -> NDArray[np.float64]:
    """(len(FEATURES),): what `features_of` found, in the order of `FEATURES`."""
    return np.array([found.get(name, 0.0) for name in FEATURES])


def inputs_of(bytes_moved: int, work_group: int) -> NDArray[np.float64]:
    """(len(INPUTS),): what a launch is given beside its code, as logarithms."""
    size, group = math.log1p(bytes_moved), math.log1p(work_group)
    return np.array([size, group, size - group])


def features_of(graph: ProgramGraph) -> dict[str, float]:
    """Name → value of every feature that is not 0; see `FEATURES`."""
    tally: dict[str, float] = defaultdict(float)
    instructions = 0
    depth = _block_depths(graph)
    blocks: set[int] = set()
    largest_array, constants = 0.0, []
    texts, full = graph.texts(), graph.full_texts()
    kinds = graph.node_type.tolist()
    group_of = {opcode: group for group, members in GROUPS.items() for opcode in members}
    for kind, text, printed, block in zip(kinds, texts, full, graph.node_block.tolist(), strict=True):
        if kind == NodeType.INSTRUCTION:
            if text.startswith(("[", "<")) or text == "; undefined function":
                continue  # the root and declarations: no machine executes them
            family = ""
            if text == "call":
                if printed is not None and _MARKER.search(printed):
                    continue
                family = family_of(printed or "")
                tally[f"call {family}"] += 1
            instructions += 1
            blocks.add(block)
            tally[f"instruction {text if text in _KNOWN else 'other'}"] += 1
            group = "float" if family == "fused" else group_of.get(text, "")
            if group:
                tally[f"{group} at depth {min(depth.get(block, 0), DEPTHS)}"] += 1
                tally[f"share of {group}"] += 1
        else:
            kept = _SPACE.sub("", text)
            name = _type_name(kept)
            tally[f"{'variable' if kind == NodeType.VARIABLE else 'constant'} {name}"] += 1
            if "[" in kept:
                tally["arrays"] += 1
                largest_array = max(largest_array, sum(math.log(int(n) or 1) for n in _EXTENT.findall(kept)))
            elif kind == NodeType.CONSTANT and printed is not None and (match := _INTEGER.match(printed)):
                constants.append(math.log1p(min(abs(int(match[1])), 1 << 40)))
    shares = {name: value / instructions for name, value in tally.items() if name.startswith("share of")}
    for name in CALLS[:9]:
        if tally.get(f"call {name}"):
            shares[f"share of call {name}"] = tally[f"call {name}"] / instructions
    tally["nodes"] = graph.nodes
    for flow, name in ((Flow.CONTROL, "control"), (Flow.DATA, "data"), (Flow.CALL, "call")):
        tally[f"{name} edges"] = int((graph.edge_flow == flow).sum())
    tally["functions"] = len(graph.functions)
    tally["blocks"] = len(blocks)
    tally["loop blocks"] = sum(1 for block in blocks if depth.get(block, 0))
    counted = {name: math.log1p(value) for name, value in tally.items()}
    plain = {
        "deepest loop": float(max(depth.values(), default=0)),
        "largest array": largest_array,
        "largest constant": max(constants, default=0.0),
        "mean constant": sum(constants) / len(constants) if constants else 0.0,
    }
    return {**counted, **shares, **plain}


def family_of(printed: str) -> str:
    """Which of `CALLS` an instruction that calls belongs to, by the name of what it calls."""
    match = _CALLEE.search(printed)
    name = match[1] if match else ""
    return next((family for family, pattern in _FAMILIES if pattern.search(name)), "other")


def asks_for_its_place(found: Mapping[str, float]) -> bool:
    """Whether a program with these features asks which work-item it is; without, all of them do the same."""
    return any(f"call {name}" in found for name in ("get_global_id", "get_local_id", "get_group_id"))


def grewe_of(graph: ProgramGraph) -> dict[str, float]:
    """Grewe's static counts, as far as IR tells them.

    `localmem` needs address spaces (IR for spir64 has them, for x86 not). An access is `coalesced` when its
    index is a work-item id of dimension 0, perhaps with something added.

    These are not the columns that CGO17 publishes, which were counted another way: over its rows `comp`
    correlates by 0.89, `rational` by 0.61, `mem` by 0.29 and `coalesced` not at all. A model fitted to the
    one must not be fed the other.
    """
    texts, full = graph.texts(), graph.full_texts()
    tally = dict.fromkeys(GREWE, 0.0)
    coalesced = _indexed_by_id(graph, texts, full)
    for node, (kind, text) in enumerate(zip(graph.node_type.tolist(), texts, strict=True)):
        printed = full[node] or ""
        if kind != NodeType.INSTRUCTION:
            continue
        if text in GROUPS["integer"] or text in GROUPS["float"]:
            tally["comp"] += 1
        elif text in ("icmp", "fcmp"):
            tally["rational"] += 1
        elif text in ("load", "store"):
            local = "addrspace(3)" in printed
            tally["localmem" if local else "mem"] += 1
            tally["coalesced"] += not local and node in coalesced
        elif text in ("atomicrmw", "cmpxchg"):
            tally["atomic"] += 1
        elif text == "call" and not _MARKER.search(printed):
            family = family_of(printed)
            tally["atomic"] += family == "atomic"
            tally["comp"] += family in ("fused", "root", "power", "trigonometric", "extremum")
    return tally


def grewe_ratios(counts: Mapping[str, float], bytes_moved: int, work_group: int) -> NDArray[np.float64]:
    """(4,): the four combined features of Grewe et al.: transfer per operation, coalesced per access, local
    per access times work-items, operations per access; 0 where there is nothing to divide by."""
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


_KEEPS_STRIDE = frozenset(("add", "sub", "or", "trunc", "zext", "sext", "bitcast", "phi", "select"))


def _indexed_by_id(graph: ProgramGraph, texts: Sequence[str], full: Sequence[str | None]) -> set[int]:
    """Loads and stores whose address is an array's, indexed by an id of dimension 0 plus anything."""
    uses: dict[int, list[tuple[int, int]]] = defaultdict(list)
    data = graph.edge_flow == Flow.DATA
    source, target = graph.edges[:, data]
    for head, tail, position in zip(
        source.tolist(), target.tolist(), graph.edge_position[data].tolist(), strict=True
    ):
        uses[head].append((tail, position))
    pending = [
        node
        for node, (text, printed) in enumerate(zip(texts, full, strict=True))
        if text == "call" and re.search(r"get_(?:global|local)_id\w*\(\w+ (?:\w+ )*0\)", printed or "")
    ]
    seen, accesses = set(pending), set()
    while pending:
        for tail, position in uses[pending.pop()]:
            text = texts[tail]
            if graph.node_type[tail] == NodeType.INSTRUCTION:
                if text in ("load", "store"):
                    # A store's address is its second operand; what is stored may be an id without harm.
                    accesses |= {tail} if text == "load" or position == 1 else set()
                    continue
                if text not in _KEEPS_STRIDE and not (text == "getelementptr" and position > 0):
                    continue
            if tail not in seen:
                seen.add(tail)
                pending.append(tail)
    return accesses


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest())


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: near numbers become far ones."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
