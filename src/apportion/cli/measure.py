"""`apportion measure`: a machine becomes a table of measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note, print_json, progress
from apportion.device.base import Limits
from apportion.device.campaign import TABLE, Campaign, count_points, run_campaign
from apportion.device.measure import Repeats
from apportion.errors import InvalidSetting

_FLAG = Parameter(negative="")


def measure(
    *sources: Path,
    out: Path,
    devices: str = "all",
    sizes: str = "auto",
    local_sizes: str = "64,256",
    seconds: float = 2.0,
    deadline: float = 20.0,
    seed: int = 0,
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """Measure OpenCL kernels on this machine's devices, into a folder that a later run goes on with.

    Args:
        sources: files of OpenCL C, or folders of `.cl` files.
        out: the folder; `measurements.parquet` in it holds every point, failures included.
        devices: all, or ids with commas between them.
        sizes: auto, or numbers of work-items with commas between them.
        local_sizes: work-group sizes, likewise.
        seconds: how long one point may be repeated until its interval is narrow.
        deadline: of one launch.
        seed: of the arguments that are made up.
        json: print each point as a line of JSON.
    """
    files = [file for path in sources for file in (sorted(path.rglob("*.cl")) if path.is_dir() else [path])]
    if not files:
        raise InvalidSetting("There is nothing to measure: give files of OpenCL C, or folders that hold some")
    campaign = Campaign(
        **({} if sizes == "auto" else {"sizes": _numbers(sizes, "--sizes")}),
        local_sizes=_numbers(local_sizes, "--local-sizes"),
        devices=() if devices == "all" else tuple(devices.split(",")),
        repeats=Repeats(seconds=seconds),
        seed=seed,
    )
    total = count_points(files, campaign, len(campaign.devices)) if campaign.devices else None
    points = failures = 0
    found = run_campaign(files, out, campaign, limits=Limits(seconds=deadline))
    for point in progress(found, label="Measuring", total=total, quiet=json):
        points += 1
        failures += bool(point.failure)
        if json:
            print_json(point)
        elif point.failure:
            note(f"{point.source} {point.kernel} on {point.device}: {point.failure}")
    note(f"{points} points measured now, {failures} of them failures; all are in {out / TABLE}.")


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidSetting(f"{option} must be numbers with commas between them, not {text!r}") from None
