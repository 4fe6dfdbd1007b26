"""`python -m reproduction policies`: the parameters of the policy `bayes`, policies replayed on recordings,
and the page about them."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from apportion.cli.show import note
from apportion.coexecution.expected_times import BELIEVING
from apportion.coexecution.policies.bayes import BayesPolicy, HorizonSettings
from apportion.coexecution.policies.feedback import FeedbackPolicy
from apportion.errors import InvalidSetting
from apportion.learn.times.fitting_times import fit_timing
from apportion.settings import replace_file
from reproduction.campaign.run import PREFERRED, shipped
from reproduction.campaign.suite_workloads import SUITE
from reproduction.policies.held_out import (
    GENERATED,
    HeldOutForecasts,
    errors_of,
    held_out_forecasts,
    launch_noise,
)
from reproduction.policies.page import page
from reproduction.policies.rehearsal import play, rehearsals
from reproduction.policies.replays import replay, replays_from
from reproduction.stored import keep, kept

STORED = Path(__file__).parent / "stored"
FIT = "fit.json.gz"
HORIZONS = (1, 5, 10, 20)
"Launches taken to come, at least, that are rehearsed."
REHEARSED = 100
"Launches of each kernel."
ONE_IN = 12
"Of the launches of the campaign, one in so many is rehearsed."
WHAT = ("page", "fit", "replay")


def policies(
    what: str = "page",
    folder: Path = Path("docs/results/co-execution"),
    *,
    name: str = "xeon-h200",
    journal: Path = Path("experiments/campaign-journal.jsonl.xz"),
    launches: int = 100,
    seeds: int = 3,
    stored: Path = STORED,
    out: Path = Path("docs/results/policies.md"),
) -> None:
    """Write the page about policies from what is stored, or measure what it shows.

    Args:
        what: `page` writes the page. `fit` estimates the parameters of `bayes` from the campaign without the
            suite (some minutes) and stores that. `replay` has every policy launch the kernels of a
            recording, and stores what that took.
        folder: with `replay`: a recording: devices.json, and folders of `python -m reproduction efficiency`.
        name: with `replay`: what the recording is called on the page.
        journal: with `fit`: the campaign's journal, for how much launches vary.
        launches: with `replay`: of each kernel.
        seeds: with `replay`: so often, with other noise.
        stored: the folder of what is stored.
        out: the page.
    """
    if what not in WHAT:
        raise InvalidSetting(f"Say one of {', '.join(WHAT)}, not {what!r}")
    if what == "fit":
        keep(stored / FIT, fit(journal))
        return
    fitted = kept(stored / FIT, made_by="python -m reproduction policies fit")
    if what == "replay":
        with tempfile.TemporaryDirectory() as scratch:
            model = model_without_suite(tuple(fitted["by_model"]["deviation"]), Path(scratch))
            found = replay(folder, model, launches=launches, seeds=seeds, report=note)
        keep(stored / f"replay-{name}.json.gz", found.as_json())
        return
    made_by = "python -m reproduction policies replay FOLDER"
    replays = {
        path.name.removeprefix("replay-").removesuffix(".json.gz"): replays_from(kept(path, made_by=made_by))
        for path in sorted(stored.glob("replay-*.json.gz"))
    }
    replace_file(out, page(fitted, replays))
    note(f"{out} is written.")


def fit(journal: Path) -> dict[str, Any]:
    """What the campaign without the suite says of forecasts, of noise, and of the horizon."""
    table, about = shipped(PREFERRED)
    first, second = about["speeds"]
    found = held_out_forecasts(table, (first, second), report=note)
    return {"launches": found.as_json(), "noise": _noise(journal, found)} | estimated(found)


def estimated(found: HeldOutForecasts) -> dict[str, Any]:
    """The parameters that follow from forecasts that were held out, and what horizons cost."""
    suites = found.of_suites()
    generated = found.part(np.array(found.suites) == GENERATED)
    by_model = errors_of(suites, suites.by_model)
    horizons = {}
    some = found.part(np.arange(len(found)) % ONE_IN == 0)
    for origin, spreads in (("model", by_model.deviation), ("speeds", None)):
        made = rehearsals(some, spreads)
        contenders = {"learned+feedback": FeedbackPolicy()} | {
            str(coming): BayesPolicy(BELIEVING, HorizonSettings(coming)) for coming in HORIZONS
        }
        for label, policy in contenders.items():
            lost = np.stack([play(policy, one, REHEARSED, seed) for seed, one in enumerate(made)])
            horizons[f"{origin} {label}"] = {
                str(count): float(lost[:, :count].mean()) for count in (1, 3, 10, 100)
            }
            note(f"{origin}, {label}: {horizons[f'{origin} {label}']}")
    return {
        "by_model": asdict(by_model),
        "by_speeds": asdict(errors_of(suites, suites.by_speeds)),
        "by_model_generated": asdict(errors_of(generated, generated.by_model)),
        "by_speeds_generated": asdict(errors_of(generated, generated.by_speeds)),
        "horizons": horizons,
    }


def model_without_suite(deviation: tuple[float, float], folder: Path) -> Path:
    """The timing model of the campaign without the suite, in a folder; it is as sure as such models were of
    suites that they did not see."""
    table, about = shipped(PREFERRED)
    others = table.part(np.array(table.suites) != SUITE)
    first, second = about["speeds"]
    model = fit_timing(others, "without-suite", spreads=deviation, speeds=(first, second))
    return model.save(folder / "without-suite")


def _noise(journal: Path, found: HeldOutForecasts) -> dict[str, Any]:
    return {
        name: asdict(each) | {"late": each.late}
        for name, each in launch_noise(journal, found.devices).items()
    }
