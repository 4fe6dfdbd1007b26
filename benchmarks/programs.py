"""Programs of many kernels: a session beside plain pyopencl, everything on one device or in the best
assignment found.

    python -m benchmarks.programs --devices cpu gpu --out programs.jsonl
    python -m benchmarks.programs --table programs.jsonl

Plain pyopencl works in this process, with data kept on the device, kernels bound once, and values set
only where they change. An assignment gives all launches of a kernel to one device; arrays move whole,
where a launch lacks them. The best one is searched from the better device alone, by moving one kernel at
a time. A session starts without knowing the program; each of its rounds is printed. Every method's
kernels were compiled by a round before. A round is all launches of the program, until the last has
ended; the results stay in place. What every method computed is compared with NumPy's result of the first
round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from apportion.advise.learned_policy import learned
from apportion.coexecution.session import Session
from apportion.coexecution.sharing import as_source
from apportion.errors import ApportionError
from apportion.program.compile import ir_of
from apportion.program.kernel.access import accesses_of
from apportion.runtime.backend import with_speeds
from apportion.runtime.base import DeviceInfo, LocalMemory
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.memory import data_of, guarded
from apportion.runtime.opencl.backend import OpenCLBackend
from apportion.runtime.opencl.platforms import worker_environment
from apportion.suite.programs import PROGRAMS
from apportion.suite.programs.base import Calls, Program, ProgramInstance, SessionCalls
from reproduction.packed_ir import pack, unpack

HOST = "host"
SESSION = "session"
EACH_SECONDS = 6.0
"For the rounds of one method on one program; the search for the best assignment may take three times that."


class PlainCalls(Calls):
    """Plain pyopencl on one device or several.

    Args:
        devices: id → its OpenCL device and description.
        assigned: kernel → id; the device of kernels that it does not name is the first one.
    """

    def __init__(
        self, program: Program, instance: ProgramInstance, devices: dict[str, tuple[Any, DeviceInfo]],
        assigned: dict[str, str], compiled: dict[Any, Any],
    ) -> None:  # fmt: skip
        import pyopencl as cl

        self.cl, self.devices, self.assigned = cl, devices, assigned
        source = program.source()
        ir = ir_of(source)
        self.access = accesses_of(ir, str(source.text))
        self.queues, self.programs = {}, {}
        for name, (device, _) in devices.items():
            if name not in compiled:
                context = cl.Context([device])
                compiled[name] = context, cl.CommandQueue(context)
            context, self.queues[name] = compiled[name]
            key = name, program.name
            if key not in compiled:
                compiled[key] = cl.Program(context, str(source.text)).build()
            self.programs[name] = compiled[key]
        self.home: dict[str, Any] = {}
        self.buffers: dict[tuple[str, str], Any] = {}
        self.valid: dict[str, set[str]] = {}
        for name, values in instance.arrays.items():
            self.home[name] = data_of(guarded(values.nbytes), values.nbytes)
            self.home[name][:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            self.valid[name] = {HOST}
        self.shapes = {name: (values.dtype, values.shape) for name, values in instance.arrays.items()}
        self.users: dict[str, str] = {}
        "Array → the device that used it last."
        self.bound: dict[Any, list[Any]] = {}
        self.names: list[str] = []

    def launch(self, kernel: str, *arguments: Any, global_size: Any, local_size: Any) -> None:
        fixed = tuple(value for value in arguments if isinstance(value, str | LocalMemory))
        key = kernel, fixed, global_size, local_size
        bound = self.bound.get(key)
        if bound is None:
            bound = self.bound[key] = self._bind(kernel, arguments)
        compiled, device, place, arrays, written, sent = bound
        for name in arrays:
            if (user := self.users.get(name)) is not None and user != device:
                self.queues[user].finish()  # queues of two devices do not wait for each other
            self.users[name] = device
            if place not in self.valid[name]:
                self._bring(name, device, place)
        values = [value for value in arguments if not isinstance(value, str | LocalMemory)]
        for number, value in zip(sent, values, strict=True):
            if sent[number] != value:
                compiled.set_arg(number, value)
                sent[number] = value
        self.cl.enqueue_nd_range_kernel(self.queues[device], compiled, global_size, local_size)
        for name in written:
            self.valid[name] = {place}

    def read(self, name: str) -> Any:
        self.finish()
        if HOST not in self.valid[name]:
            self._bring(name, None, HOST)
        kind, shape = self.shapes[name]
        return self.home[name].view(kind).reshape(shape)

    def finish(self) -> None:
        for queue in self.queues.values():
            queue.finish()

    def _bind(self, kernel: str, arguments: Any) -> list[Any]:
        if kernel not in self.names:
            self.names.append(kernel)
        device = self.assigned.get(kernel) or next(iter(self.devices))
        compiled = self.cl.Kernel(self.programs[device], kernel)
        place = HOST if self.devices[device][1].shares_memory else device
        use, arrays, written, sent = self.access[kernel].arguments, [], [], {}
        for number, value in enumerate(arguments):
            if isinstance(value, str):
                compiled.set_arg(number, self._buffer(value, device, place))
                arrays.append(value)
                if use[number].writes:
                    written.append(value)
            elif isinstance(value, LocalMemory):
                compiled.set_arg(number, self.cl.LocalMemory(value.nbytes))
            else:
                sent[number] = None
        return [compiled, device, place, list(dict.fromkeys(arrays)), list(dict.fromkeys(written)), sent]

    def _buffer(self, name: str, device: str, place: str) -> Any:
        key = name, device
        if key not in self.buffers:
            context, flags = self.queues[device].context, self.cl.mem_flags
            if place == HOST:
                buffer = self.cl.Buffer(
                    context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=self.home[name]
                )
            else:
                buffer = self.cl.Buffer(context, flags.READ_WRITE, self.home[name].nbytes)
            self.buffers[key] = buffer
        return self.buffers[key]

    def _bring(self, name: str, device: str | None, place: str) -> None:
        self.finish()  # of whoever wrote it
        if HOST not in self.valid[name]:
            (source,) = self.valid[name]
            self.cl.enqueue_copy(self.queues[source], self.home[name], self.buffers[name, source])
            self.valid[name].add(HOST)
        if place != HOST:
            assert device is not None
            buffer = self._buffer(name, device, place)
            self.cl.enqueue_copy(self.queues[device], buffer, self.home[name], is_blocking=False)
            self.valid[name].add(place)


def plain_devices(infos: list[DeviceInfo]) -> dict[str, tuple[Any, DeviceInfo]]:
    """Id → pyopencl's device, in this process."""
    import pyopencl as cl  # here, since it reads the environment when it loads

    found, seen = {}, set()
    for info in infos:
        for platform in cl.get_platforms():
            for device in platform.get_devices():
                same = (device.name.strip(), device.driver_version.strip(), platform.version.strip()) == (
                    info.name, info.driver, info.version,
                )  # fmt: skip
                if same and info.id not in found and device.int_ptr not in seen:
                    found[info.id] = device, info
                    seen.add(device.int_ptr)
    return found


