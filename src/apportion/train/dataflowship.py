"""The data-flow networks that the package ships: of each analysis the run that did best on validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from apportion.data.artifact import read_artifact, write_artifact
from apportion.errors import InvalidSetting
from apportion.train.dataflowtable import FinishedRun


def ship(ended: Sequence[FinishedRun], runs: Path, out: Path) -> dict[str, FinishedRun]:
    """Write the best run of each analysis into a folder of `out`, and say which they are.

    Test scores choose nothing: they are written beside the weights, for whoever asks how good they are.

    Args:
        ended: finished runs; those of rows that do not ship are passed over.
        runs: where they have their folders.
        out: the folder of the package's networks.

    Raises:
        InvalidSetting: there is nothing to ship.
    """
    best: dict[str, FinishedRun] = {}
    for one in ended:
        task = str(one.result["task"])
        if one.run.row.ships and (
            task not in best or one.result["validation"] > best[task].result["validation"]
        ):
            best[task] = one
    if not best:
        raise InvalidSetting(f"{runs} holds no finished run of a row that ships")
    for task, one in best.items():
        artifact, weights = read_artifact(runs / one.run.folder_name)
        about = {
            **artifact.experiment,
            "labels": one.run.row.labels,
            **{name: one.result[name] for name in ("updates", "validation", "test", "hardware", "date")},
        }
        write_artifact(out / f"dataflow-{task}", replace(artifact, experiment=about), weights)
    return best
