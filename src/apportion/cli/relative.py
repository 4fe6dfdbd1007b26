"""`apportion relative`: how fast a run will be on each of several systems, beside the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from apportion.advise.relative_answers import (
    Relative,
    read_profiles,
    relative_model,
    shipped,
    shipped_for,
)
from apportion.advise.relative_answers import predict as predict_relative
from apportion.advise.systems import kept_systems
from apportion.cli.show import note, print_json, print_table
from apportion.data.artifact import DESCRIPTION, WEIGHTS
from apportion.data.counter_table import CounterTable
from apportion.errors import InvalidSetting, UnknownName
from apportion.jobs.holding import held
from apportion.learn.relative.figures import distributions
from apportion.learn.relative.performance import SLOWEST
from apportion.learn.relative.profile import Profile
from apportion.learn.relative.relative_model import UNFAMILIAR, RelativeModel
from apportion.report import html
from apportion.report.charts import bars
from apportion.settings import replace_file

relative = App(name="relative", help="Predict relative performance across systems from counters.")


@relative.command
def predict(
    profiles: Annotated[list[Path], Parameter(negative="")],
    *,
    systems: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    seconds: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    target: str = "centred",
    model: str | None = None,
    plot: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Say in which order systems would run what was profiled, how far apart, and how sure that is.

    Args:
        profiles: Tables of counters (Parquet, as `apportion counters` writes them), or JSON.
        systems: The systems to put in order. By default the model's, for kernels also those of
            `apportion systems add`.
        seconds: Times that are known, as SYSTEM=SECONDS. One helps more than any counter.
        target: What the answer is relative to: centred (log2 of the time, less the systems' mean), slowest
            (parts of the slowest system's time), or a system's name.
        model: The name or the folder of a model. By default the shipped one of kernels or of commands,
            whichever knows these counters. `apportion models list` lists them.
        plot: Write an HTML page with bars for each run, and where it lies among the known ones.
        json: Print one line of JSON for each run.
    """
    known = dict(known_time(word) for word in seconds or ())
    chosen = relative_model(model) if model else None
    runs = [profile for path in profiles for profile in read_profiles(path)]
    drawn = []
    for run in runs:
        learned = chosen or shipped_for(run)
        # Systems were added to the model of kernels that is shipped.
        added = kept_systems() if learned is shipped() else {}
        for system in known:
            if system not in learned.reference.systems and system not in added:
                raise UnknownName("system", system, (*learned.reference.systems, *added))
        run = Profile(run.name, run.counters, {**run.seconds, **known})
        answer = predict_relative(run, systems=systems or (), target=target, model=learned, added=added)
        _print(answer, json)
        if plot:
            scaled = predict_relative(run, systems=systems or (), target=SLOWEST, model=learned, added=added)
            drawn += _figures(answer, scaled, learned)
    if plot:
        replace_file(plot, html.page("Relative performance", map(html.figure, drawn)))
        note(f"The figures are in {plot}")


@relative.command
def train(
    table: Path,
    *,
    out: Path,
    profiled: str | None = None,
    learner: Literal["ridge", "forest", "network"] = "ridge",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Train a model on your own runs, for `predict --model`; applications left out show how good it is.

    Args:
        table: Counters of kernels (as `apportion counters kernels --times` writes them) or of programs (as
            `apportion counters collect` and `import` write them), with times on two systems at least.
        out: The folder for the model.
        learner: What predicts from counters alone: ridge regressions, a forest, or the published network.
        profiled: The system whose time is known most often. By default the table's first.
        json: Print JSON.
    """
    # prediction needs none of these
    from apportion.learn.relative.relative_shipping import left_out_of, model_of, trust_of
    from apportion.learn.relative.relative_table import described_by, table_of

    source, counters = described_by(CounterTable.read(table))
    runs = table_of(source, name=table.stem, counters=counters)
    if len(set(runs.application)) < 2:
        raise InvalidSetting(f"{table} has one application only: leaving it out leaves nothing to learn from")
    known = profiled or runs.systems[0]
    if known not in runs.systems:
        raise UnknownName("system", known, runs.systems)
    model = model_of(runs, systems=runs.systems, profiled=known)
    trust = trust_of(model, systems=runs.systems, profiled=known, unfamiliar=UNFAMILIAR)
    if learner != "ridge":
        from apportion.learn.relative.fitting_relative import fitted_of  # scikit-learn or torch

        model = fitted_of(model, learner)
    with held(out, (DESCRIPTION, WEIGHTS)):
        model.save(out)
    reached = left_out_of(model)
    said = {
        "regret": round(reached.regret, 3), "regret_of_the_usual_fastest": round(reached.usual_regret, 3),
        "order_right": round(reached.order, 3), "order_right_of_the_usual": round(reached.usual_order, 3),
        "r2": round(reached.r2, 3), "counters": len(runs.counters),
        "runs": len(runs.runs), "left_out": runs.left_out, "applications": len(set(runs.application)),
        "systems": list(runs.systems), "features": model.features, "strength": model.strength,
        "within_sigma": round(trust.held, 3), "within_sigma_timed": round(trust.timed_held, 3),
        "abstained": round(trust.abstained, 3),
    }  # fmt: skip
    if json:
        print_json(said)
    else:
        print_table(("", "value"), [(name.replace("_", " "), _words(value)) for name, value in said.items()])
    note(f"The model is in {out}; each application was predicted by the others for the shares.")


def _words(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def known_time(word: str) -> tuple[str, float]:
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


def _figures(answer: Relative, scaled: Relative, model: RelativeModel) -> list[str]:
    """Figure 3's bars with one sigma either way, and Figure 2's distributions of the known runs."""
    errors = [
        (value * 2 ** -scaled.sigma[name], value * 2 ** scaled.sigma[name])
        for name, value in scaled.vector.items()
    ]
    known = [name for name in scaled.vector if name in model.reference.systems]
    title = f"{answer.name}{' (unfamiliar)' if answer.abstains else ''}: time in parts of the slowest"
    times = model.on(known).reference.log_times if len(known) > 1 else None
    rows = [(name, value, f"{value:.2f}") for name, value in scaled.vector.items()]
    figures = [bars(rows, most=1.0, errors=errors, title=title, paper="white")]
    if times is not None:
        marked = [scaled.vector[name] for name in known]
        figures.append(distributions(f"Among {len(times)} known runs", known, times, marked=marked))
    return figures
