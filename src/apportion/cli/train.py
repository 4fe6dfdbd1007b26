"""`apportion train`: make models from experiment files, one folder each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from apportion import weights
from apportion.cli.show import note, print_json, print_table
from apportion.errors import InvalidSetting
from apportion.learn.base import list_again
from apportion.learn.learner import learner_of
from apportion.report.numbers import with_interval


def train(
    *experiments: Path,
    set: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    out: Path | None = None,
    name: str | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Train and evaluate the models of some experiments, one after the other.

    A file names its learner, such as `learner = "pooled-forests"`; one that names only a task gets that
    task's usual learner. The folder that a run leaves is what --model takes on the verbs that ask models.

    Parameters
    ----------
    experiments
        TOML files.
    set
        A setting to lay over each file, as key=value; dots reach into tables. May be given several times.
    out
        The run's folder, or with several experiments the folder of their folders; by default runs/NAME.
    name
        Keep the model under this name in your own folder (`$APPORTION_HOME`, else ~/.local/share/apportion).
        It is then listed by `apportion models`, and found as --model NAME and by the --pair that it is of.
    resume
        Continue an interrupted run.
    json
        Print the evaluations as JSON.
    """
    if not experiments:
        raise InvalidSetting("Name at least one experiment, for example experiments/dataflow-liveness.toml")
    if name is not None:
        out = _own(name, experiments, out)
    results: dict[str, dict[str, Any]] = {}
    for path in experiments:
        folder = Path("runs") / path.stem if out is None else out / path.stem if len(experiments) > 1 else out
        results[path.stem] = learner_of(path, set).train(folder, resume=resume)
        note(f"The model is in {folder}; verbs that ask one take it as --model {name or folder}")
    if name is not None:
        list_again(weights.own_folder())
    if json:
        print_json(results)
        return
    for title, result in results.items():
        rows = [(key, _words(value)) for key, value in _scores(result).items()]
        print_table(("score", "value"), rows, title=f"{title}: {result.get('seconds', 0):.0f} s")


def _own(name: str, experiments: tuple[Path, ...], out: Path | None) -> Path:
    """The folder of a model that is kept under a name.

    Raises:
        InvalidSetting: the name is taken or is none, or it does not say one folder.
    """
    if out is not None or len(experiments) != 1:
        raise InvalidSetting("--name keeps the model of one experiment, in your own folder: leave out --out")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", name):
        raise InvalidSetting(f"A model's name has up to 64 letters, digits and .-_, and {name!r} has others")
    if name in {one.name for one in weights.manifest(weights.WEIGHTS).models}:
        raise InvalidSetting(f"{name} is a model that the package ships: choose another name")
    return weights.own_folder() / name


def _scores(result: Mapping[str, Any]) -> dict[str, Any]:
    """What an evaluation says of the test, by name; tables inside it are told by their one `value`."""
    found = result.get("test") or result.get("evaluation", {}).get("collections", {})
    return {key: value for key, value in found.items() if not isinstance(value, list)}


def _words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, Mapping):
        if "value" in value:
            return with_interval(value, ".4f")
        return ", ".join(f"{key} {_words(inner)}" for key, inner in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
