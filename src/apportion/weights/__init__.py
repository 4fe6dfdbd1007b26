"""Every model that the package ships: a folder each, and `manifest.json`, which lists them all.

Users' models are kept the same way in the user's own folder, and are found by name beside them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from apportion.data.artifact import DESCRIPTION, Artifact, read_description
from apportion.errors import UnknownName
from apportion.settings import convert, home_folder, read_json, replace_file

WEIGHTS = Path(__file__).parent
"The folder of the shipped models."
MANIFEST = "manifest.json"
OWN = "models"
"The folder of the user's own, in `settings.home_folder`."


@dataclass(frozen=True)
class ScoreMeasure:
    """A measure that the lines of scores hold, and the trivial answer that they hold beside it."""

    own: str
    "Pattern with the value."
    trivial: str
    "Pattern with the trivial answer's name, and its value."
    less_is_better: bool


_USUAL, _CHANCE = "(always the fastest on average): ", "(by chance): "
MEASURES = (
    ScoreMeasure(r"\bMAE ([\d.]+)", r"(always 50 %|a constant): ([\d.]+)", less_is_better=True),
    ScoreMeasure(r"\bdevice ([\d.]+)", r"(one device): ([\d.]+)", less_is_better=False),
    ScoreMeasure(r"\bF1 ([\d.]+)", r"(yes to every node): ([\d.]+)", less_is_better=False),
    ScoreMeasure(r"fastest system named ([\d.]+)", rf"{_USUAL}([\d.]+)", less_is_better=False),
    ScoreMeasure(r"time lost ([\d.]+)x", rf"{_USUAL}[\d.]+, ([\d.]+)", less_is_better=True),
    ScoreMeasure(r"\bOPA ([\d.]+)", rf"{_CHANCE}([\d.]+)", less_is_better=False),
    ScoreMeasure(r"first choice (\d+)% slower", rf"{_CHANCE}[\d.]+, (\d+)", less_is_better=True),
)


@dataclass(frozen=True)
class ShippedModel:
    """One line of the manifest."""

    name: str
    question: str
    "What it answers: one of `apportion.learn.base.QUESTIONS`."
    predictor: str
    "Which entry of `apportion.learn.predictors` answers with it."
    made_by: str
    "The command that makes it again."
    data: str
    "Fingerprint of the data that it learned from."
    checksum: str
    "SHA-256 of its weights."
    licence: str
    size: int
    "Bytes of its weights."
    about: str = ""
    "Of what: a pair of devices, a data-flow analysis, a collection of programs."
    score: str = ""
    "How good it is, beside a trivial answer."
    folder: str = ""
    "Its folder, beside the manifest."

    @property
    def misses(self) -> list[str]:
        """Each measure of its score by which it is worse than the trivial answer beside it, in words."""
        own, _, trivial = self.score.rpartition(" (")
        found = []
        for measure in MEASURES:
            reached, without = re.search(measure.own, own), re.search(measure.trivial, trivial)
            if reached is None or without is None:
                continue
            ours, theirs = float(reached[1]), float(without[2])
            if ours > theirs if measure.less_is_better else ours < theirs:
                found.append(f"{reached[0]} is worse than {without[1]} ({without[2]})")
        return found

    def as_json(self) -> dict[str, Any]:
        """What `apportion models list --json` prints of it, but for whether it is a default."""
        return {**asdict(self), "misses": self.misses}


@dataclass(frozen=True)
class ModelManifest:
    """What is shipped, and which model answers where none is named."""

    models: tuple[ShippedModel, ...] = ()
    defaults: dict[str, str] = field(default_factory=dict)
    "`QUESTION`, or `QUESTION/ABOUT` → the name of the model that answers where none is named."

    def called(self, name: str) -> ShippedModel:
        """The model of this name.

        Raises:
            UnknownName: there is none.
        """
        for model in self.models:
            if model.name == name:
                return model
        raise UnknownName("model", name, [model.name for model in self.models])

    def answering(self, question: str, about: str | None = None) -> list[ShippedModel]:
        """The models that answer a question, the default ones first."""
        found = [m for m in self.models if m.question == question and about in (None, m.about)]
        return sorted(found, key=self._place)

    def _place(self, model: ShippedModel) -> tuple[bool, bool]:
        first = self.defaults.get(model.question) != model.name
        return first, self.defaults.get(f"{model.question}/{model.about}") != model.name


def own_folder() -> Path:
    """Where the user's own models are kept under their names; see `settings.home_folder`."""
    return home_folder(OWN)


def manifest(folder: Path | None = None) -> ModelManifest:
    """The manifest of a folder of models; by default the shipped ones, and after them the user's own.

    Raises:
        UnreadableFile, MalformedInput, InvalidSetting: there is none, or it is damaged.
    """
    if folder is not None:
        return _manifest(folder)
    try:
        changed = home_folder(OWN, MANIFEST).stat().st_mtime_ns
    except OSError:
        return _manifest(WEIGHTS)
    return _with_own(own_folder(), changed)


@cache
def _manifest(folder: Path) -> ModelManifest:
    path = folder / MANIFEST
    return convert(ModelManifest, read_json(path), source=str(path))


@lru_cache(maxsize=1)
def _with_own(folder: Path, changed: int) -> ModelManifest:
    shipped, path = _manifest(WEIGHTS), folder / MANIFEST
    own = convert(ModelManifest, read_json(path), source=str(path))
    return replace(
        shipped,
        models=(
            *shipped.models,
            *(replace(model, name=model.folder, folder=str(folder / model.folder)) for model in own.models),
        ),
    )


def folder_of(name: str) -> Path:
    """Where the model of this name lies, a shipped one or the user's own.

    Raises:
        UnknownName: there is none.
    """
    return WEIGHTS / manifest().called(name).folder


def write_manifest(
    folder: Path,
    questions: Mapping[str, str],
    *,
    defaults: Mapping[str, str] | None = None,
) -> ModelManifest:
    """List every artifact of a folder in its manifest; defaults that are not given stay as they are.

    Args:
        questions: entry of `apportion.learn.predictors` → the question that it answers.
    """
    kept = manifest(folder).defaults if (folder / MANIFEST).exists() else {}
    found = [
        _line(path.parent, read_description(path.parent), questions)
        for path in sorted(folder.glob(f"*/{DESCRIPTION}"))
    ]
    written = ModelManifest(tuple(found), {**kept, **(defaults or {})})
    replace_file(folder / MANIFEST, (json.dumps(asdict(written), indent=1) + "\n").encode())
    _manifest.cache_clear()
    return written


def _line(folder: Path, artifact: Artifact, questions: Mapping[str, str]) -> ShippedModel:
    if artifact.predictor not in questions:
        raise UnknownName("predictor", artifact.predictor, questions)
    made: Mapping[str, Any] = artifact.experiment
    return ShippedModel(
        name=artifact.name or folder.name,
        question=questions[artifact.predictor],
        predictor=artifact.predictor,
        made_by=str(made.get("experiment", made.get("command", ""))),
        data=str(made.get("data", made.get("data_fingerprint", made.get("fingerprint", "")))),
        checksum=artifact.checksum,
        licence=artifact.licence,
        size=(folder / artifact.weights).stat().st_size,
        about=str(made.get("about", artifact.task)),
        score=str(made.get("score", "")),
        folder=folder.name,
    )
