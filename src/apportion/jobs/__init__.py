"""One function over many inputs, on this machine or another: see `base.Runner`."""

from __future__ import annotations

from apportion.jobs.base import Outcome, Runner
from apportion.jobs.local import LocalRunner
from apportion.registry import Registry

runners = Registry("runner", {"local": "apportion.jobs.local:LocalRunner"})
"Where work can be done, by name."

__all__ = ["LocalRunner", "Outcome", "Runner", "runners"]
