"""Study: a tuning on disk, one line of JSON for each thing that happened.

    {"study": 1, "name": "blur", "space": {…}}                              the first line
    {"claim": {"tile": 8}, "by": "host:123", "at": 1763480000.0}            somebody measures this now
    {"configuration": {"tile": 8}, "value": 0.01, "seconds": [0.01, …]}     what came of it, or "failure"

A line is written whole, under a lock, so that processes (also of several machines, on a file system that they
share and that locks) take part in one study. After a kill a study goes on where it was: a claim whose process
is gone counts no more, nor one of a program that asked and told nothing within an hour.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.jobs.journal import Entry, Journal
from apportion.measure.space import Configuration, Range, Space, key_of

FORMAT = 1
ASKED = "asked"
"Who claims what a program of another kind asked for: it may be told by any process."
_STALE_SECONDS = 3_600.0
"After which a claim of another machine's process, or of a program that asked, counts no more."


@dataclass(frozen=True)
class TriedConfiguration:
    """One configuration that was tried."""

    configuration: Configuration
    seconds: tuple[float, ...]
    "Every repeat."
    failure: str = ""
    value: float = math.nan
    "What is made small: the median of the repeats, or what the function returned."
    metrics: Mapping[str, float] = field(default_factory=dict)
    "What else the function returned: energy, registers."
    pruned: bool = False
    "Whether the first repeats said that it is hopeless, so that there are no more."

    @property
    def median(self) -> float:
        """The value; NaN when it failed."""
        return math.nan if self.failure else self.value


class Study:
    """A study in a file, or in memory alone.

    Args:
        space: what is tuned; a file of another space is refused.
        path: the file; None for memory.
        name: of what is tuned.
    """

    def __init__(self, space: Space, path: Path | None = None, *, name: str = "") -> None:
        self.space, self.path, self.name = space, path, name
        self.measured: dict[str, TriedConfiguration] = {}
        self._claims: dict[str, tuple[Configuration, str, float]] = {}
        self._journal = None if path is None else Journal(path)
        self._lines = 0
        self._values = {
            parameter: {_json(value): value for value in values}
            for parameter, values in space.values.items()
            if not isinstance(values, Range)
        }
        self._me = f"{platform.node()}:{os.getpid()}"
        with self.turn():
            pass

    @classmethod
    def read(cls, path: Path, space: Space) -> list[TriedConfiguration]:
        """What a study measured, of this space or of one that differs in its values (another size)."""
        found = cls(space)
        if not path.is_file():
            raise UnreadableFile(f"Cannot read {path}: there is no such file")
        found._take_all(Journal(path).entries()[1:], path, 2)
        return list(found.measured.values())

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Within it nobody else reads or writes: look at `measured` and `claimed`, then `claim`."""
        if self._journal is None or self.path is None:
            yield
            return
        with self._journal.turn() as new:
            if not self._lines and not new:
                self._add({"study": FORMAT, "name": self.name, "space": described(self.space)})
            self._take_all(new, self.path, self._lines + 1)
            yield

    @property
    def claimed(self) -> list[Configuration]:
        """What others measure now."""
        return [one for one, by, at in self._claims.values() if by != self._me and _lives(by, at)]

    def claim(self, one: Configuration, *, by: str = "") -> None:
        """Say, within a turn, that this process measures a configuration; or somebody else, as `ASKED`."""
        self._add({"claim": dict(one), "by": by or self._me, "at": time.time()})

    def add(self, found: TriedConfiguration) -> None:
        """Keep what came of a configuration."""
        self._take(found)
        if self.path is None:
            return
        line: dict[str, Any] = {"configuration": dict(found.configuration), "seconds": list(found.seconds)}
        line |= {"failure": found.failure} if found.failure else {"value": found.value}
        line |= {"metrics": dict(found.metrics)} if found.metrics else {}
        line |= {"pruned": True} if found.pruned else {}
        with self.turn():
            self._add(line)

    def _take(self, found: TriedConfiguration) -> None:
        key = key_of(found.configuration)
        self._claims.pop(key, None)
        self.measured[key] = found

    def _take_all(self, lines: Iterable[Entry], path: Path, first: int) -> None:
        for number, line in enumerate(lines, first):
            try:
                self._line(line, first=number == 1)
            except InvalidSetting:
                raise
            except (ValueError, KeyError, TypeError) as error:
                raise MalformedInput(f"no line of a study ({error})", file=str(path), line=number) from error
            self._lines = number

    def _line(self, said: dict[str, Any], *, first: bool) -> None:
        if first:
            if said.get("study") != FORMAT:
                raise ValueError("it does not begin as a study does")
            if said["space"] != json.loads(json.dumps(described(self.space))):
                raise InvalidSetting(f"{self.path} is a study of another space; give another file")
            return
        if "claim" in said:
            one = self._configuration(said["claim"])
            if key_of(one) not in self.measured:
                self._claims[key_of(one)] = (one, said["by"], float(said["at"]))
            return
        self._take(
            TriedConfiguration(
                self._configuration(said["configuration"]), tuple(said["seconds"]), said.get("failure", ""),
                float(said.get("value", math.nan)), said.get("metrics", {}), bool(said.get("pruned", False)),
            )
        )  # fmt: skip

    def _configuration(self, said: dict[str, Any]) -> Configuration:
        """A configuration with the space's own values: JSON has no tuples."""
        return {
            name: self._values[name].get(_json(value), value) if name in self._values else value
            for name, value in said.items()
        }

    def _add(self, said: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.add(json.loads(_json(said)))
            self._lines += 1


def described(space: Space) -> dict[str, Any]:
    """What a study's first line says of a space: its parameters, and its conditions where they are words."""
    values = {
        name: vars(one) if isinstance(one, Range) else [json.loads(_json(value)) for value in one]
        for name, one in space.values.items()
    }
    said = {name: one for name, one in space.conditions.items() if isinstance(one, str)}
    return {
        "values": values, "allowed": space.allowed if isinstance(space.allowed, str) else None,
        "conditions": said, "drawn": len(space.drawn),
    }  # fmt: skip


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    with suppress(AttributeError, ValueError):
        return value.item()  # a number of NumPy's
    return repr(value)


def _lives(by: str, at: float) -> bool:
    if by == ASKED:
        return time.time() - at < _STALE_SECONDS
    host, _, process = by.rpartition(":")
    if host != platform.node():
        return time.time() - at < _STALE_SECONDS
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
