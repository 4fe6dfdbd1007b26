"""Data-flow analyses of a program graph: the labels that a model learns, and what a user asks of a program.

Each analysis starts at a root node and labels nodes; with them come two counts, `steps` (how far information
travels) and `active`. There are two modes:

    exact       the textbook analysis, at a cost linear or nearly so
    reference   ProGraML 0.3.2's, faults included: labels, counts and errors equal it, at the same low cost

`docs/howto/analyze.md` says what each analysis labels in each mode. The work is done in the native extension,
without the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from apportion import _native
from apportion.errors import AnalysisError, InvalidSetting, UnknownName
from apportion.program.graph import ProgramGraph

Mode = Literal["exact", "reference"]
Roots = Sequence[int] | NDArray[np.integer]

analyses = ("reachability", "dominance", "datadep", "liveness", "subexpressions")
modes: tuple[Mode, ...] = ("exact", "reference")
sampling_rules = ("paper", "reference")

UNCOUNTABLE: int = _native.UNCOUNTABLE
"""The `active` of a reference reachability run that pops its queue this often or more.

The reference itself would not come to an end on such a graph: at ten million pops a second, in 29,000 years.
"""

CHUNK_BYTES = 1 << 26
"What the label bits of one chunk of `packed_chunks` take at most, unless a single root takes more."


@dataclass(frozen=True, eq=False)
class AnalysisRun:
    """What an analysis found from one root."""

    root: int
    steps: int
    active: int
    labels: NDArray[np.bool_]  # (N,)
    error: str | None = None
    "Why the reference gives up on this root; the counts are then 0 and nothing is labelled."


@dataclass(frozen=True, eq=False)
class PackedRuns:
    """What an analysis found from R roots, labels as bits: node v is bit v % 8 of byte v // 8 of a row."""

    roots: NDArray[np.int32]  # (R,)
    steps: NDArray[np.int64]  # (R,)
    active: NDArray[np.int64]  # (R,)
    bits: NDArray[np.uint8]  # (R, ceil(N / 8))
    errors: tuple[str | None, ...]  # (R)
    nodes: int
    "N, which the rows alone do not say."

    def __len__(self) -> int:
        return len(self.roots)

    def labels(self, index: int) -> NDArray[np.bool_]:
        """(N,): the labels of the root at this place."""
        row = np.unpackbits(self.bits[index], count=self.nodes, bitorder="little")
        return row.astype(np.bool_)


def eligible_roots(graph: ProgramGraph, analysis: str, mode: Mode = "exact") -> NDArray[np.int32]:
    """The nodes that the analysis can start from, ascending; possibly none.

    Raises:
        UnknownName: no such analysis or mode.
        AnalysisError: the analysis of this graph as a whole comes to nothing.
    """
    return _native_analysis(graph, analysis, mode).eligible()


def run(graph: ProgramGraph, analysis: str, roots: int | Roots, mode: Mode = "exact") -> list[AnalysisRun]:
    """One run for each root, in their order.

    The labels take one byte per node and root: `packed_chunks` takes an eighth, a part at a time.

    Raises:
        UnknownName: no such analysis or mode.
        AnalysisError: a root is not eligible, or the analysis of this graph as a whole comes to nothing.
    """
    packed = run_packed(graph, analysis, roots, mode)
    return [
        AnalysisRun(int(root), int(steps), int(active), packed.labels(i), error)
        for i, (root, steps, active, error) in enumerate(
            zip(packed.roots, packed.steps, packed.active, packed.errors, strict=True)
        )
    ]


def run_packed(graph: ProgramGraph, analysis: str, roots: int | Roots, mode: Mode = "exact") -> PackedRuns:
    """As `run`, in arrays; all roots at once, so R·N/8 bytes."""
    native = _native_analysis(graph, analysis, mode)
    return _answered(native, graph, _checked(native, graph, analysis, mode, roots))