def rounds_of(calls: Any, instance: ProgramInstance, finish: Any, rounds: int, until: float) -> list[float]:
    """Seconds of each round."""
    seconds: list[float] = []
    while len(seconds) < rounds and (len(seconds) < 2 or time.monotonic() < until):
        started = time.perf_counter()
        instance.steps(calls)
        finish()
        seconds.append(time.perf_counter() - started)
    return seconds


def said_of(program: Program, instance: ProgramInstance, calls: Any) -> str:
    """What is wrong after the first round; `ok` where nothing is."""
    found = {name: np.array(calls.read(name)) for name in instance.expected}
    return program.verify(instance.expected, found) or "ok"


def measure(
    program: Program,
    size: str,
    infos: list[DeviceInfo],
    backend: OpenCLBackend,
    rounds: int,
    check: bool,
    each: float = EACH_SECONDS,
) -> dict[str, Any]:
    """Every method on one program."""
    devices, compiled = plain_devices(infos), {}
    instance = program.instance(getattr(program, size))
    row: dict[str, Any] = {"program": program.name, "size": size, "said": {}, "rounds": {}}

    def plain(assigned: dict[str, str], name: str | None, count: int) -> tuple[list[float], list[str]]:
        calls = PlainCalls(program, instance, devices, assigned, compiled)
        first = rounds_of(calls, instance, calls.finish, 1, 0.0)
        if name is not None and check:
            row["said"][name] = said_of(program, instance, calls)
        return first + rounds_of(calls, instance, calls.finish, count, time.monotonic() + each), calls.names

    best: dict[str, str] = {}
    least = float("inf")
    kernels: list[str] = []
    for name in devices:
        everything = dict.fromkeys(_kernels(program), name)
        plain(everything, None, 1)  # drivers compile kernels for work-groups of a size when they see it
        row["rounds"][f"all {name}"], kernels = plain(everything, f"all {name}", rounds)
        if (taken := min(row["rounds"][f"all {name}"][1:])) < least:
            best, least = everything, taken
    end = time.monotonic() + 3 * each
    tried = len(devices)
    for kernel in kernels:
        for name in devices:
            if name != best[kernel] and time.monotonic() < end:
                taken = min(plain({**best, kernel: name}, None, 2)[0][1:])
                tried += 1
                if taken < 0.98 * least:
                    best, least = {**best, kernel: name}, taken
    row["assignment"], row["tried"] = {kernel: best[kernel] for kernel in kernels}, tried
    row["rounds"]["best assignment"], _ = plain(best, "best assignment", rounds)
    names = [info.id for info in infos]
    for name in names:
        with Session(names, backend=backend, predictor=learned) as session:
            calls = SessionCalls(session, program, instance.arrays, name)
            row["rounds"][f"session, all {name}"] = rounds_of(
                calls, instance, session.wait, rounds, time.monotonic() + each / 2
            )
    # A session that knows nothing of the program; its kernels are compiled, as those of the others are.
    with Session(names, backend=backend, predictor=learned) as session:
        calls = SessionCalls(session, program, instance.arrays)
        first = rounds_of(calls, instance, session.wait, 1, 0.0)
        if check:
            row["said"][SESSION] = said_of(program, instance, calls)
        row["rounds"][SESSION] = first + rounds_of(
            calls, instance, session.wait, rounds, time.monotonic() + 1.5 * each
        )
        row["decisions"] = [
            {"kernel": one.kernel, "device": one.device, "reason": one.reason, "launches": one.launches,
             "milliseconds": dict(one.milliseconds), "measured": list(one.measured)}
            for one in session.explain()
        ]  # fmt: skip
    return row


