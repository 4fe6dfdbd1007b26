"""`python -m reproduction campaign`: the page and the timing model of a measuring campaign."""

from __future__ import annotations

import json as plain_json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from cyclopts import Parameter

from apportion.cli.show import note
from apportion.errors import UnreadableFile
from apportion.jobs.journal import Journal
from apportion.learn.base import list_again
from apportion.learn.times.campaign_table import (
    CampaignTable,
    first_and_last,
    from_described,
    from_ir,
    load_table,
    read_table,
    save_table,
)
from apportion.learn.times.fitting_times import fit_timing
from apportion.runtime.base import info_from
from apportion.settings import replace_file
from apportion.suite import PROBLEMS
from apportion.weights import WEIGHTS, folder_of
from reproduction.campaign.held_out import (
    leave_kernels_out,
    leave_one_suite_out,
    spreads_of,
)
from reproduction.campaign.page import About, compared, figure_of, page

MEASURED = Path(__file__).parent / "measured"
DEVICES = ("cpu", "gpu")
PREFERRED = "xeon-h200"
"The machine whose campaign is shipped."


def campaign(
    *,
    name: str = PREFERRED,
    results: Path | None = None,
    kernels: Path | None = None,
    docs: Path = Path("docs/results"),
    remarks: Path | None = None,
    ship: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Evaluate the timing model of a measured machine, one suite held out at a time, into `campaign.md`.

    Args:
        name: of the machine.
        results: a folder with a new campaign (`measurements.parquet`, `prepared.jsonl`, `devices.json`); it
            takes the place of the shipped table.
        kernels: with `results`: the folder of `kernels.parquet` and `suite.parquet`, with the IR of what was
            measured.
        docs: where the page goes.
        remarks: with `results`: a file of Markdown that the page holds, for what numbers do not say.
        ship: also fit the model to everything, and put it where predictions find it.
    """
    path = MEASURED / f"{name}.parquet"
    about_path = path.with_suffix(".json")
    if results is not None and kernels is not None:
        table, about = _read(results, kernels)
        about["remarks"] = "" if remarks is None else remarks.read_text()
        save_table(table, path)
        replace_file(about_path, plain_json.dumps(about, indent=1) + "\n")
    table, about = shipped(name)  # also when it was just written: what is shipped is what was evaluated
    speeds = tuple(about["speeds"]) if all(about["speeds"]) else None
    tests = leave_one_suite_out(table, speeds=speeds, report=note)
    kernel_tests = leave_kernels_out(table, speeds=speeds)
    where = About(
        about["machine"], about["date"], "python -m reproduction campaign", about["points"],
        about["left_out"], about["failed"], about.get("remarks", ""), about.get("again", {}),
    )  # fmt: skip
    docs.mkdir(parents=True, exist_ok=True)
    chai = {problem.name: problem.chai for problem in PROBLEMS.values() if problem.chai}
    replace_file(docs / "campaign.svg", figure_of(table))
    replace_file(docs / "campaign.md", page(table, tests, where, "campaign.svg", chai, kernel_tests))
    note(f"{docs / 'campaign.md'} is written.")
    if ship:
        model = fit_timing(
            table, name, spreads=spreads_of(tests),
            device_names=tuple(about["device_names"]), speeds=speeds or ({}, {}),
            about={"experiment": "python -m reproduction campaign --ship", "about": name},
        )  # fmt: skip
        written = model.save(folder_of(name))
        list_again(WEIGHTS)
        note(f"The model is in {written}")


def shipped(name: str) -> tuple[CampaignTable, dict[str, Any]]:
    """The table of a machine that is shipped, and what is said of it."""
    path = MEASURED / f"{name}.parquet"
    return load_table(path), plain_json.loads(path.with_suffix(".json").read_text())


def _read(results: Path, kernels: Path) -> tuple[CampaignTable, dict[str, Any]]:
    try:
        points = pl.read_parquet(results / "measurements.parquet")
        sources = pl.concat(
            [
                pl.read_parquet(kernels / file).select("digest", "ir", "source")
                for file in ("kernels.parquet", "suite.parquet")
            ]
        )
        prepared = Journal(results / "prepared.jsonl").entries()
        devices = plain_json.loads((results / "devices.json").read_text())
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UnreadableFile(f"Cannot read the campaign in {results}: {error}") from error
    described = kernels / "features.parquet"
    if described.exists():
        features = from_described(pl.read_parquet(described))
    else:
        features = from_ir({digest: (text, source) for digest, text, source in sources.iter_rows()})
    table, left_out = read_table(points, features, DEVICES)
    pair = first_and_last(points, features, DEVICES)
    failed = Counter(_short(failure) for line in prepared if (failure := line["failure"]))
    known = {device["id"]: info_from(device) for device in devices}
    chosen = [known[name] for name in DEVICES]
    return table, {
        "machine": " and ".join(
            f"{info.name} ({info.platform} {info.driver}, {info.compute_units} units)" for info in chosen
        ),
        "date": datetime.fromtimestamp(max(points["measured_at"]), UTC).date().isoformat(),
        "points": len(points),
        "again": {} if pair is None else compared(*pair),
        "left_out": left_out,
        "failed": dict(failed),
        "device_names": [info.name for info in chosen],
        "speeds": [info.speeds() for info in chosen],
    }


def _short(failure: str) -> str:
    words = failure.split(": ")
    return ": ".join(words[:2])[:60] if words[0] in DEVICES else words[0]
