"""One function over many inputs, on this machine or another: see `base.Runner`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apportion.jobs.base import Outcome, Runner
from apportion.registry import Registry

if TYPE_CHECKING:
    from apportion.jobs.local import LocalRunner

runners = Registry(
    "runner",
    {
        "local": "apportion.jobs.local:LocalRunner",
        "ray": "apportion.jobs.ray:RayRunner",
        "slurm": "apportion.jobs.slurm:SlurmRunner",
    },
    extras={"ray": "ray"},
)
"Where work can be done, by name."


def runner_of(text: str, *, workers: int | None = None, deadline_seconds: float | None = None) -> Runner:
    """The runner that a user writes: `local`, `ray` (this machine or RAY_ADDRESS), `ray:HOST:PORT`,
    `ray://HOST:PORT` (Ray's client), `slurm`, or `slurm:PARTITION`; or one that another package offers.

    Raises:
        UnknownName: there is none of that name.
        InvalidSetting: it knows no such place.
        MissingPackage: it needs a package that is not installed.
    """
    name, _, place = text.partition(":")
    opened: Runner = runners.load(name).at(place, workers=workers, deadline_seconds=deadline_seconds)
    return opened


def __getattr__(name: str) -> object:
    # Every process that runs kernels starts by importing this package, and most need no runner.
    if name != "LocalRunner":
        raise AttributeError(f"module 'apportion.jobs' has no attribute {name!r}")
    return runners.load("local")


__all__ = ["LocalRunner", "Outcome", "Runner", "runner_of", "runners"]
