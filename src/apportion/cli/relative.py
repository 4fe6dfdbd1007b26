"""`apportion relative`: how fast a run will be on each of several systems, beside the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from apportion.advise.relative import Profile, Relative, read_profiles, shipped
from apportion.advise.relative import predict as predict_relative
from apportion.cli.show import note, print_json, print_table
from apportion.errors import InvalidSetting
from apportion.model.relative import RelativeModel
from apportion.task.relative_performance import SLOWEST
from apportion.task.relativefigures import bars, distributions, page

relative = App(name="relative", help="Predict relative performance across systems from counters.")


@relative.command
def predict(
    profiles: Annotated[list[Path], Parameter(negative="")],
    *,
    systems: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    seconds: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    target: str = "centred",
    model: Path | None = None,
    plot: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Say in which order systems would run what was profiled, how far apart, and how sure that is.

    Args:
        profiles: tables of counters (Parquet, as `apportion counters` writes them), or JSON.
        systems: over which; by default the model's four and those added with `apportion systems add`.
        seconds: times that are known, as SYSTEM=SECONDS; one helps more than any counter.
        target: centred (log2, less the systems' mean), slowest (in parts of the slowest), or a system's name.
        model: the folder of a model; by default the shipped one.
        plot: an HTML file to draw to: bars of each run, and where it lies among the known ones.
        json: print one line of JSON per run.
    """
    learned = RelativeModel.load(model) if model else shipped()
    known = dict(_time(word) for word in seconds or ())
    runs = [profile for path in profiles for profile in read_profiles(path)]
    drawn = []
    for run in runs:
        run = Profile(run.name, run.counters, {**run.seconds, **known})
        answer = predict_relative(run, systems=systems or (), target=target, model=learned)
        _print(answer, json)
        if plot:
            drawn += _figures(run, answer, systems or (), learned)
    if plot:
        plot.write_text(page("Relative performance", drawn))
        note(f"The figures are in {plot}")


def _time(word: str) -> tuple[str, float]:
    system, _, value = word.partition("=")
    try:
        return system, float(value)
    except ValueError:
        raise InvalidSetting(f"A known time is written SYSTEM=SECONDS, not {word!r}") from None


def _print(answer: Relative, json: bool) -> None:
    for warning in answer.warnings:
        note(f"{answer.name}: {warning}")
    if json:
        print_json(answer.as_json())
        return
    if answer.abstains:  # its warning is said already
        return
    rows = [
        (place, system, f"{answer.vector[system]:.3f}", f"{answer.sigma[system]:.2f}")
        for place, system in enumerate(answer.order, 1)
    ]
    columns = ("place", "system", answer.target, "sigma (log2)")
    print_table(columns, rows, title=answer.name, right=("place", *columns[2:]))
    note(f"{answer.name}: distance {answer.distance:.2f}, familiarity {answer.familiarity:.2f}")


def _figures(
    run: Profile, answer: Relative, systems: list[str] | tuple[str, ...], model: RelativeModel
) -> list[str]:
    """Figure 3's bars with one sigma either way, and Figure 2's distributions of the known runs."""
    scaled = predict_relative(run, systems=systems, target=SLOWEST, model=model)
    labels = list(scaled.vector)
    values = [scaled.vector[name] for name in labels]
    errors = [
        (value * 2 ** -scaled.sigma[name], value * 2 ** scaled.sigma[name])
        for name, value in zip(labels, values, strict=True)
    ]
    known = [name for name in labels if name in model.reference.systems]
    title = f"{answer.name}{' (unfamiliar)' if answer.abstains else ''}: time in parts of the slowest"
    times = model.on(known).reference.log_times if len(known) > 1 else None
    figures = [bars(title, labels, values, errors=errors)]
    if times is not None:
        marked = [scaled.vector[name] for name in known]
        figures.append(distributions(f"Among {len(times)} known runs", known, times, marked=marked))
    return figures
