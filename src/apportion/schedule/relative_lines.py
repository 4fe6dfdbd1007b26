"""Predictions as `apportion relative predict --json` prints them: a line for each run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from apportion.errors import MalformedInput, UnreadableFile


@dataclass(frozen=True)
class RelativeLine:
    """What is predicted of one run."""

    run: str
    vector: Mapping[str, float]
    "System → log2 of its time, less the mean over systems; empty where the model abstains."
    sigma: Mapping[str, float]
    "System → how uncertain that is."


def read_relative_lines(path: Path) -> list[RelativeLine]:
    """The predictions of a file, in its order.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it holds something else.
    """
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"is not JSON, a line for each run ({error})", file=str(path)) from error
    found = []
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or "run" not in line or line.get("target", "centred") != "centred":
            raise MalformedInput("a line is what `apportion relative predict --json` prints, target centred",
                                 file=str(path), line=number)  # fmt: skip
        vector, sigma = (_numbers(line.get(key), path, number) for key in ("vector", "sigma"))
        found.append(RelativeLine(str(line["run"]), vector, sigma))
    return found


def _numbers(value: object, path: Path, line: int) -> dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(each, int | float) for each in value.values()):
        raise MalformedInput("vector and sigma name systems with numbers", file=str(path), line=line)
    return {str(name): float(number) for name, number in value.items()}
