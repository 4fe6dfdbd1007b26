"""Prediction: the answer to which share of a launch the CPU should take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apportion.advise.predicted_machine import PredictedMachine
from apportion.learn.shares.kernel_query import KnownKernel


@dataclass(frozen=True)
class Prediction:
    """The answer for one launch."""

    cpu_share: float
    "The part of the work that the CPU should take, from 0 to 1; with `machine`, that of its first device."
    interval: tuple[float, float]
    "It holds the best share of a kernel from a program never seen with probability `confidence`."
    confidence: float
    share_class: int
    "Of 0, 25, 50, 75 and 100 percent, the one that most trees are nearest to."
    device: str
    "Where the whole launch goes when it is not shared: cpu or gpu; with `machine`, the id of a device."
    familiarity: float
    """How near the kernel is to those learned from: 1 for one of them, 0 for one farther than any of them; 0
    too where calibrated speeds answer, which learned from none."""
    model: str
    milliseconds: dict[str, float]
    "compile, graph, predict."
    warnings: tuple[str, ...] = ()
    cpu_work_items: int | None = None
    "The share in whole work-groups, where the range of the launch is known."
    recovered: tuple[str, ...] | None = None
    "Functions that the source lacks and that were declared; None for a source that compiles as it is."
    assumed: tuple[str, ...] = ()
    "What was not given and the answer rests on, with its value and why: arguments, the range, the pair."
    chance: float | None = None
    """Of a model that was trained to name a device: of the held-out kernels for which it named this one, the
    part that were faster there."""
    machine: PredictedMachine | None = None
    "Where the answer is for this machine: what each of its devices takes, the best cut, and its worth."
    nearest: tuple[KnownKernel, ...] = ()
    "The kernels that the model learned from which are most like this one, nearest first."

    def as_json(self) -> dict[str, Any]:
        """The keys of `apportion predict --json`; warnings go another way."""
        return {
            "cpu_share": round(self.cpu_share, 4),
            "interval": [round(end, 4) for end in self.interval],
            "confidence": self.confidence,
            "class": self.share_class,
            "device": self.device,
            "familiarity": round(self.familiarity, 4),
            "model": self.model,
            "milliseconds": {stage: round(value, 3) for stage, value in self.milliseconds.items()},
            **({} if self.cpu_work_items is None else {"cpu_work_items": self.cpu_work_items}),
            **({} if self.recovered is None else {"recovered": list(self.recovered)}),
            **({"assumed": list(self.assumed)} if self.assumed else {}),
            **({"nearest": [near.as_json() for near in self.nearest]} if self.nearest else {}),
            **({} if self.chance is None else {"chance": self.chance}),
            **({} if self.machine is None else {"machine": _without_curve(self.machine.as_json())}),
        }


def _without_curve(machine: dict[str, Any]) -> dict[str, Any]:
    """A machine without the times of every cut, which `apportion inspect` tells."""
    return {**machine, "cut": {name: value for name, value in machine["cut"].items() if name != "curve"}}
