"""Command-line programs as something to tune: `./prog -t {tile}`, run anew for each configuration."""

from __future__ import annotations

import re
import shlex
import shutil
import string
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apportion.advise.tuning import Tunable
from apportion.advise.tuning_bench import SECONDS
from apportion.errors import InvalidSetting
from apportion.measure.expression import condition_of
from apportion.measure.space import Configuration, Range, Space, Values

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_RANGE = re.compile(r"(?P<low>[^.:]+(?:\.\d+)?)\.\.(?P<high>[^:]+?)(?::(?P<more>log|[\d.eE+-]+))?")


class CommandFailed(Exception):
    """The command ended with another exit status than 0; the message says what it said last."""


def tunable_command(
    command: str,
    space: Space,
    *,
    objective: str = SECONDS,
    timeout: float = 600.0,
    default: Configuration | None = None,
) -> Tunable:
    """A command with its parameters to choose.

    Args:
        command: with parameters in braces, as in `./prog -t {tile}`; no shell is involved.
        objective: `seconds`, how long it runs; or `returned`: the last number that it prints.
        timeout: seconds after which a run counts as failed.
        default: what it is called with so far.

    Raises:
        InvalidSetting: it does not name each parameter of the space, or there is no such program.
    """
    words = shlex.split(command)
    if not words or shutil.which(words[0]) is None:
        raise InvalidSetting(f"There is no program {words[0] if words else ''!r}, or it cannot be executed")
    parts = [part for word in words for part in string.Formatter().parse(word)]
    named = {name for _, name, _, _ in parts if name is not None}
    if odd := sorted(named - set(space.values)):
        raise InvalidSetting(
            f"The command names {{{odd[0]}}}, which is no parameter: {', '.join(space.values)}"
        )
    if unused := sorted(set(space.values) - named):
        raise InvalidSetting(f"The command does not use the parameter {unused[0]!r}: write {{{unused[0]}}}")

    run = _Run(tuple(words), objective, timeout)
    return Tunable(run, space, default=default, objective=objective, how_to=run.how_to)


@dataclass(frozen=True)
class _Run:
    """A command that is run with the values of a configuration in its words."""

    words: tuple[str, ...]
    objective: str
    timeout: float

    @property
    def __name__(self) -> str:
        return Path(self.words[0]).name

    def how_to(self, one: Configuration) -> str:
        """The command of a configuration."""
        return f"To run it: {shlex.join(self._filled(one))}"

    def _filled(self, one: Configuration) -> list[str]:
        said = {name: "" if value is None else value for name, value in one.items()}
        return [word.format(**said) for word in self.words]

    def __call__(self, **one: Any) -> float | None:
        done = subprocess.run(
            self._filled(one), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False, timeout=self.timeout, errors="replace",
        )  # fmt: skip
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()
            raise CommandFailed(f"exit status {done.returncode}{': ' + last[-1] if last else ''}")
        if self.objective == SECONDS:
            return None
        numbers = _NUMBER.findall(done.stdout)
        if not numbers:
            raise CommandFailed("it printed no number")
        return float(numbers[-1])


def space_of(parameters: Sequence[str], *, allowed: str | None = None, when: Sequence[str] = ()) -> Space:
    """The space that words of the command line say.

    Args:
        parameters: `tile=8,16,32`, `threads=1..64`, `size=32..1024:32` or `rate=1e-4..1:log`.
        allowed: an expression over the parameters.
        when: `depth:mode=='tree'`: when a parameter means something.

    Raises:
        InvalidSetting: a word cannot be understood.
    """
    values: dict[str, Values] = {}
    for text in parameters:
        name, equals, said = text.partition("=")
        if not (equals and name.isidentifier() and said):
            raise InvalidSetting(f"Write a parameter like tile=8,16,32 or threads=1..64, not {text!r}")
        if name in values:
            raise InvalidSetting(f"The parameter {name!r} is there twice")
        match = _RANGE.fullmatch(said)
        values[name] = _range(match, text) if match else tuple(_value(part) for part in said.split(","))
    if not values:
        raise InvalidSetting("Give the parameters: --param tile=8,16,32")
    conditions = {}
    for text in when:
        name, colon, expression = text.partition(":")
        if not colon:
            raise InvalidSetting(f"Write a condition like depth:mode=='tree', not {text!r}")
        conditions[name] = expression
        condition_of(expression, values)
    return Space(values, allowed, conditions=conditions)


def configuration_of(parameters: Sequence[str], space: Space) -> Configuration:
    """The configuration that `name=value` words say.

    Raises:
        InvalidSetting: a word cannot be understood, or it is none of the space.
    """
    found: dict[str, Any] = {}
    for text in parameters:
        name, equals, said = text.partition("=")
        if not equals or name not in space.values:
            raise InvalidSetting(f"Write each parameter of the default like tile=16, not {text!r}")
        found[name] = _value(said)
    return found


def _range(match: re.Match[str], text: str) -> Range:
    low, high = _value(match["low"]), _value(match["high"])
    more = match["more"]
    if not all(isinstance(one, int | float) for one in (low, high)):
        raise InvalidSetting(f"A range goes from a number to a number: 1..64, not {text!r}")
    step = None if more in (None, "log") else _value(more)
    return Range(low, high, step, log=more == "log")


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def as_words(one: Mapping[str, Any]) -> str:
    """A configuration in one line."""
    return ", ".join(f"{name} = {value}" for name, value in one.items())
