"""Answers for the devices of this machine: what each takes, how they should share a launch, and its worth."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from apportion.advise.predicted_machine import this_machine
from apportion.advise.prediction import Prediction
from apportion.advise.queries import Query
from apportion.advise.timed_share import planned_launches
from apportion.errors import InvalidSetting
from apportion.program.compile import CompileOptions
from apportion.runtime.base import DeviceInfo
from apportion.runtime.default_arguments import Assumption
from apportion.runtime.known_devices import known_devices

THIS_MACHINE = "this-machine"
"The pair that stands for the devices of this machine, as `apportion devices` found them last."
CONFIDENCE = 0.8
"The confidence of these answers: the spread of predicted times was measured for it."


def devices_asked(pair: str | None, model: str | Path | None, engine: str) -> tuple[DeviceInfo, ...] | str:
    """The devices of this machine where they are asked about; else why not, nothing where others were named.

    Raises:
        InvalidSetting: this machine was named, and fewer than two of its devices are known and calibrated, or
            an engine that evaluates no times.
    """
    if model is not None or pair not in (None, THIS_MACHINE):
        return ""
    known = known_devices()
    found = () if known is None else known.calibrated
    if engine != "numpy":
        reason = f"the engine {engine} evaluates models of shares alone, not times of this machine's devices"
    elif len(found) < 2:
        many = f"only {found[0].id} is known and calibrated" if found else "no calibrated device is known"
        reason = f"of this machine {many}: `apportion devices` finds and measures its devices"
    else:
        return found
    if pair == THIS_MACHINE:
        raise InvalidSetting(f"{THIS_MACHINE} cannot be predicted: {reason}")
    return reason


def on_this_machine(
    launch: Query, devices: Sequence[DeviceInfo], *, task: str, compile: CompileOptions | None = None
) -> Prediction:
    """What a launch takes on these devices, the best cut, and whether sharing is worth it.

    Args:
        devices: two or more, all calibrated.
        task: load-balance, or device-mapping for one device alone.

    Raises:
        InvalidSetting: the launch has no range that follows from its bytes, or an argument that cannot be
            made up.
        UnknownName: no such kernel.
        UnreadableFile, MalformedInput, JobError: the source, or compiling it, is at fault.
    """
    planned = planned_launches(launch, compile)
    began = time.perf_counter()
    # The first is what is likeliest; other guessed trip counts widen the interval.
    machine, *others = [this_machine(each, devices) for each in planned.launches]
    first = devices[0].id
    share = machine.cut.shares[first]
    ends = [end for one in (machine, *others) for end in one.cut.share_interval or (0.0, 1.0)]
    low, high = min(*ends, share), max(*ends, share)
    if task == "device-mapping":
        low, share, high = (float(end >= 0.5) for end in (low, float(machine.cut.alone == first), high))
    spent = {**planned.milliseconds, "predict": 1e3 * (time.perf_counter() - began)}
    return Prediction(
        share, (low, high), CONFIDENCE, 25 * round(4 * share), machine.cut.alone, machine.agreement,
        machine.model, spent, guesses(planned.assumed), planned.cut(share),
        assumed=tuple(map(str, planned.assumed)), machine=machine,
    )  # fmt: skip


def guesses(assumed: Sequence[Assumption]) -> tuple[str, ...]:
    """A warning where an answer may depend on what was guessed."""
    names = [each.name for each in assumed if each.guessed]
    if not names:
        return ()
    return (
        f"the answer may depend on {', '.join(names)}, which were assumed: the interval holds other values "
        "too; give them with --arg NAME=VALUE",
    )
