"""apportion: which device should do how much of this work, and how sure are we?

The public names load when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "ApportionError": "apportion.errors:ApportionError",
    "ProgramGraph": "apportion.program.graph:ProgramGraph",
    "Source": "apportion.program.source:Source",
    "graph_of": "apportion.program:graph_of",
    "predict": "apportion.advise.predictor:predict",
    "together": "apportion.advise.learned_policy:together",
    "tune": "apportion.advise.tuning:tune",
    "Tunable": "apportion.advise.tuning:Tunable",
    "LocalMemory": "apportion.runtime.base:LocalMemory",
}

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604 (the names are the keys of a dict of strings)


def __getattr__(name: str) -> Any:
    target = _PUBLIC.get(name)
    if target is None:
        raise AttributeError(f"module 'apportion' has no attribute {name!r}")
    module, _, attribute = target.partition(":")
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
