"""`apportion train`: make models from experiment files, one folder each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from apportion.cli.show import note, print_json, print_table
from apportion.errors import InvalidSetting
from apportion.learn.learner import learner_of
from apportion.report.numbers import with_interval


def train(
    *experiments: Path,
    set: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    out: Path | None = None,
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
    resume
        Go on where an interrupted run stood.
    json
        Print the evaluations as JSON.
    """
    if not experiments:
        raise InvalidSetting("Name at least one experiment, for example experiments/dataflow-liveness.toml")
    results: dict[str, dict[str, Any]] = {}
    for path in experiments:
        folder = Path("runs") / path.stem if out is None else out / path.stem if len(experiments) > 1 else out
        results[path.stem] = learner_of(path, set).train(folder, resume=resume)
        note(f"The model is in {folder}; verbs that ask one take it as --model {folder}")
    if json:
        print_json(results)
        return
    for name, result in results.items():
        rows = [(key, _words(value)) for key, value in _scores(result).items()]
        print_table(("score", "value"), rows, title=f"{name}: {result.get('seconds', 0):.0f} s")


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
