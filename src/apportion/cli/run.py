"""`apportion run`: an OpenCL kernel on several devices at once, checked, beside each device alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from apportion.advise.launch_run import aimed_for, checked_bounds, run_launch
from apportion.advise.learned_policy import asking, learned
from apportion.cli.building import USUAL, Building
from apportion.cli.devices import note_left_out
from apportion.cli.show import note, print_json, print_table, progress, rounded
from apportion.coexecution import page as reports
from apportion.coexecution.compare import Comparison
from apportion.coexecution.launch_memory import IN_CACHE
from apportion.coexecution.objective import TIME, PowerModel, objective_of
from apportion.coexecution.sharing import Together
from apportion.errors import InvalidSetting
from apportion.program.kernel.bounds import NDRange, sizes_of
from apportion.runtime.arguments import arguments_for, save
from apportion.runtime.base import Limits
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.workload import beside
from apportion.settings import replace_file

if TYPE_CHECKING:
    from apportion.measure.counters.bounds_check import Checked

_LIST = Parameter(negative="")
_FLAG = Parameter(negative="")
WATTS = "--watts cpu=120:30"
_FORESEEING = ("learned+feedback", "learned", "bayes", "dynamic", "static")
"Policies that ask how fast devices are."


def run(
    source: Path,
    *,
    global_size: Annotated[str, Parameter(name=["--global-size", "-n"])],
    local_size: Annotated[str | None, Parameter(name=["--local-size", "-l"])] = None,
    kernel: str | None = None,
    arg: Annotated[tuple[str, ...], _LIST] = (),
    out: Annotated[tuple[str, ...], _LIST] = (),
    split: str = "auto",
    objective: str = "time",
    watts: Annotated[tuple[str, ...], _LIST] = (),
    model: str | None = None,
    devices: str | None = None,
    merge: Annotated[tuple[str, ...], _LIST] = (),
    repeat: int = 3,
    seed: int = 0,
    check: Annotated[bool, _FLAG] = False,
    trust: Annotated[bool, _FLAG] = False,
    trust_source: Annotated[bool, _FLAG] = False,
    fresh: Annotated[bool, _FLAG] = False,
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
        source: A file of OpenCL C.
        global_size: All work-items: `1048576`, or `1024x1024` for two dimensions.
        local_size: The work-items of a work-group, such as `64` or `16x16`. By default one that suits all
            devices.
        kernel: The kernel's name, if the file has several.
        arg: One argument of the kernel. An array: `x=float32[N]`, `x=data.npy`, filled with `=zeros`,
            `=ones`, `=range`, `=random` or `=below:N`. A number: `n=N0`, `n=int32:4096`. Local memory:
            `t=local:1024`. A vector or a structure: `v=1,2,3`. An image: `img=image2d:rgba8[1024,768]`,
            `img=photo.png`; a sampler: `s=sampler:clamp,linear`. Sizes may use N (all work-items), N0, N1, L,
            L0 and so on. Arguments that you leave out are assumed from the code and printed.
        out: Write an array to a file after the run: `y=result.npy`.
        split: Who gets how much: auto (the same as learned+feedback), learned, bayes (tries what may save
            more than a trial costs), dynamic, static, even, oracle, the id of one device, or the share of
            the first device, from 0 to 1.
        objective: What the split is chosen for: time, energy, edp (energy times time), or a limit such as
            250W, the shortest time that draws no more. Watts are measured where a meter may be read.
        watts: What a device draws while it works, and when idle, where nothing measures it: `cpu=120:30`.
        model: The timing model that predicts the first launch, by its name or its folder. By default the
            shipped one that fits the devices, else their measured speeds. `apportion models` lists them.
        devices: The ids of the devices to use, separated by commas. By default all.
        merge: How the devices' results for an argument are combined: `y=sum`. Needed only where the analysis
            of the code cannot tell.
        repeat: How many timed runs; the median is printed.
        seed: Seed of the random numbers in arrays that you did not give.
        check: First run every work-group under bounds checks. An access outside an array, local memory or a
            constant is reported with its line, index and work-item, and the kernel does not run. Without this
            option, some work-groups are checked, and only if the code does not prove that every access stays
            inside.
        trust: Skip all checks: neither bounds checks nor the comparison of the first run with one device's.
        trust_source: Run a source that has inline assembly or code that only some compilers read.
        fresh: Forget what earlier runs learned about this launch, and start without it.
        seconds: The deadline of each launch, in seconds.
        require_confinement: Do not run if this machine cannot confine the process that runs kernels.
        threads: How many threads each CPU device uses.
        backend: What runs the kernel: opencl, or replay:FOLDER, which replays recorded times and computes
            nothing.
        json: Print one line of JSON.
        report: Write an HTML page with the time of every cut.
    """
    merges = dict(pair_of(text, "--merge y=sum") for text in merge)
    outputs = [pair_of(text, "--out y=result.npy") for text in out]
    given = dict(pair_of(text, WATTS) for text in watts)
    aim = objective_of(objective)
    if aim != TIME and split != "auto":
        raise InvalidSetting("--objective chooses the split itself: leave --split out")
    with Together(
        building.source(source, "opencl"),
        kernel,
        devices.split(",") if devices else None,
        policy=_policy(split),
        predictor=learned if model is None else asking(model),
        merges=merges,
        trust=trust,
        trust_source=trust_source,
        limits=Limits(seconds=seconds, require_confinement=require_confinement),
        drivers=DriverOptions(threads=threads),
        backend=backend,
        memory=IN_CACHE,
        fresh=fresh,
    ) as shared:
        shape = sizes_of(global_size, "--global-size")
        local = sizes_of(local_size, "--local-size") if local_size is not None else shared.local_size(shape)
        arguments = arguments_for(
            shared.signature, shared.access, NDRange(shape, local),
            beside(shared.source, shared.signature, arg), seed=seed,
        )  # fmt: skip
        values = arguments.values
        if arguments.assumed:
            note(f"Assumed: {', '.join(map(str, arguments.assumed))}.")
        checked = checked_bounds(shared, arguments, whole=check, trust=trust)
        bound = shared.bind(*values.values(), global_size=shape, local_size=local)
        for name, _ in outputs:
            shared.signature.argument(name)
        if shared.strangers and _policy(split) in _FORESEEING:
            names = ", ".join(shared.strangers)
            most = Limits().calibration_seconds
            note(
                f"Calibrating {names}: what a device does per second is measured once, in about {most:g} s a "
                "device, and kept."
            )
            new = list(progress(shared.calibrate_each(), label="Calibrating", total=len(shared.strangers)))
            for info in shared.devices:
                if info.id in new:
                    note_left_out(info)
        power = aimed_for(shared, aim, given)
        ran = run_launch(
            shared, bound, arguments, checked=checked, repeats=repeat, cuts=report is not None, power=power
        )
        comparison = ran.comparison
        if ran.printed and not json:
            note(f"The kernel printed:\n{ran.printed}")
        for name, path in outputs:
            save(Path(path), name, values)
        if report is not None:
            replace_file(report, reports.page(comparison, shared.devices))
        if json:
            print_json(rounded(ran.as_json()))
        else:
            _print(comparison, checked, {info.id: info.name for info in shared.devices})
            if (energy := ran.energy()) is not None and power is not None:
                note(_energy_in_words(energy, power))


def _energy_in_words(energy: dict[str, Any], power: PowerModel) -> str:
    alone = ", ".join(f"{name} alone {joules:.3g} J" for name, joules in energy["alone"].items())
    watts = ", ".join(f"{name} {power.active[name]:.0f} W ({said})" for name, said in power.origin.items())
    return (
        f"Energy: {energy['joules']:.3g} J a launch{f'; {alone}' if alone else ''}. "
        f"While they work: {watts}; idle {power.idle:.0f} W."
    )


def _print(comparison: Comparison, checked: Checked | None, names: dict[str, str]) -> None:
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
    same = "yes, results are those of one device alone" if execution.verified else "no"
    note(f"Verified: {same}. Conflicts: {execution.conflicts}.")
    if checked is not None:
        note(f"{checked}.")
    if (said := comparison.in_words) is not None:
        note(said)


def _policy(split: str) -> str:
    return "learned+feedback" if split == "auto" else split


def pair_of(text: str, example: str) -> tuple[str, str]:
    """The name and the value of an option such as the example.

    Raises:
        InvalidSetting: it is not written so.
    """
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise InvalidSetting(f"Write it like {example}, not {text!r}")
    return name, value
