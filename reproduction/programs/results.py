"""What a lent machine brought back about programs, as one value that is stored."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from apportion.errors import UnreadableFile

_ENDED = re.compile(r"^(\S+) ended with (\d+) after (\d+) s$", re.MULTILINE)


def read_results(folder: Path) -> dict[str, Any]:
    """What `tools/lent-programs.sh` wrote into a folder.

    Raises:
        UnreadableFile: there are no programs in it.
    """
    programs = _lines(folder / "programs.jsonl")
    if not programs:
        raise UnreadableFile(
            f"There are no measured programs in {folder}. Unpack there what tools/lent-programs.sh made"
        )
    ended = _ENDED.findall(_text(folder / "parts.log"))
    devices = {path.stem: _lines(path) for path in sorted(folder.glob("devices*.txt"))}
    return {
        "machine": _text(folder / "machine.txt"),
        "parts": {name: {"code": int(code), "seconds": int(seconds)} for name, code, seconds in ended},
        "devices": {name: [_short(info) for info in infos] for name, infos in devices.items()},
        "programs": programs,
        "starpu": _lines(folder / "starpu.jsonl"),
        "launch path": [row for path in sorted(folder.glob("launchpath-*.txt")) for row in _lines(path)],
        "first call": next(iter(_lines(folder / "first-call.txt")), {}),
        "confined": {
            path.parent.name.removeprefix("recording-"): [_launched(row) for row in _lines(path)]
            for path in sorted(folder.glob("recording-*/efficiency.jsonl"))
        },
    }


def joined(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several runs as one: what a later one measured again takes the place of what was there.

    A program stands beside what StarPU took in the same run; the programs of earlier runs that were measured
    again are under `replaced`.
    """
    found: dict[str, Any] = {}
    programs: dict[str, dict[str, Any]] = {}
    starpu: dict[str, dict[str, Any]] = {}
    path: dict[str, dict[str, Any]] = {}
    replaced = []
    for number, each in enumerate(results, 1):
        parts = {**found.get("parts", {}), **each["parts"]}
        found = {**found, **{name: value for name, value in each.items() if value}, "parts": parts}
        theirs = {row["program"]: row for row in each["starpu"]}
        for row in each["programs"]:
            name = row["program"]
            if name in programs:
                replaced.append(programs[name])
            programs[name] = {**row, "run": number}
            starpu.pop(name, None)
            if name in theirs:
                starpu[name] = theirs[name]
        path |= {row["device"]: row for row in each["launch path"]}
    return found | {
        "programs": list(programs.values()), "starpu": list(starpu.values()), "replaced": replaced,
        "launch path": list(path.values()), "runs": len(results),
    }  # fmt: skip


def _short(info: dict[str, Any]) -> dict[str, Any]:
    """What the page says of a device."""
    calibration = info.get("calibration") or {}
    told = {name: info[name] for name in ("id", "name", "platform", "driver", "compute_units")}
    return {**told, "left_out": len(calibration.get("left_out", ()))}


def _launched(row: dict[str, Any]) -> dict[str, Any]:
    """Whether a kernel ran where processors were few."""
    return {name: row[name] for name in ("problem", "kernel", "failure", "verified")}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that are objects of JSON; others are what people read."""
    found = []
    for line in _text(path).splitlines():
        with suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                found.append(value)
    return found
