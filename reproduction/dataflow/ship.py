"""The data-flow networks that the package ships: of each analysis the one that did best on validation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from apportion.data.artifact import DESCRIPTION, read_artifact, read_bytes, read_description, write_artifact
from apportion.data.store import DataflowStore
from apportion.errors import InvalidSetting
from apportion.settings import replace_file
from reproduction.dataflow.score import StoredNetwork
from reproduction.dataflow.table import FinishedRun, Labels


@dataclass(frozen=True)
class Choice:
    """Which network of an analysis ships: the best run's, or the one that was there."""

    best: FinishedRun
    score: float
    "Its validation F1."
    former: float | None = None
    "That of the one that was there, on the same graphs."
    apart: bool = False
    "Whether these were only graphs that the one that was there cannot have seen."

    @property
    def kept(self) -> bool:
        """Whether the one that was there stays: it did no worse."""
        return self.former is not None and self.former >= self.score

    def __str__(self) -> str:
        run, where = self.best.run.folder_name, " on graphs new to both" if self.apart else ""
        if self.former is None:
            return f"{run}, validation F1 {self.score:.4f}; there was none"
        if self.kept:
            return f"kept, validation F1 {self.former:.4f}{where}; the best run has {self.score:.4f} ({run})"
        return f"{run}, validation F1 {self.score:.4f}{where}; the one before has {self.former:.4f}"


def ship(
    ended: Sequence[FinishedRun], runs: Path, out: Path, stores: Mapping[Labels, Path]
) -> dict[str, Choice]:
    """Write the best run of each analysis into a folder of `out`, unless a better network is there already.

    Better is by F1 on the validation part of the store that the run was trained on. A network of another
    store may have learnt from some of it: where it seems no worse, graphs that it cannot have seen decide.
    Test scores choose nothing: they are written beside the weights, for whoever asks how good they are.

    Args:
        ended: finished runs; those of rows that do not ship are passed over.
        runs: where they have their folders.
        out: the folder of the package's networks.
        stores: where the runs' stores are; a network that is there already is validated on them.

    Raises:
        InvalidSetting: there is nothing to ship, or no store to compare on.
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
    choices: dict[str, Choice] = {}
    for task, one in best.items():
        folder = out / f"dataflow-{task}"
        choice = Choice(one, float(one.result["validation"]))
        if (folder / DESCRIPTION).exists():
            there = _network(folder, one, stores)
            choice = replace(choice, former=there.validation())
            if choice.kept and there.strange:
                mine = _network(runs / one.run.folder_name, one, stores)
                choice = Choice(
                    one, mine.validation_new_to(there), there.validation_new_to(there), apart=True
                )
        choices[task] = choice
    # Nothing is written before all are compared: a store that is missing leaves all as it was.
    for task, choice in choices.items():
        if choice.kept:
            continue
        one = choice.best
        artifact, weights = read_artifact(runs / one.run.folder_name)
        about = {
            **artifact.experiment,
            "labels": one.run.row.labels,
            "score": score_in_words(one.run.row.labels, one.result["test"]),
            "sources": _sources(one, stores),
            **{name: one.result[name] for name in ("updates", "validation", "test", "hardware", "date")},
        }
        write_artifact(out / f"dataflow-{task}", replace(artifact, experiment=about), weights)
    return choices


def score_in_words(labels: str, test: Mapping[str, Any]) -> str:
    """How good a network is, beside saying yes to every node; its counts: found, wrong, missed, none."""
    found, _, missed, _ = test["counts"]
    always = 2 * (found + missed) / (found + missed + sum(test["counts"]))
    return f"F1 {test['f1']['value']:.3f} on {labels} labels (yes to every node: {always:.3f})"


def score_shipped(
    choices: Mapping[str, Choice],
    ended: Sequence[FinishedRun],
    runs: Path,
    out: Path,
    stores: Mapping[Labels, Path],
) -> None:
    """Test what ships, and note the scores in `runs`, where `shipped_scores` finds them.

    A network of one of the runs was tested; another one is now, on the examples that those were tested on.
    """
    for task, choice in choices.items():
        folder = out / f"dataflow-{task}"
        artifact = read_description(folder)
        about = artifact.experiment
        place = _place(runs, task)
        if place.exists() and json.loads(read_bytes(place))["checksum"] == artifact.checksum:
            continue
        mine = [one for one in ended if _checksum(runs, one) == artifact.checksum]
        if mine:
            scores = {**mine[0].result, "unseen": mine[0].result["test"], "name": mine[0].run.row.name}
        else:
            there = _network(folder, choice.best, stores)
            scores = {
                "updates": about.get("updates"),
                **there.scores(),
                "validation": there.validation(),
                "name": choice.best.run.row.name,
            }
        described = {
            "checksum": artifact.checksum,
            "labels": about["labels"],
            "goal": choice.best.run.row.goal,
            "learnt_from": about["data_fingerprint"],
            "settings": about["settings"],
            **scores,
        }
        replace_file(place, json.dumps(described, indent=1).encode())


def shipped_scores(runs: Path) -> list[dict[str, Any]]:
    """What `score_shipped` noted of each analysis, in the order of their names."""
    return [json.loads(read_bytes(place)) for place in sorted(runs.glob("shipped-*.json"))]


def _sources(one: FinishedRun, stores: Mapping[Labels, Path]) -> list[str] | None:
    """The corpora that its store has; None where the store is not at hand."""
    if one.run.row.labels not in stores:
        return None
    return list(DataflowStore.open(stores[one.run.row.labels]).source_names)


def _place(runs: Path, task: str) -> Path:
    return runs / f"shipped-{task}.json"


def _checksum(runs: Path, one: FinishedRun) -> str:
    return read_description(runs / one.run.folder_name).checksum


def _network(folder: Path, rival: FinishedRun, stores: Mapping[Labels, Path]) -> StoredNetwork:
    """The network in a folder, to be asked what a run was asked."""
    labels, wanted = rival.run.row.labels, str(rival.settings["data_fingerprint"])
    if labels not in stores:
        option = {"reference": "--store", "exact": "--exact-store"}[labels]
        raise InvalidSetting(
            f"{folder} holds a network, and {rival.run.folder_name} replaces it only if it is better. "
            f"Name the dataset with {labels} labels to compare them on, with {option}."
        )
    store = DataflowStore.open(stores[labels])
    if store.fingerprint != wanted:
        raise InvalidSetting(
            f"{rival.run.folder_name} was trained on the dataset {wanted}, and {stores[labels]} is "
            f"{store.fingerprint}: networks can be compared on the same one only."
        )
    return StoredNetwork(folder, store, rival.settings["settings"])
