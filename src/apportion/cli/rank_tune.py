"""`apportion rank tune`: measure a few configurations of a program, rank the rest, name the best."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.advise.layout_tuning import tunable_layouts
from apportion.advise.recorded_tuning import tune_recorded
from apportion.advise.tuning import Tunable, Tuning, by_time
from apportion.advise.tuning import tune as tune_function
from apportion.cli.show import note, print_json, print_table
from apportion.errors import InvalidSetting
from apportion.learn.metrics import over_seeds
from apportion.learn.ranking.ridge import TuningPlan
from apportion.program.hlo.jax import object_of, spec_of

_SHOWN = 5


def tune(
    program: str | None = None,
    *,
    budget: int,
    recorded: Path | None = None,
    shapes: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="")] = (),
    configurations: int = 1000,
    repeats: int = 5,
    seeds: int = 1,
    seed: int = 0,
    random_share: float = TuningPlan.random_share,
    check_share: float = TuningPlan.check_share,
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Measure a few configurations of a program, rank the rest, and name the best.

    Args:
        program: file.py:name or module:name of an `apportion.Tunable`; or of a JAX function, whose layouts
            are tuned for the --shapes that it is called with.
        budget: How many configurations are measured.
        recorded: Instead of a program: a layout file, whose runtimes stand in for measurements made now.
        shapes: What a JAX function is called with: f32[128,256] f32[256].
        configurations: Of a JAX function's layouts, how many are drawn to choose from.
        repeats: How often each configuration is timed.
        seeds: How often tuning a recorded file is repeated, each time with other draws.
        seed: Draws the first configurations of a program.
        random_share: The part of the budget that is drawn by chance; then the least certain are measured.
        check_share: The part of the budget kept for those predicted to be the fastest.
        out: Write a page (HTML) about the tuning of a program.
        json: Print what was found as JSON.
    """
    if (program is None) == (recorded is None):
        raise InvalidSetting("Give either a program to tune or a --recorded file")
    if recorded is not None:
        _tune_recorded(recorded, TuningPlan(budget, random_share, check_share), seeds, json)
        return
    assert program is not None
    found = object_of(program)
    if not isinstance(found, Tunable):
        if not callable(found):
            raise InvalidSetting(f"{program} is neither an apportion.Tunable nor a function")
        if not shapes:
            raise InvalidSetting(f"{program} is a function: say the --shapes that it is called with")
        found = tunable_layouts(found, [spec_of(shape) for shape in shapes], configurations, seed=seed)
    tuning = tune_function(found, budget=budget, repeats=repeats, seed=seed, progress=not json)
    if out is not None:
        tuning.write_page(out)
        note(f"Wrote {out}")
    _print(tuning, json)


def _print(tuning: Tuning, json: bool) -> None:
    if json:
        print_json({
            "best": dict(tuning.best), "seconds": tuning.fastest.median, "speedup": tuning.speedup,
            "model": tuning.kind, "tau_b": None if math.isnan(tuning.tau_b) else tuning.tau_b,
            "configurations": len(tuning.predicted),
            "measured": [
                {"configuration": dict(one.configuration), "seconds": one.seconds, "failure": one.failure}
                for one in tuning.measured
            ],
        })  # fmt: skip
        return
    names = tuple(tuning.space.values)
    shown = names if len(names) <= 8 else ()
    rows = [
        (*(one.configuration[name] for name in shown), one.failure or f"{one.median * 1e3:.4g}")
        for one in list(by_time(tuning))[:_SHOWN]
    ]
    title = f"{len(tuning.measured)} of {len(tuning.predicted):,} configurations measured"
    print_table((*shown, "ms"), rows, right=(*shown, "ms"), title=title)
    than = "the default" if tuning.default else "the median configuration measured"
    note(f"{tuning.speedup:.2f} times as fast as {than}")


def _tune_recorded(recorded: Path, plan: TuningPlan, seeds: int, json: bool) -> None:
    if seeds < 1:
        raise InvalidSetting(f"seeds must be at least 1, not {seeds}")
    found = tune_recorded(recorded, plan, range(seeds))
    if json:
        print_json(found)
        return
    columns = (
        "seed", "best configuration", "runtime, ms", "slower than the best", "model", "tau-b of the rest",
        "tied", "tau-b, ties broken", "OPA, ties broken",
    )  # fmt: skip
    rows = [
        (
            seed, run.best, f"{run.runtime_ns / 1e6:.3f}", f"{run.slowdown:.3%}", run.model,
            f"{run.tau_b:.4f}", f"{run.tied_scores / run.pairs:.1%}", f"{run.tau_b_untied:.4f}",
            f"{run.opa_untied:.4f}",
        )
        for seed, run in enumerate(found)
    ]  # fmt: skip
    title = f"{found[0].measured} of {found[0].distinct:,} different configurations measured"
    print_table(columns, rows, right=columns, title=title)
    if seeds > 1:
        interval = over_seeds([run.tau_b for run in found])
        note(f"tau-b over seeds: {interval.value:.4f} [{interval.low:.4f}, {interval.high:.4f}]")
