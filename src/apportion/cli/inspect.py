"""`apportion inspect`: what a launch will take on each device, the best cut, and what each line adds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.advise.inspect import Inspection
from apportion.advise.inspect import inspect as inspect_launch
from apportion.advise.predicted_machine import PredictedMachine
from apportion.advise.queries import size_of
from apportion.cli.building import USUAL, Building
from apportion.cli.show import note, print_json, print_table
from apportion.errors import NoDevice
from apportion.program.siblings import own_lines
from apportion.runtime.backend import open_backend
from apportion.runtime.base import DeviceInfo

_LIST = Parameter(negative="")


def inspect(
    source: Path,
    *,
    global_size: Annotated[str, Parameter(name=["--global-size", "-n"])],
    local_size: Annotated[str | None, Parameter(name=["--local-size", "-l"])] = None,
    kernel: str | None = None,
    arg: Annotated[tuple[str, ...], _LIST] = (),
    model: str | None = None,
    building: Building = USUAL,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Predict what a launch takes on each device, the best cut between them, and what each source line adds.

    Nothing is run. The devices of this machine are predicted from their measured speeds (`apportion devices`
    measures them), those of the machines that shipped models learned from by these models.

    Args:
        source: A file of OpenCL C (.cl) or LLVM IR (.ll).
        global_size: All work-items, such as 1048576 or 1024x1024.
        local_size: The work-items of a work-group, such as 64 or 16x16. By default what the kernel asks for,
            else 64.
        kernel: The kernel's name. By default the first of the source.
        arg: An argument of the kernel, such as `n=1024` or `x=float32[N]`, written as for `apportion run`.
            Arguments that you leave out are assumed from the code and printed.
        model: A timing model, by its name or its folder; by default every shipped one. `apportion models`
            lists them.
        json: Print one JSON object.
    """
    text = building.source(source)
    found = inspect_launch(
        text,
        global_size=size_of(global_size, "--global-size"),
        local_size=None if local_size is None else size_of(local_size, "--local-size"),
        kernel=kernel,
        arguments=arg,
        devices=devices_here(),
        model=model,
    )
    if json:
        print_json(found.as_json())
        return
    for warning in found.warnings:
        note(f"Warning: {warning}.")
    for machine in found.machines:
        print_machine(machine)
    _print_lines(found, own_lines(str(text.text), text.name))
    print_assumed(found)


def devices_here() -> tuple[DeviceInfo, ...]:
    """The OpenCL devices of this machine; none where there is no driver."""
    try:
        with open_backend() as backend:
            return tuple(backend.devices())
    except (ImportError, NoDevice):
        return ()


def print_machine(machine: PredictedMachine) -> None:
    """Print what each device of a machine takes, and whether sharing is worth it."""
    rows = []
    for one in machine.devices:
        low, high = one.interval
        rows.append(
            (
                one.device, f"{1e3 * one.times.seconds:.3f}", f"{1e3 * low:.3f} to {1e3 * high:.3f}",
                one.bottleneck or "", f"{machine.cut.shares.get(one.device, 0):.0%}", one.name,
            )
        )  # fmt: skip
    columns = ("device", "alone, ms", "4 times in 5, ms", "bottleneck", "best share", "name")
    print_table(columns, rows, title=f"{machine.name} ({machine.origin})", right=(*columns[1:3], columns[4]))
    cut = machine.cut
    if cut.worth_sharing:
        said = (
            f"Sharing takes {1e3 * cut.seconds:.3f} ms, {cut.gain:.2f} times the speed of {cut.alone} alone"
        )
        chance = "" if cut.chance is None else f"; it is faster with probability {cut.chance:.0%}"
        note(f"{said}{chance}.")
    else:
        note(f"Sharing is not worth it: run it on {cut.alone}.")


def print_assumed(found: Inspection) -> None:
    """Print on stderr which arguments were assumed, and as what."""
    assumed = [f"{name}={word}" for name, word in found.arguments.items() if name not in found.given]
    if assumed:
        note(f"Assumed: {', '.join(assumed)}. Give what is known with --arg.")


def _print_lines(found: Inspection, text: tuple[str, ...]) -> None:
    where = next(iter(found.lines[0].seconds), None) if found.lines else None
    if where is None:
        return
    whole = sum(line.seconds[where] for line in found.lines) or 1.0
    rows = [
        (line.line or "", f"{line.times:,.0f}", f"{line.seconds[where] / whole:.0%}", _text(text, line.line))
        for line in found.lines
    ]
    columns = ("line", "times", "cost", "source")
    print_table(columns, rows, title=f"What each line adds on {where}", right=columns[:3])


def _text(lines: tuple[str, ...], number: int) -> str:
    return lines[number - 1].strip() if 0 < number <= len(lines) else "(moved by the compiler)"
