"""`apportion schedule slurm`: placements by predicted times in a Slurm that is already there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from apportion.cli.show import note, print_json, print_table
from apportion.errors import InvalidSetting
from apportion.schedule.slurm.cluster import SlurmCommands, read_history
from apportion.schedule.slurm.conf_folder import (
    FOLDER,
    InstallStep,
    missing_settings,
    plan_of_install,
    plan_of_undo,
)
from apportion.schedule.slurm.conf_folder import install as install_steps
from apportion.schedule.slurm.conf_folder import undo as undo_steps
from apportion.schedule.slurm.daemon import DaemonSettings, PlacementDaemon
from apportion.schedule.slurm.estimates import estimates_of, read_class_predictions
from apportion.schedule.slurm.narrowed import read_narrowed, widen
from apportion.schedule.slurm.placement import plan, read_placement

slurm = App(name="slurm", help="Place Slurm jobs by what their class takes in each partition.")

Flag = Annotated[bool, Parameter(negative="")]


@slurm.command
def install(*, conf: Path, max_age: int = 300, dry_run: Flag = False) -> None:
    """Write job_submit.lua, the folder of placements and a unit for systemd beside slurm.conf.

    A job_submit.lua that is there already is kept and runs first.

    Args:
        conf: The folder of slurm.conf, such as /etc/slurm.
        max_age: Place no job if the daemon has given no sign of life for this many seconds.
        dry_run: Print what would be written, and write nothing.
    """
    steps = plan_of_install(conf, max_age=max_age)
    if not dry_run:
        install_steps(conf, steps)
    _show(steps, dry_run)
    for line in missing_settings(conf):
        note(f"slurm.conf needs the line {line}; then restart slurmctld")
    folder = conf.resolve() / FOLDER
    note(f"Start the daemon: systemctl enable --now {folder / 'apportion-schedule.service'}")


@slurm.command
def undo(*, conf: Path, dry_run: Flag = False) -> None:
    """Take away what `install` wrote, and put back the script that was there before.

    Waiting jobs that were moved to one partition may start in all partitions of their list again.

    Args:
        conf: The folder of slurm.conf.
        dry_run: Print what would be done, and do nothing.
    """
    steps = plan_of_undo(conf)
    folder = conf.resolve() / FOLDER
    if not dry_run:
        if read_narrowed(folder):
            widen(SlurmCommands(conf), folder)
        undo_steps(conf, steps)
    _show(steps, dry_run)


@slurm.command
def daemon(
    *,
    conf: Path,
    predictions: Path | None = None,
    interval: float = 10.0,
    set_limits: Flag = False,
    no_moves: Flag = False,
    once: Flag = False,
    dry_run: Flag = False,
    json: Flag = False,
) -> None:
    """Keep one file for each class fresh: from the queue, from jobs that ended, from predictions.

    Args:
        conf: The folder of slurm.conf.
        predictions: Predictions by class: a table with the columns class, predicted:PARTITION and
            sigma:PARTITION, or the lines that `apportion relative predict --json` prints. Measured times take
            precedence.
        interval: How many seconds pass between two looks at the queue.
        set_limits: Give jobs without a time limit one: the 0.98-quantile of their time in the slowest
            partition that they may go to.
        no_moves: Leave waiting jobs where they are.
        once: Look at the queue once, and end. What it moved stays where it is until the next look, or undo.
        dry_run: Change neither files nor jobs. With --once, print what would be done.
        json: With --once, print JSON.
    """
    settings = DaemonSettings(conf, interval, set_limits, not no_moves, dry_run)
    working = PlacementDaemon(settings, read_class_predictions(predictions), note)
    if not once:
        working.run()
        return
    found = working.look()
    if json:
        print_json({
            "placements": [
                {"class": one.key, "partitions": one.partitions, "minutes": one.minutes, "from": one.model}
                for one in found.placements
            ],
            "moves": [{"job": number, "partitions": where} for number, where in found.moves],
            "wait_s": {name: round(wait, 1) if wait < 1e12 else None for name, wait in found.waits.items()},
        })  # fmt: skip
        return
    rows = [(one.key, ", ".join(one.partitions), one.minutes or "", one.model) for one in found.placements]
    print_table(("class", "partitions", "minutes", "from"), rows, right=("minutes",))
    for number, where in found.moves:
        note(f"job {number} {'would be' if dry_run or no_moves else 'was'} moved to {', '.join(where)}")


@slurm.command
def explain(job: int, *, conf: Path, predictions: Path | None = None, json: Flag = False) -> None:
    """Say why a job is where it is: what its class takes in each partition, from what that is known, and
    the wait.

    Args:
        job: The number of the job.
        conf: The folder of slurm.conf.
        predictions: The file of predictions that the daemon was given.
        json: Print JSON.
    """
    commands = SlurmCommands(conf)
    jobs, partitions = commands.jobs(), commands.partitions()
    here = next((one for one in jobs if one.number == job), None)
    if here is None:
        raise InvalidSetting(
            f"The controller knows no job {job}; it forgets jobs some minutes after their end"
        )
    folder = conf.resolve() / FOLDER
    estimates = estimates_of(read_history(folder / "history.jsonl"), read_class_predictions(predictions))
    waits = plan(partitions, jobs, estimates).waits
    known = estimates.of(here.key or here.name, [one.name for one in partitions])
    placement = read_placement(folder, here.key)
    said = {
        "job": job, "class": here.key or here.name, "state": here.state, "partitions": here.partitions,
        "placed_by": "apportion" if here.ours else "the user, or Slurm's default", "mark": here.mark,
        "table": placement.partitions if placement else None,
        "daemon_seen_s": _age(folder / "alive"),
        "times": {name: {"seconds": round(one.seconds, 3), "sigma": round(one.sigma, 3), "from": one.source}
                  for name, one in known.items()},
        "wait_s": {name: round(wait, 1) if wait < 1e12 else None for name, wait in waits.items()},
    }  # fmt: skip
    if json:
        print_json(said)
        return
    rows = [
        (one.name, f"{known[one.name].seconds:,.1f}" if one.name in known else "not known",
         f"{known[one.name].sigma:.2f}" if one.name in known else "",
         known[one.name].source if one.name in known else "", f"{waits.get(one.name, 0):,.0f}")
        for one in partitions
    ]  # fmt: skip
    title = f"job {job}: class {said['class']}, {here.state} in {', '.join(here.partitions)}"
    print_table(("partition", "seconds", "sigma (log2)", "from", "wait (s)"), rows, title=title,
                right=("seconds", "sigma (log2)", "wait (s)"))  # fmt: skip
    note(f"placed by {said['placed_by']}{f' ({here.mark})' if here.mark else ''}")


def _age(alive: Path) -> float | None:
    try:
        return round(time.time() - float(alive.read_text()), 1)
    except (OSError, ValueError):
        return None


def _show(steps: list[InstallStep], dry_run: bool) -> None:
    if not steps:
        note("Nothing to do: all of it is there")
        return
    print_table(("would" if dry_run else "done", "file"), [(step.what, step.path) for step in steps])
