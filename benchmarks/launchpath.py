"""What one launch costs in a loop, stage by stage: plain pyopencl, a session with and without a process
between.

    python -m benchmarks.launchpath --device gpu

A kernel over 1,024 work-items that does next to nothing is bound once and launched again and again. `queue`:
from the Python call until the launch is handed on, with nobody waiting. `each`: the same loop with one wait
at its end, divided by the launches: what a program of short kernels pays. `there and back`: a launch and a
wait, again and again. Methods take turns; medians over the turns, in microseconds. `share` is a bound kernel
of `apportion.share` with everything to one device: it waits by its nature. `a byte there and back` is what a
process that only answers takes: no isolation costs less.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from apportion.coexecution.session import Session
from apportion.coexecution.sharing import Together
from apportion.runtime.backend import info_of, open_backend
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.platforms import worker_environment
from benchmarks.programs import plain_devices
from reproduction.packed_ir import unpack

SOURCE = """
kernel void little(global float *x, float a) { x[get_global_id(0)] += a; }
"""
COUNT, LOOP, TURNS = 1024, 200, 15
Method = tuple[Callable[[], Any], Callable[[], Any]]
"A launch, and a wait for all launches."


def plain(info: Any) -> Method:
    """Plain pyopencl, bound once."""
    import pyopencl as cl  # here, since it reads the environment when it loads

    device, _ = plain_devices([info])[info.id]
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    kernel = cl.Kernel(cl.Program(context, SOURCE).build(), "little")
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * COUNT)
    kernel.set_args(buffer, np.float32(0))

    def launch(kept: Any = buffer) -> None:  # a kernel does not keep its buffer alive
        cl.enqueue_nd_range_kernel(queue, kernel, (COUNT,), (64,))

    return launch, queue.finish


def of_session(session: Session, device: str) -> Method:
    """A session, bound once."""
    x = session.array(np.zeros(COUNT, np.float32))
    bound = session.kernel(SOURCE, "little").bind(
        x, np.float32(0), global_size=COUNT, local_size=64, device=device
    )
    return bound, session.wait


def of_answering_process() -> Method:
    """A byte to another process and back."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        while said := theirs.recv(1):
            theirs.send(said)
        os._exit(0)
    theirs.close()

    def there_and_back() -> None:
        ours.send(b"?")
        ours.recv(1)

    return there_and_back, lambda: None


def of_together(kernel: Together, device: str) -> Method:
    """A kernel that is shared, with everything to one device."""
    x = kernel.array(COUNT, np.float32)
    bound = kernel.bind(x, np.float32(0), global_size=COUNT, local_size=64)
    return (lambda: bound.run(device)), (lambda: None)


def measured(methods: dict[str, Method]) -> dict[str, dict[str, float]]:
    """Medians in microseconds of each method's stages, in turn."""
    times: dict[str, dict[str, list[float]]] = {
        name: {"queue": [], "each": [], "there and back": []} for name in methods
    }
    for launch, wait in methods.values():
        for _ in range(20):
            launch()
        wait()
    for _ in range(TURNS):
        for name, (launch, wait) in methods.items():
            started = time.perf_counter()
            for _ in range(LOOP):
                launch()
            queued = time.perf_counter()
            wait()
            ended = time.perf_counter()
            for _ in range(LOOP):
                launch()
                wait()
            times[name]["queue"].append(1e6 * (queued - started) / LOOP)
            times[name]["each"].append(1e6 * (ended - started) / LOOP)
            times[name]["there and back"].append(1e6 * (time.perf_counter() - ended) / LOOP)
    return {
        name: {stage: round(statistics.median(each), 2) for stage, each in stages.items()}
        for name, stages in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--ir", type=Path, help="what `benchmarks.programs --pack` wrote")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.ir:
        unpack(asked.ir)
    drivers = DriverOptions(threads=asked.threads)
    answering = of_answering_process()  # before there are threads
    os.environ.update(worker_environment(drivers))
    with (
        open_backend("opencl", drivers) as backend,
        open_backend("opencl-direct", drivers) as direct,
        Session([asked.device], backend=backend) as session,
        Session([asked.device], backend=direct) as near,
        Together(SOURCE, "little", [asked.device], backend=backend) as shared,
    ):
        found = measured({
            "plain pyopencl": plain(info_of(asked.device, backend.devices())),
            "session, opencl-direct": of_session(near, asked.device),
            "session": of_session(session, asked.device),
            "share": of_together(shared, asked.device),
            "a byte there and back": answering,
        })  # fmt: skip
    if asked.json:
        print(json.dumps({"device": asked.device, **found}))
        return
    print(f"{'':24s} {'queue':>8s} {'each':>8s} {'there and back':>16s}   µs, on {asked.device}")
    for name, stages in found.items():
        print(f"{name:24s} {stages['queue']:8.1f} {stages['each']:8.1f} {stages['there and back']:16.1f}")


if __name__ == "__main__":
    sys.exit(main())
