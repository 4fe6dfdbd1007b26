"""Predictor: an artifact that answers one question, with an interval and with how familiar the case is.

Forests, networks, timing models, models of relative performance, rankers and learned analyses are all
predictors. `open_predictor` gives the one that a shipped model, or a folder, holds:

    predictor = open_predictor("xeon-h200")
    (answer,) = predictor.answer([launch], confidence=0.9)
    answer.value, answer.low, answer.high, answer.familiarity
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from apportion import weights
from apportion.data.artifact import DESCRIPTION, read_description
from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.learn import predictors

Q = TypeVar("Q")
V = TypeVar("V")
QUESTIONS: Mapping[str, str] = {
    "shares": "Which part of a kernel's work should the CPU take?",
    "times": "How long will a launch take on each device?",
    "relative-performance": "How fast will a run be on each system, beside the others?",
    "ranking": "Which of these configurations run fastest?",
    "data-flow": "Which nodes of a program does a data-flow analysis label?",
}
"Every question that a predictor may answer."


@dataclass(frozen=True, eq=False)
class Answer(Generic[V]):
    """What a predictor says of one query."""

    value: V
    low: V
    "The lower end of the interval that holds the truth with probability `confidence`."
    high: V
    confidence: float
    familiarity: float
    "From 1, for what was learned from, to 0, for what is unlike all of it."


class Predictor(ABC, Generic[Q, V]):
    """Something that answers one question; it needs neither torch nor scikit-learn to do so."""

    question: ClassVar[str]
    "One of `QUESTIONS`."

    @abstractmethod
    def answer(self, queries: Sequence[Q], *, confidence: float = 0.9) -> Sequence[Answer[V]]:
        """The answer to each query, in their order.

        Raises:
            InvalidSetting: a query lacks something, or `confidence` does not lie between 0 and 1.
        """

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Self:
        """The predictor whose artifact a folder holds.

        Raises:
            UnreadableFile, MalformedInput: there is none, or it is not whole.
        """


def check_confidence(confidence: float) -> float:
    """A confidence that lies between 0 and 1.

    Raises:
        InvalidSetting: it does not.
    """
    if not 0 < confidence < 1:
        raise InvalidSetting(f"confidence must lie between 0 and 1, not {confidence}")
    return confidence


def shipped_models() -> list[dict[str, Any]]:
    """What `apportion models list --json` prints: the shipped models in the order of `QUESTIONS`."""
    manifest = weights.manifest()
    chosen = set(manifest.defaults.values())
    return [
        {**one.as_json(), "default": one.name in chosen}
        for question in QUESTIONS
        for one in manifest.models
        if one.question == question
    ]


def model_folder(model: str | Path) -> Path:
    """The folder of a model: of a shipped one by its name, else a folder with an artifact in it.

    Raises:
        UnknownName: no model is shipped under this name, and no such folder has an artifact.
    """
    shipped = weights.manifest()
    if str(model) in {one.name for one in shipped.models}:
        return weights.folder_of(str(model))
    if (Path(model) / DESCRIPTION).is_file():
        return Path(model)
    if Path(model).is_dir():
        raise MalformedInput(f"is a folder without {DESCRIPTION}: it holds no model", file=str(model))
    raise UnknownName("model, or folder of one,", str(model), [one.name for one in shipped.models])


def open_predictor(model: str | Path, question: str | None = None) -> Predictor[Any, Any]:
    """The predictor that a shipped model, or the artifact in a folder, is.

    Args:
        model: the name of a shipped model, or a folder.
        question: the one that it must answer.

    Raises:
        UnknownName: there is no such model, or nothing here answers with it.
        InvalidSetting: it answers another question.
        UnreadableFile, MalformedInput: it is not whole.
        MissingPackage: it needs a package that is not installed.
    """
    folder = model_folder(model)
    kind = predictors.load(read_description(folder).predictor)
    if question is not None and kind.question != question:
        there = ", ".join(one.name for one in weights.manifest().answering(question))
        raise InvalidSetting(
            f"The model {str(model)!r} answers: {QUESTIONS.get(kind.question, kind.question)} This needs one "
            f"that answers: {QUESTIONS[question]} Those shipped are {there}."
        )
    opened: Predictor[Any, Any] = kind.load(folder)
    return opened


def predictor_questions() -> dict[str, str]:
    """Entry of `predictors` → the question that it answers; all of them are loaded."""
    return {name: predictors.load(name).question for name in predictors}


def list_again(folder: Path, defaults: Mapping[str, str] | None = None) -> weights.ModelManifest:
    """Write the manifest of a folder of models anew, after one was added or made again."""
    return weights.write_manifest(folder, predictor_questions(), defaults=defaults)
