"""Training as a job: an experiment and its files, or what was measured here, become a model that is kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import chdir
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from apportion.data.artifact import DESCRIPTION
from apportion.errors import InvalidSetting
from apportion.learn.base import list_again
from apportion.learn.learner import learner_of
from apportion.measure.campaign import TABLE
from apportion.serve.forms import SourceForm, TrainForm, write_files
from apportion.settings import read_toml, texts_in

_PART = re.compile(r"([\d,]+) of ([\d,]+)")
_STEP = re.compile(r"\bstep ([\d,]+)")
_VALUE = re.compile(r"([A-Za-z][\w -]*?)\s+(-?\d+\.\d+(?:e-?\d+)?)(?![\d:])")
Report = Callable[[Any], None]


def train(form: TrainForm, measured: Sequence[Mapping[str, Any]], folder: Path, report: Report) -> Any:
    """Train, and keep the model in a folder of its own; its scores, and what it is called.

    Args:
        measured: requests and answers of measuring jobs, where the form names some.
        folder: of the models that were trained here.
    """
    with TemporaryDirectory(prefix="train-") as place, chdir(place):
        write_files(form.files, Path())
        if measured:
            _write_measured(measured, Path("measured"))
        text = form.experiment or _experiment_on(measured, form.name)
        Path("experiment.toml").write_text(text, encoding="utf-8")
        _check_paths(texts_in(read_toml(Path("experiment.toml"))))
        learner = learner_of(Path("experiment.toml"))
        report({"stage": "reading the data", "part": 0.0})
        kept = _free(folder, form.name)
        result = learner.train(kept, progress=_EventLines(report))
    return {"model": kept.name, "learner": type(learner).__name__, "question": learner.question, **result}


def trained(folder: Path) -> list[dict[str, Any]]:
    """The models that were trained here, as `apportion models list --json` describes models."""
    if not any(folder.glob(f"*/{DESCRIPTION}")):
        return []
    return [{**one.as_json(), "name": one.folder, "default": False} for one in list_again(folder).models]


def event_of(line: str) -> dict[str, Any]:
    """A line of a learner's progress: `N of M` is how far it is, and `NAME 0.5` a point of a curve."""
    event: dict[str, Any] = {"stage": line}
    if part := _PART.search(line):
        event["done"], event["total"] = (int(number.replace(",", "")) for number in part.groups())
    if step := _STEP.search(line):
        event["at"] = int(step[1].replace(",", ""))
    elif part:
        event["at"] = event["done"]
    values = {name.strip(): float(number) for name, number in _VALUE.findall(line)}
    return event | ({"values": values} if values and "at" in event else {})


class _EventLines(StringIO):
    """A stream whose lines become events."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.strip():
                self._report(event_of(line.partition(": ")[2] or line))
        return len(text)


def _write_measured(measured: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Points as the table of a campaign, and the sources beside it."""
    (folder / "sources").mkdir(parents=True)
    rows = [
        {name: value for name, value in point.items() if name != "work"}
        for job in measured
        for point in job["answer"]["points"]
    ]
    pl.DataFrame(rows, infer_schema_length=None).write_parquet(folder / TABLE)
    sources = [SourceForm(**source) for job in measured for source in job["request"]["sources"]]
    for number, source in enumerate(sources):
        (folder / "sources" / f"{number:03d}.cl").write_text(source.text, encoding="utf-8")


def _experiment_on(measured: Sequence[Mapping[str, Any]], name: str) -> str:
    """The usual experiment on what was measured here: which share the first of two devices should take."""
    devices = sorted({p["device"] for job in measured for p in job["answer"]["points"] if p["seconds"]})
    if len(devices) < 2:
        raise InvalidSetting(
            f"Only {', '.join(devices) or 'no device'} was measured there: shares are learned from launches "
            "that two devices ran"
        )
    values = {
        "pair": name or "this-machine", "measurements": "measured", "sources": "measured/sources",
        "cpu": devices[0], "gpu": devices[1],
    }  # fmt: skip
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(['learner = "share-forest"', "[data]", *lines, ""])


def _check_paths(values: Iterable[str]) -> None:
    for value in values:
        if value.startswith(("/", "~")) or ".." in Path(value).parts:
            raise InvalidSetting(
                f"The service reads no files of its machine, such as {value[:60]!r}. Send the file, and "
                "write its name"
            )


def _free(folder: Path, name: str) -> Path:
    """A folder for a model that is not there yet."""
    usual = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "model"
    number = 1
    while (found := folder / (usual if number == 1 else f"{usual}-{number}")).exists():
        number += 1
    return found
