"""`apportion devices`: what kernels can run on."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note, print_json, print_table, size_in_words
from apportion.errors import NoDevice
from apportion.runtime.backend import open_backend, with_speeds
from apportion.runtime.base import UNHURRIED, DeviceInfo
from apportion.runtime.drivers import DriverOptions

_FLAG = Parameter(negative="")


def devices(
    *,
    calibrate: Annotated[bool, _FLAG] = False,
    quick: Annotated[bool, _FLAG] = False,
    pocl_instances: int | None = None,
    threads: int | None = None,
    backend: str = "opencl",
    json: Annotated[bool, _FLAG] = False,
) -> None:
    """List every OpenCL device: what it is, what it has, how fast it was measured to be, what is wrong with
    it.

    Args:
        calibrate: Measure every device again, and thoroughly. Without this option only devices that were
            never measured are measured, which takes some seconds each; the results are kept.
        quick: Measure nothing.
        pocl_instances: How many independent CPU devices PoCL offers. By default two if there is no other
            device, else one.
        threads: How many threads each CPU device uses.
        backend: The backend that has the devices: opencl, or one that another package registered.
        json: Print one line of JSON for each device.
    """
    drivers = DriverOptions(pocl_instances=pocl_instances, threads=threads)
    with open_backend(backend, drivers, UNHURRIED if calibrate else None) as opened:
        found = opened.calibrate() if calibrate else opened.devices() if quick else with_speeds(opened)
    if not found:
        raise NoDevice("No OpenCL device was found. Install one with: pip install 'apportion[opencl]'")
    if json:
        for info in found:
            print_json(info)
        return
    print_table(("id", "name, driver, compiler"), [(info.id, _described(info)) for info in found])
    columns = ("id", "units", "memory", "host memory", "copies, GB/s", "kernel, GB/s", "launch, µs")
    print_table(columns, [_row(info) for info in found], right=columns[1:])
    for info in found:
        for fault in info.faults:
            note(f"{info.id}: {fault}")
        note_left_out(info)


def note_left_out(info: DeviceInfo) -> None:
    """Tell what there was no time to measure on a device."""
    missing = info.calibration.left_out if info.calibration is not None else ()
    some = ", ".join(missing[:3])
    if missing:
        note(
            f"{info.id}: there was no time to measure {len(missing)} of its speeds ({some}, …): "
            "forecasts take usual values. Measure them with: apportion devices --calibrate"
        )


def _row(info: DeviceInfo) -> tuple[str, ...]:
    speeds = ("", "", "")
    if (measured := info.calibration) is not None:
        speeds = (
            f"{measured.to_device / 1e9:.1f} / {measured.from_device / 1e9:.1f}",
            f"{measured.memory / 1e9:.1f}",
            f"{measured.launch_seconds * 1e6:.0f}",
        )
    return (
        info.id, str(info.compute_units), size_in_words(info.memory_bytes),
        "shared" if info.shares_memory else "copied", *speeds,
    )  # fmt: skip


def _described(info: DeviceInfo) -> str:
    return "\n".join(each for each in (info.name, f"{info.platform} {info.driver}", info.compiler) if each)
