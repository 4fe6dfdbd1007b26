"""`apportion systems`: systems for relative performance, known ones and added ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from apportion.advise import systems as kept
from apportion.advise.relative_answers import shipped
from apportion.cli.show import note, print_json, print_table

systems = App(name="systems", help="Systems that relative performance is predicted for.")


@systems.command
def add(
    name: str,
    *,
    samples: Path,
    replace: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Add a system from a few runs that were measured on it; five will do, twenty do well.

    Args:
        name: A name for the new system.
        samples: A CSV file with the columns run and seconds, of runs that the model knows (`apportion systems
            show` lists them); or a table of counters with times on this system and, if there are any, on
            known ones.
        replace: Replace an added system of the same name.
        json: Print JSON.
    """
    system = kept.KnownSystem(name, kept.read_samples(samples, name))
    fit = kept.fit_of(system, shipped())
    path = kept.keep(system, taken=shipped().reference.systems, replace=replace)
    note(f"{name} is kept in {path}")
    _print(name, fit, json)


@systems.command(name="list")
def list_(*, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """List the systems of the shipped model, and those that were added.

    Args:
        json: Print one line of JSON for each system.
    """
    known = [(name, "known", len(shipped().reference.runs)) for name in shipped().reference.systems]
    added = [(name, "added", len(system.samples)) for name, system in kept.kept_systems().items()]
    if json:
        for name, origin, runs in [*known, *added]:
            print_json({"system": name, "origin": origin, "runs": runs})
        return
    print_table(("system", "origin", "runs"), [*known, *added], right=("runs",))


@systems.command
def show(name: str | None = None, *, json: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Show which known systems an added one resembles, and how far predictions for it are off.

    Without a name, list the known runs.

    Args:
        name: The name of an added system.
        json: Print JSON.
    """
    if name is not None:
        _print(name, kept.fit_of(kept.kept_system(name), shipped()), json)
        return
    reference = shipped().reference
    if json:
        print_json({"runs": list(reference.runs), "systems": list(reference.systems)})
        return
    print_table(("run", "application"), list(zip(reference.runs, reference.application, strict=True)))


@systems.command
def remove(name: str) -> None:
    """Forget an added system.

    Args:
        name: The name of an added system.
    """
    kept.remove(name)
    note(f"{name} is forgotten")


def _print(name: str, fit: kept.Fit, json: bool) -> None:
    if json:
        print_json(
            {"system": name, "samples": fit.samples, "likeness": fit.likeness, "error_percent": fit.error}
        )
        return
    likeness = ", ".join(f"{other} ({weight:.0%})" for other, weight in fit.likeness.items())
    rows = [
        ("measured runs", fit.samples),
        ("is like", likeness),
        ("median error of a run left out", f"{fit.error} %"),
    ]
    print_table((name, ""), rows)
