"""What `apportion.together` costs in a loop: beside plain pyopencl, and on two devices beside either alone.

    python -m benchmarks coexecution
    python -m benchmarks.coexecution --device gpu

Both launch the same kernel on the same arrays, in turn. Plain pyopencl works in this process on buffers over
the arrays (on a device with its own memory it copies them there and back); `together` in its worker process.
Then the first and the last device do half of the range each, at once and in turn: devices that did not get in
each other's way would take as long at once as the longer half takes alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from apportion.coexecution.sharing import Together
from apportion.runtime.base import DeviceInfo
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.memory import data_of, guarded
from apportion.runtime.opencl.platforms import worker_environment
from apportion.runtime.split import Split

SOURCE = """
kernel void turns(global const float *x, global float *y, int n) {
    int i = get_global_id(0);
    float v = x[i];
    for (int k = 0; k < n; k++) v = v * 0.999f + 0.5f;
    y[i] = v;
}
"""
COUNT = 1 << 18
MANY = 1 << 23
"Items where two devices share: enough for copies that several threads stage."
GROUP = 64
LENGTHS = (0.001, 0.01, 0.12)
"Seconds that a launch should take, about."
ROUNDS = 15


def main() -> None:
    arguments = _arguments()
    options = DriverOptions(threads=arguments.threads)
    os.environ.update(worker_environment(options))  # so that pyopencl here sees the worker's drivers
    print(f"{'device':8s} {'plain, ms':>10s} {'together, ms':>13s} {'ratio':>7s} {'overhead, µs':>13s}")
    with Together(SOURCE, drivers=options, trust=True) as kernel:
        for info in kernel.devices:
            if arguments.device in (None, info.id):
                for row in compare(kernel, info):
                    print(row, flush=True)
        if arguments.device is None and len(kernel.devices) > 1:
            print(f"{'halves':12s} {'longer, ms':>10s} {'at once, ms':>13s} {'ratio':>7s}")
            for row in halves(kernel):
                print(row, flush=True)


def compare(kernel: Together, info: DeviceInfo) -> Iterator[str]:
    """A line for each length of launch on one device."""
    x, y = kernel.array(COUNT, np.float32), kernel.array(COUNT, np.float32)
    x[:] = np.random.default_rng(0).random(COUNT)
    plain, result = _plain(info, np.array(x))

    def together(turns: int) -> None:
        kernel(x, y, turns, global_size=COUNT, local_size=GROUP, policy=info.id)

    turns = 64
    for wanted in LENGTHS:
        while turns < 1 << 24 and (taken := _fastest(plain, turns)) < 0.7 * wanted:
            turns = max(turns + 1, int(turns * min(4.0, wanted / taken)))
        together(turns)
        times: dict[str, list[float]] = {"plain": [], "together": []}
        for _ in range(ROUNDS):
            times["plain"].append(_seconds(plain, turns))
            times["together"].append(_seconds(together, turns))
        assert np.allclose(result, y, rtol=1e-5), "the two do not compute the same"
        # Of each pair, since the machine may be busy; the median of differences is not that of medians.
        over = statistics.median(b - a for a, b in zip(times["plain"], times["together"], strict=True))
        a, b = (statistics.median(times[name]) for name in ("plain", "together"))
        yield f"{info.id:8s} {1e3 * a:10.3f} {1e3 * b:13.3f} {b / a:7.3f} {1e6 * over:13.0f}"


def halves(kernel: Together) -> Iterator[str]:
    """A line for each length of launch on two devices; the medians of what the worker measured."""
    first, last = kernel.devices[0].id, kernel.devices[-1].id
    x, y = kernel.array(MANY, np.float32), kernel.array(MANY, np.float32)
    x[:] = 1
    turns = 1
    for wanted in LENGTHS:
        longer, both = _halves(kernel, (x, y, turns), (first, last), 3)
        while turns < 1 << 16 and longer < 0.7 * wanted:
            turns = max(turns + 1, int(turns * min(4.0, wanted / longer)))
            longer, both = _halves(kernel, (x, y, turns), (first, last), 3)
        longer, both = _halves(kernel, (x, y, turns), (first, last), ROUNDS)
        yield f"{first}+{last:8s} {1e3 * longer:10.3f} {1e3 * both:13.3f} {both / longer:7.3f}"


def _halves(
    kernel: Together, arguments: tuple[Any, ...], devices: tuple[str, str], rounds: int
) -> tuple[float, float]:
    """Seconds of the longer half alone, and of both at once."""
    bound = kernel.bind(*arguments, global_size=MANY, local_size=GROUP)
    times = [
        [outcome.seconds for _, outcome in launches]
        for launches in bound.apart(Split(dict.fromkeys(devices, 0.5)), rounds).values()
    ]
    both, *alone = map(statistics.median, times)
    return max(alone), both


def _plain(info: DeviceInfo, values: np.ndarray[Any, Any]) -> tuple[Callable[[int], None], Any]:
    """A launch by plain pyopencl, and the array it writes."""
    import pyopencl as cl  # here, since it reads the environment when it loads

    device = next(
        device
        for platform in cl.get_platforms()
        if platform.name.strip() == info.platform and platform.version.strip() == info.version
        for device in platform.get_devices()
        if device.name.strip() == info.name
    )
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, SOURCE).build()
    compiled = cl.Kernel(program, "turns")
    inside, outside = (data_of(guarded(values.nbytes), values.nbytes).view(np.float32) for _ in range(2))
    inside[:] = values
    if info.shares_memory:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        buffers = [cl.Buffer(context, flags, hostbuf=array) for array in (inside, outside)]
    else:
        buffers = [cl.Buffer(context, cl.mem_flags.READ_WRITE, values.nbytes) for _ in range(2)]

    def launch(turns: int) -> None:
        if not info.shares_memory:
            cl.enqueue_copy(queue, buffers[0], inside, is_blocking=False)
        compiled.set_args(*buffers, np.int32(turns))
        cl.enqueue_nd_range_kernel(queue, compiled, (COUNT,), (GROUP,))
        if not info.shares_memory:
            cl.enqueue_copy(queue, outside, buffers[1], is_blocking=False)
        queue.finish()

    return launch, outside


def _seconds(launch: Callable[[int], None], turns: int) -> float:
    started = time.perf_counter()
    launch(turns)
    return time.perf_counter() - started


def _fastest(launch: Callable[[int], None], turns: int) -> float:
    return min(_seconds(launch, turns) for _ in range(3))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", help="the id of one device; all when not given")
    parser.add_argument("--threads", type=int, help="threads of each CPU device")
    return parser.parse_args()


if __name__ == "__main__":
    main()
