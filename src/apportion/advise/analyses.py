"""Data-flow analyses of a program graph as the command line and the service ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting
from apportion.program.analysis import (
    Mode,
    eligible_roots,
    no_eligible_root,
    packed_chunks,
    sample_roots,
)
from apportion.program.graph import ProgramGraph

MOST_LABELS = 1 << 32
"Roots times nodes that one command answers at most: the text of more would not fit on most disks."
_MOST_LABELS_AT_ONCE = 1 << 24
"The same where the whole answer is held in memory."

Row = tuple[int, int, int, list[int], str | None]
"Root, steps, active, labelled nodes, error."


def chosen_roots(
    graph: ProgramGraph,
    analysis: str,
    eligible: NDArray[np.int32],
    *,
    root: int | None = None,
    roots: str | None = None,
    seed: int = 0,
    mode: Mode = "exact",
    most_labels: int = MOST_LABELS,
) -> NDArray[np.int64]:
    """The roots asked for; whether they are eligible is the analysis' to say.

    Args:
        root: one node.
        roots: several: `all`, `sample:N`, or numbers such as `3,17,20`; by default a sample.
        most_labels: roots times nodes that are allowed.

    Raises:
        InvalidSetting: both are given, or what is given names no roots, or too many.
    """
    if seed < 0:
        raise InvalidSetting(f"--seed must be 0 or more, not {seed}")
    if root is not None and roots is not None:
        raise InvalidSetting("Give --root or --roots, not both")
    if root is not None:
        return np.array([root], np.int64)
    if roots == "all":
        if len(eligible) * graph.nodes > most_labels:
            raise InvalidSetting(
                f"All {len(eligible):,} roots over {graph.nodes:,} nodes may give "
                f"{len(eligible) * graph.nodes / 1e9:,.0f} billion labels. Take fewer: --roots sample:10"
            )
        return eligible.astype(np.int64)
    if roots is None:
        return sample_roots(graph, analysis, seed=seed, mode=mode).astype(np.int64)
    word, _, count = roots.partition(":")
    try:
        if word == "sample":
            return sample_roots(graph, analysis, seed=seed, mode=mode, count=int(count)).astype(np.int64)
        return np.array([int(number) for number in roots.split(",")], np.int64)
    except (ValueError, OverflowError) as error:
        if isinstance(error, InvalidSetting):
            raise
        raise InvalidSetting(
            f"--roots must be 'all', 'sample:N' or numbers such as '3,17,20', not {roots!r}"
        ) from error


def rows_of(graph: ProgramGraph, analysis: str, roots: NDArray[np.int64], mode: Mode) -> Iterator[Row]:
    """The runs from these roots, with bounded memory."""
    for chunk in packed_chunks(graph, analysis, roots, mode):
        for i, error in enumerate(chunk.errors):
            labelled = np.flatnonzero(chunk.labels(i)).tolist()
            yield int(chunk.roots[i]), int(chunk.steps[i]), int(chunk.active[i]), labelled, error


def row_as_json(row: Row) -> list[Any]:
    """[root, steps, active, [labelled nodes]], or [root, error]."""
    root, steps, active, labelled, error = row
    return [root, error] if error is not None else [root, steps, active, labelled]


def analysis_as_json(
    graph: ProgramGraph,
    analysis: str,
    *,
    root: int | None = None,
    roots: str | None = None,
    seed: int = 0,
    mode: Mode = "exact",
) -> dict[str, Any]:
    """What `apportion analyze --json` prints, held in memory.

    Raises:
        AnalysisError: this graph does not allow the analysis, or has no root for it.
        InvalidSetting: what is given names no roots, or too many.
    """
    eligible = eligible_roots(graph, analysis, mode)
    if len(eligible) == 0:
        raise no_eligible_root(graph, analysis)
    chosen = chosen_roots(
        graph, analysis, eligible, root=root, roots=roots, seed=seed, mode=mode,
        most_labels=_MOST_LABELS_AT_ONCE,
    )  # fmt: skip
    if len(chosen) * graph.nodes > _MOST_LABELS_AT_ONCE:
        raise InvalidSetting(
            f"{len(chosen):,} roots over {graph.nodes:,} nodes are too many. Take fewer roots"
        )
    runs = [row_as_json(row) for row in rows_of(graph, analysis, chosen, mode)]
    return {"analysis": analysis, "eligible": eligible.tolist(), "runs": runs}