def _kernels(program: Program) -> list[str]:
    source = program.source()
    return list(accesses_of(ir_of(source), str(source.text)))


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    others = list(dict.fromkeys(name for row in rows for name in row["rounds"] if name.startswith("all ")))
    lines = [
        "| program | " + " | ".join(others) + " | best assignment | session: round 1 | 2 | 3 | later "
        "| later / best assignment | later / best device |",
        "|---|" + "---:|" * (len(others) + 7),
    ]
    ratios: dict[str, list[float]] = {"first": [], "assignment": [], "device": []}
    for row in rows:
        rounds = {name: [1e3 * each for each in seconds] for name, seconds in row["rounds"].items()}
        usual = {name: statistics.median(seconds[1:]) for name, seconds in rounds.items()}
        mine = rounds[SESSION]
        later = statistics.median(mine[2:] or mine[1:])
        assignment, device = usual["best assignment"], min(usual[name] for name in others)
        least = min(assignment, device)
        ratios["first"].append(mine[0] / min(rounds[name][0] for name in (*others, "best assignment")))
        ratios["assignment"].append(later / least)
        ratios["device"].append(later / device)
        cells = [*(usual[name] for name in others), assignment, *(mine + [mine[-1]] * 3)[:3], later]
        numbers = " | ".join(f"{each:.3f}" for each in cells)
        lines.append(f"| {row['program']} | {numbers} | {later / least:.3f} | {later / device:.3f} |")
    means = {name: statistics.geometric_mean(each) for name, each in ratios.items()}
    lines += [
        "",
        "Milliseconds of a round, medians without the first. Geometric means over "
        f"{len(rows)} programs, of the session's rounds from the third on: "
        f"{means['assignment']:.3f} of the best assignment or device, "
        f"{means['device']:.3f} of the best device (worst {max(ratios['device']):.2f}); its first round "
        f"takes {means['first']:.2f} times the quickest first round of the others.",
    ]
    wrong = [
        f"{row['program']} ({name}): {said}"
        for row in rows
        for name, said in row["said"].items()
        if said != "ok"
    ]
    checked = sum(len(row["said"]) for row in rows)
    lines.append(f"Results compared with NumPy's: {checked}, wrong: {len(wrong)}. {' '.join(wrong)}".strip())
    return "\n".join(lines)


