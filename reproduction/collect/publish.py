"""What was measured, as TpuGraphs publishes it: each graph's features made from its JAX function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from apportion.errors import UnknownName
from apportion.learn.ranking.recorded_runs import Ceiling, GraphRuns, ceiling, collected
from apportion.program.hlo.jax import hlo_of, spec_of
from apportion.program.hlo.module import graph_of_hlo
from reproduction.collect.jax_functions import functions

TILE_FOLDER = Path("tile/xla/train")


@dataclass(frozen=True)
class Published:
    """One graph of a collection, and how far its measurements can be trusted."""

    name: str
    configurations: int
    failed: int
    rounds: int
    default_slowdown: float
    "Of the heuristic's configuration over the best; NaN when it failed."
    spread: float
    "The slowest over the fastest."
    ceiling: Ceiling


def publish(folder: Path) -> Iterator[Published]:
    """Write every graph of a folder that is not written yet, and say what each is like.

    Raises:
        MissingPackage: JAX is not installed.
        UnknownName: no function is known for a graph.
        UnreadableFile: nothing was collected in the folder.
    """
    measured = collected(folder)
    known = functions()
    for runs in measured:
        path = folder / TILE_FOLDER / f"{runs.name}.npz"
        if runs.tile_features.size and not path.exists():  # layouts are published when they are measured
            if runs.family not in known:
                raise UnknownName("function", runs.family, known)
            specs = [spec_of(text) for text in runs.operands]
            runs.write_tile(path, graph_of_hlo(hlo_of(known[runs.family], specs), name=runs.name))
        yield described(runs)


def described(runs: GraphRuns) -> Published:
    """A graph's numbers."""
    runtime = runs.runtime
    best = float(runtime.min())
    lost = float(runtime[runs.default]) / best - 1 if runs.default >= 0 else float("nan")
    return Published(
        runs.name, runs.configurations, len(runs.failed_reasons), runs.repeats.shape[1], lost,
        float(runtime.max()) / best, ceiling(runs.repeats),
    )  # fmt: skip
