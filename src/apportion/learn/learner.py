"""Learner: makes an artifact of a dataset. `apportion train FILE.toml` runs the one that the file names.

A run leaves a folder: the artifact, `experiment.json` with its settings and the fingerprint of its data, and
`evaluation.json` with its scores, beside what a trivial answer scores.
"""

from __future__ import annotations

import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TextIO, TypeVar

from apportion import __version__
from apportion.data.artifact import read_bytes
from apportion.errors import InvalidSetting
from apportion.jobs.holding import held
from apportion.learn import learners
from apportion.learn.experiment import read_settings
from apportion.learn.experiment_run import RESULT, SETTINGS
from apportion.report.hardware import hardware
from apportion.settings import convert, replace_file

S = TypeVar("S")
D = TypeVar("D")
LEARNER = "learner"
"The key of an experiment file that names its learner."
_OF_TASK = {
    **dict.fromkeys(("reachability", "dominance", "datadep", "liveness", "subexpressions"), "data-flow"),
    **dict.fromkeys(("load-balance", "device-mapping"), "share-forest"),
}
"The learner of a file that names a task and no learner."


class Learner(ABC, Generic[S]):
    """Something that can be trained; `S` is a frozen dataclass of its settings, read from the TOML file."""

    question: ClassVar[str]
    "One of `base.QUESTIONS`."
    settings_type: ClassVar[type[Any]]
    "S."

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @classmethod
    def create(cls, values: Mapping[str, Any], *, source: str = "the settings") -> Self:
        """A learner with these settings.

        Raises:
            InvalidSetting: a setting is unknown, missing or impossible.
        """
        return cls(convert(cls.settings_type, dict(values), source=source))

    @abstractmethod
    def train(self, folder: Path, *, resume: bool = False, progress: TextIO = sys.stderr) -> dict[str, Any]:
        """Learn, evaluate, and leave everything in `folder`; what is in evaluation.json comes back.

        Args:
            resume: go on where an interrupted run of the same settings stood; a finished one is only read.

        Raises:
            InvalidSetting: the folder holds a run already, or one of other settings.
            AlreadyWritten: another process writes to it, or it holds files of something else.
        """


class TableLearner(Learner[S], Generic[S, D]):
    """A learner that holds its data in memory and is done in one go."""

    @abstractmethod
    def data(self, say: Callable[[str], None]) -> tuple[D, str]:
        """What is learned from, and its fingerprint."""

    @abstractmethod
    def fit(self, data: D, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
        """Write the artifact to `folder`; its scores come back, with those of a trivial answer."""

    def train(self, folder: Path, *, resume: bool = False, progress: TextIO = sys.stderr) -> dict[str, Any]:
        def say(text: str) -> None:
            print(f"{folder.name}: {text}", file=progress, flush=True)

        settings = json.loads(json.dumps(asdict(self.settings), default=str))  # type: ignore[call-overload]
        path = folder / SETTINGS
        if path.exists():
            if not resume:
                raise InvalidSetting(f"{folder} holds a run already. Add --resume, or choose another --out.")
            if json.loads(read_bytes(path))["settings"] != settings:
                raise InvalidSetting(
                    f"The run in {folder} has other settings than this experiment. Choose another --out."
                )
            if (folder / RESULT).exists():
                say("finished; nothing to do")
                return dict(json.loads(read_bytes(folder / RESULT)))
        started = time.monotonic()
        data, fingerprint = self.data(say)
        with held(folder, (SETTINGS,)):
            return self._train(folder, settings, data, fingerprint, say, started)

    def _train(
        self, folder: Path, settings: dict[str, Any], data: D, fingerprint: str, say: Callable[[str], None],
        started: float,
    ) -> dict[str, Any]:  # fmt: skip
        described = {"settings": settings, "data_fingerprint": fingerprint, "version": __version__}
        replace_file(folder / SETTINGS, json.dumps(described, indent=1).encode())
        scores = self.fit(data, folder, say)
        result = {
            **scores,
            "data_fingerprint": fingerprint,
            "date": datetime.now(UTC).date().isoformat(),
            "hardware": hardware("cpu"),
            "seconds": round(time.monotonic() - started, 1),
        }
        replace_file(folder / RESULT, json.dumps(result, indent=1).encode())
        return result


def learner_of(path: Path, settings: Iterable[str] = ()) -> Learner[Any]:
    """The learner of an experiment file, with `key=value` settings laid over the file's.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it is not TOML.
        UnknownName: it names a learner that there is not.
        InvalidSetting: it names none, or a setting is unknown, missing or impossible.
        MissingPackage: the learner needs a package that is not installed.
    """
    values = read_settings(path, settings)
    named = values.pop(LEARNER, None)
    usual = _OF_TASK.get(str(values.get("task"))) if named is None else None
    named = named or usual
    if named is None:
        raise InvalidSetting(
            f"{path} names no learner. Add a line such as learner = {learners.names()[0]!r}; there are: "
            f"{', '.join(learners.names())}"
        )
    kind: type[Learner[Any]] = learners.load(str(named))
    if usual is not None and "task" not in {field.name for field in fields(kind.settings_type)}:
        del values["task"]  # it has done its work: it chose the learner
    return kind.create(values, source=str(path))
