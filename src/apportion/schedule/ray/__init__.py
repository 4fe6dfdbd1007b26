"""Ray: tasks go to the systems where their class is predicted to be fast, by labels of nodes with fallbacks.

Nodes tell their system by a label: `ray start --labels system=lassen`, or `labels={"system": "lassen"}` in
a test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from apportion.errors import InvalidSetting

LABEL = "system"
SLOWEST = 4.0
"A system where a task would take more than this many times its best time is no fallback."


def placement_options(
    seconds: Mapping[str, float], *, label: str = LABEL, slowest: float = SLOWEST
) -> dict[str, Any]:
    """Options for a task, an actor or a placement group: the fastest system, then the next ones.

    Ray tries the fallbacks in order when no node with the first label can take the task.

    Args:
        seconds: predicted on each system; only ratios matter. Infinite: it cannot run there.
        label: of the nodes.
        slowest: systems that would take more than this many times the best time are left out.

    Raises:
        InvalidSetting: a time is not positive, or the task can run nowhere.
    """
    for name, value in seconds.items():
        if math.isnan(value) or value <= 0:
            raise InvalidSetting(f"The time on {name} must be positive, not {value}")
    able = {name: value for name, value in seconds.items() if math.isfinite(value)}
    if not able:
        raise InvalidSetting("The task can run on none of the systems: give one a finite time")
    least = min(able.values())
    first, *others = sorted(
        (name for name, value in able.items() if value <= slowest * least),
        key=lambda name: (able[name], name),
    )
    options: dict[str, Any] = {"label_selector": {label: first}}
    if others:
        options["fallback_strategy"] = [{"label_selector": {label: name}} for name in others]
    return options


def placed(task: Any, seconds: Mapping[str, float], *, label: str = LABEL, slowest: float = SLOWEST) -> Any:
    """The remote function or actor class, with those options: call `.remote(…)` on it."""
    return task.options(**placement_options(seconds, label=label, slowest=slowest))
