"""`apportion run`: an OpenCL kernel on several devices at once, checked, beside each device alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.advise.learned_policy import learned
from apportion.cli.building import USUAL, Building
from apportion.cli.show import note, print_json, print_table
from apportion.coexecution import page as reports
from apportion.coexecution.compare import Comparison, compare
from apportion.coexecution.sharing import Together
from apportion.errors import InvalidSetting, UnreadableFile
from apportion.program.kernel.bounds import NDRange
from apportion.runtime.arguments import arguments_for, save
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.workload import beside

_LIST = Parameter(negative="")
_FLAG = Parameter(negative="")


def run(
    source: Path,
    *,
    global_size: Annotated[str, Parameter(name=["--global-size", "-n"])],
    local_size: Annotated[str | None, Parameter(name=["--local-size", "-l"])] = None,
    kernel: str | None = None,
    arg: Annotated[tuple[str, ...], _LIST] = (),
    out: Annotated[tuple[str, ...], _LIST] = (),
    split: str = "auto",
    devices: str | None = None,
    merge: Annotated[tuple[str, ...], _LIST] = (),
    repeat: int = 3,
    seed: int = 0,
    trust: Annotated[bool, _FLAG] = False,
    building: Building = USUAL,
    seconds: float = 60.0,
    require_confinement: Annotated[bool, _FLAG] = False,
    threads: int | None = None,
    backend: str = "opencl",
    json: Annotated[bool, _FLAG] = False,
    report: Path | None = None,
) -> None:
    """Split a kernel's range between devices, run it on all at once, merge, check, and compare.

    Args:
        source: a file of OpenCL C.
        global_size: work-items: `1048576`, or `1024,1024` for two dimensions.
        local_size: work-items of a work-group, likewise; chosen when not given.
        kernel: the kernel's name, where the file has several.
        arg: `x=float32[N]`, `x=data.npy`, `n=N0`, `n=int32:4096`, `t=local:1024`, `v=1,2,3` for a vector or
            a structure, `img=image2d:rgba8[1024,768]`, `img=photo.png`, `s=sampler:clamp,linear`; sizes in N
            (all work-items), N0, N1, L, L0 …; arrays may be filled: `=zeros`, `=ones`, `=range`, `=random`,
            `=below:N`. What is not given is assumed from the code, and told.
        out: `y=result.npy`: write an array after the run.
        split: auto (that is learned+feedback), learned, dynamic, static, even, oracle, the name of a device,
            or the share of the first device.
        devices: ids of the devices to use, with commas between them; all when not given.
        merge: `y=sum`: how results of an argument are put together, where you know better than the analysis.
        repeat: timed runs; the median is told.
        seed: of the arrays that are made up.
        trust: do not compare the first run with one device's.
        seconds: the deadline of each launch.
        require_confinement: refuse to run where this machine cannot confine the process that runs kernels.
        threads: threads of each CPU device.
        backend: what runs the kernel: opencl, or replay:FOLDER with a recording, which computes nothing.
        json: print one line of JSON.
        report: write an HTML page with the curve of cuts.
    """
    merges = dict(_pair(text, "--merge y=sum") for text in merge)
    outputs = [_pair(text, "--out y=result.npy") for text in out]
    with Together(
        building.source(source, "opencl"),
        kernel,
        devices.split(",") if devices else None,
        policy=_policy(split),
        predictor=learned,
        merges=merges,
        trust=trust,
        limits=Limits(seconds=seconds, require_confinement=require_confinement),
        drivers=DriverOptions(threads=threads),
        backend=backend,
    ) as shared:
        shape = _sizes(global_size, "--global-size")
        local = _sizes(local_size, "--local-size") if local_size is not None else shared.local_size(shape)
        arguments = arguments_for(
            shared.signature, shared.access, NDRange(shape, local),
            beside(shared.source, shared.signature, arg), seed=seed,
        )  # fmt: skip
        values = arguments.values
        if arguments.assumed:
            note(f"Assumed: {', '.join(map(str, arguments.assumed))}.")
        bound = shared.bind(*values.values(), global_size=shape, local_size=local)
        for name, _ in outputs:
            shared.signature.argument(name)
        comparison = compare(bound, shared.policy, repeats=repeat, cuts=report is not None)
        bound.binding.give_back()
        for name, path in outputs:
            save(Path(path), name, values)
        if report is not None:
            _write(report, reports.page(comparison, shared.devices))
        if json:
            held = shared.backend.confinement()
            print_json(
                comparison.as_json()
                | {
                    "assumed": [str(each) for each in arguments.assumed],
                    "confinement": held.as_json() if held else None,
                }
            )
        else:
            _print(comparison, {info.id: info.name for info in shared.devices})


def _print(comparison: Comparison, names: dict[str, str]) -> None:
    execution = comparison.execution
    print_table(
        ("device", "share", "alone, ms", "name"),
        [
            (
                device,
                f"{execution.split.get(device, 0):.1%}",
                f"{execution.alone[device] * 1e3:.3f}" if device in execution.alone else "",
                name,
            )
            for device, name in names.items()
        ],
        title=f"{comparison.kernel}: {execution.seconds * 1e3:.3f} ms",
        right=("share", "alone, ms"),
    )
    if execution.merge:
        print_table(("argument", "merge"), execution.merge.items())
    note(f"Policy {execution.policy}: {execution.reason}.")
    note(f"Verified: {'yes' if execution.verified else 'no'}. Conflicts: {execution.conflicts}.")
    if comparison.speedup is not None:
        note(f"{comparison.speedup:.2f} times the speed of the best device alone.")


def _policy(split: str) -> str:
    return "learned+feedback" if split == "auto" else split


def _pair(text: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise InvalidSetting(f"Write it like {example}, not {text!r}")
    return name, value


def _sizes(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise InvalidSetting(
            f"{option} must be a number, or two or three with commas between, not {text!r}"
        ) from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UnreadableFile(f"Cannot write {path}: {error.strerror}") from error