def pack_all(path: Path) -> None:
    """Write the IR of everything that runs on a machine without a compiler."""
    from benchmarks import first_call, launchpath  # here: the one imports this module

    pack(path, [as_source(launchpath.SOURCE), as_source(first_call.SOURCE)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", nargs="+", default=None)
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS))
    parser.add_argument("--size", default="usual", choices=("small", "usual"))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no program after so long")
    parser.add_argument("--each", type=float, default=EACH_SECONDS, help="seconds of rounds for a method")
    parser.add_argument("--out", type=Path, default=Path("programs.jsonl"))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--pocl-instances", type=int)
    parser.add_argument("--copying", nargs="*", default=[])
    parser.add_argument("--unchecked", action="store_true", help="do not compare results with NumPy's")
    parser.add_argument("--pack", type=Path, help="write the programs' IR, and end")
    parser.add_argument("--ir", type=Path, help="what --pack wrote, where there is no compiler")
    parser.add_argument("--table", type=Path, help="print what an earlier run found")
    asked = parser.parse_args()
    if asked.pack:
        pack_all(asked.pack)
        return
    if asked.table:
        print(table([json.loads(line) for line in asked.table.read_text().splitlines()]))
        return
    if asked.ir:
        unpack(asked.ir)
    began = time.monotonic()
    options = DriverOptions(
        threads=asked.threads, pocl_instances=asked.pocl_instances, copying=tuple(asked.copying)
    )
    os.environ.update(worker_environment(options))  # so that pyopencl here sees the worker's drivers
    with OpenCLBackend(options) as backend, asked.out.open("a") as out:
        infos = [info for info in with_speeds(backend) if asked.devices is None or info.id in asked.devices]
        print(
            f"{time.monotonic() - began:.0f} s: calibrated {', '.join(info.name for info in infos)}",
            flush=True,
        )
        for name in asked.programs:
            if time.monotonic() - began > asked.seconds:
                print(f"no time for {name}")
                continue
            try:
                row = measure(
                    PROGRAMS[name], asked.size, infos, backend, asked.rounds, not asked.unchecked, asked.each
                )
            except ApportionError as error:
                print(f"{name}: {error}", flush=True)
                continue
            out.write(json.dumps(row) + "\n")
            out.flush()
            told = {
                method: round(1e3 * statistics.median(each[1:]), 3) for method, each in row["rounds"].items()
            }
            print(f"{time.monotonic() - began:.0f} s: {name} {told} {row['said']}", flush=True)


if __name__ == "__main__":
    main()
