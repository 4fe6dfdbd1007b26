"""`apportion train`: run experiments, one folder each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from apportion.cli.show import print_json, print_table
from apportion.errors import InvalidSetting
from apportion.learn.experiment import load_experiment
from apportion.learn.experiment_run import run

_METRICS = ("f1", "precision", "recall", "accuracy")


def train(
    *experiments: Path,
    set: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    out: Path | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Train and evaluate the models of some experiments, one after the other.

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
        results[path.stem] = run(load_experiment(path, set), folder, resume=resume)
    if json:
        print_json(results)
        return
    rows = [
        (
            name,
            f"{(result['test'] or {}).get('examples', 0):,}",
            *(f"{result['test'][metric]['value']:.4f}" if result["test"] else "-" for metric in _METRICS),
            f"{result['seconds']:.0f}",
        )
        for name, result in results.items()
    ]
    columns = ("experiment", "test examples", *_METRICS, "seconds")
    print_table(columns, rows, right=columns[1:])
