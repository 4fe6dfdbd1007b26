"""Experiment: everything that a training run is made from, read from one TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from apportion.errors import InvalidSetting, UnknownName
from apportion.learn import models, tasks
from apportion.learn.model import Optimisation
from apportion.settings import convert, read_toml


@dataclass(frozen=True)
class Experiment:
    """One run: a task, a model, data, and how the one is fitted to the other."""

    task: str
    data: Path
    "The folder of a data-flow store."
    model: str = "programl"
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    node_budget: int = 60_000
    "The most nodes of a training batch."
    steps_limit: int = 30
    "Analyses that took more steps are not trained on; T messages carry no further than T edges."
    nodes_limit: int = 40_000
    "Larger graphs are skipped, as in the paper."
    training_nodes_limit: int = 0
    "Larger graphs are not trained on, but validated and tested on; 0 for no other limit than nodes_limit."
    test_steps_limit: int = 200
    "Analyses up to this many steps are tested on, to see how far beyond its training the model carries."
    training_examples: int = 0
    "At most this many, drawn by the seed; 0 for all."
    training_sources: tuple[str, ...] = ()
    "Corpora that are trained on and validated with; the test is on all, and tells the others apart."
    validation_examples: int = 2_000
    test_examples: int = 0
    start: Path | None = None
    """The folder of a run on the same data whose network is trained on; None for new weights. Its test files
    are this run's too, so that nothing is tested on what was learnt from."""
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    optimisation: Optimisation = field(default_factory=Optimisation)

    def __post_init__(self) -> None:
        for kind, registry, name in (("task", tasks, self.task), ("model", models, self.model)):
            if name not in registry:
                raise UnknownName(kind, name, registry.names())
        for name in ("node_budget", "steps_limit", "nodes_limit", "test_steps_limit"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in (
            "training_nodes_limit",
            "training_examples",
            "validation_examples",
            "test_examples",
            "seed",
        ):
            if getattr(self, name) < 0:
                raise InvalidSetting(f"{name} must not be negative, not {getattr(self, name)}")


def load_experiment(path: Path, settings: Iterable[str] = ()) -> Experiment:
    """The experiment in a TOML file, with `key=value` settings laid over it; dots reach into tables.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it is not TOML.
        InvalidSetting: a key is unknown, missing, or has an impossible value.
    """
    return convert(Experiment, read_settings(path, settings), source=str(path))


def read_settings(path: Path, settings: Iterable[str] = ()) -> dict[str, Any]:
    """The tables of a TOML file, with `key=value` settings laid over them; dots reach into tables.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it is not TOML.
        InvalidSetting: a setting is not written key=value, or reaches into what is no table.
    """
    values: dict[str, Any] = dict(read_toml(path))
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise InvalidSetting(f"A setting is written key=value, not {setting!r}")
        *tables, last = key.strip().split(".")
        place = values
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise InvalidSetting(f"{table!r} in {key!r} is a value, not a table of settings")
        place[last] = _value(text)
    return values


def _value(text: str) -> Any:
    """A TOML value, or the text itself where it is none: `task=liveness` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