def packed_chunks(
    graph: ProgramGraph,
    analysis: str,
    roots: Roots | None = None,
    mode: Mode = "exact",
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[PackedRuns]:
    """As `run_packed`, a bounded part of the roots at a time; all eligible roots when none are given."""
    if chunk_bytes < 1:
        raise InvalidSetting(f"chunk_bytes must be at least 1, not {chunk_bytes}")
    native = _native_analysis(graph, analysis, mode)
    wanted = native.eligible() if roots is None else _checked(native, graph, analysis, mode, roots)
    size = max(1, chunk_bytes // max(1, -(-graph.nodes // 8)))
    for start in range(0, len(wanted), size):
        yield _answered(native, graph, wanted[start : start + size])


def sample_roots(
    graph: ProgramGraph,
    analysis: str,
    rule: Literal["paper", "reference"] = "paper",
    *,
    seed: int = 0,
    mode: Mode = "exact",
    count: int | None = None,
) -> NDArray[np.int32]:
    """Some eligible roots, drawn without replacement, ascending; all of them where the rule asks for more.

    Args:
        rule: how many: "paper" takes min(ceil(N / 10), 10), "reference" min(ceil(eligible / 10), 10).
        seed: the same seed draws the same roots (the reference draws by the clock).
        count: takes the place of the rule.

    Raises:
        AnalysisError: no root is eligible.
    """
    if rule not in sampling_rules:
        raise UnknownName("sampling rule", rule, sampling_rules)
    if count is not None and count < 1:
        raise InvalidSetting(f"The number of roots to draw must be at least 1, not {count}")
    eligible = eligible_roots(graph, analysis, mode)
    if len(eligible) == 0:
        raise no_eligible_root(graph, analysis)
    if count is None:
        count = min(-(-(graph.nodes if rule == "paper" else len(eligible)) // 10), 10)
    drawn = np.random.default_rng(seed).choice(eligible, min(count, len(eligible)), replace=False)
    return np.sort(drawn)


def no_eligible_root(graph: ProgramGraph, analysis: str) -> AnalysisError:
    """The error for a graph that has nothing to start from, with the reason."""
    reason = _NONE[analysis] if graph.nodes else "the graph is empty"
    return AnalysisError(f"No eligible root nodes for {analysis}: {reason}.")


_NONE = {
    "reachability": "it has no instruction but the root of the module",
    "dominance": "it has no instruction but the root of the module",
    "datadep": "it has no variable",
    "liveness": "nothing is live after any of its instructions",
    "subexpressions": "no two of its instructions compute the same",
}
"Why a graph has no eligible root."

_NOT = {
    "reachability": "roots are instructions of a function",
    "dominance": "roots are instructions of a function",
    "datadep": "roots are variables",
    "liveness": "nothing is live after it",
    "subexpressions": "no other instruction computes the same",
}
"Why a node is no eligible root."


def _native_analysis(graph: ProgramGraph, analysis: str, mode: str) -> _native.Analysis:
    if analysis not in analyses:
        raise UnknownName("analysis", analysis, analyses)
    if mode not in modes:
        raise UnknownName("mode", mode, modes)
    try:
        native = _native.Analysis(
            np.ascontiguousarray(graph.node_type),
            np.ascontiguousarray(graph.node_text),
            np.ascontiguousarray(graph.node_full_text),
            np.ascontiguousarray(graph.node_function),
            np.ascontiguousarray(graph.edge_flow),
            np.ascontiguousarray(graph.edge_position),
            np.ascontiguousarray(graph.edges),
            np.ascontiguousarray(graph.strings.data),
            np.ascontiguousarray(graph.strings.offsets),
            analysis,
            mode,
        )
    except (MemoryError, ValueError) as error:
        raise _too_large(graph, error) from error
    if native.init_error:
        raise AnalysisError(native.init_error)
    return native


def _too_large(graph: ProgramGraph, error: Exception) -> AnalysisError:
    reason = str(error) or "there is not enough memory"
    return AnalysisError(
        f"The graph is too large ({graph.nodes:,} nodes): {reason}. "
        "Analyze one function of it, or fewer roots."
    )


def _checked(
    native: _native.Analysis, graph: ProgramGraph, analysis: str, mode: str, roots: int | Roots
) -> NDArray[np.int32]:
    given = np.atleast_1d(np.asarray(roots))
    if given.size == 0:
        return np.empty(0, np.int32)
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
        raise InvalidSetting(f"Roots are node numbers, not {given.dtype} of shape {given.shape}")
    eligible = native.eligible()
    refused = given[~np.isin(given, eligible)]
    if refused.size:
        if len(eligible) == 0:
            raise no_eligible_root(graph, analysis)
        node = int(refused[0])
        if not 0 <= node < graph.nodes:
            why = f"There is no node {node}: the graph has nodes 0 to {graph.nodes - 1}"
        else:
            reason = _NOT[analysis]
            if (analysis, mode) == ("liveness", "reference"):
                reason += ", or it cannot reach an exit of its function, which the reference leaves out"
            why = f"Node {node} ({graph.text(node)}) is no eligible root for {analysis}: {reason}"
        raise AnalysisError(f"{why}. {_some(eligible)}")
    return np.ascontiguousarray(given, np.int32)


def _some(eligible: NDArray[np.int32]) -> str:
    shown = ", ".join(str(node) for node in eligible[:8].tolist())
    if len(eligible) > 8:
        return f"Eligible are {shown} and {len(eligible) - 8:,} more."
    return f"Eligible: {shown}."


def _answered(native: _native.Analysis, graph: ProgramGraph, roots: NDArray[np.int32]) -> PackedRuns:
    try:
        steps, active, failed, bits = native.run(roots)
    except (MemoryError, ValueError) as error:
        raise _too_large(graph, error) from error
    failure = native.failure
    errors = tuple(failure if flag else None for flag in failed.tolist())
    steps[failed != 0] = 0
    return PackedRuns(roots, steps, active, bits, errors, graph.nodes)
