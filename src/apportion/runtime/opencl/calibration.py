"""Calibrating a device: what it does per second, and what its operations are worth in multiply-adds.

A sine costs a GPU as much as a dozen multiply-adds and PoCL on a CPU as much as a hundred; an atomic
addition differs even more. Tables of such numbers fit one device, so every device is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from apportion.runtime import memory
from apportion.runtime.base import Calibration
from apportion.runtime.opencl.queue import OwnBuffer, Queue
from apportion.runtime.plan import Build

_GROUP = 64
_MULTIPLY_ADDS = 4
"Of a work-item in a turn of the kernel `multiply`."
_COUNTERS = 1024
_MOST = 1 << 18
_LEAST_SECONDS = 1e-3
"What takes less is asked for more of: most of its time would be what any launch takes."
_ROUNDS = 6
_OPERATIONS = {
    "divisions": 2, "roots": 2, "powers": 2, "angles": 2, "integer operations": 8, "global atomics": 1,
    "double operations": 4, "double functions": 2, "long divisions": 1,
    "builtins": 4,
}  # fmt: skip
"What a work-item does in a turn of the kernel `operations`, in its order → how many of them."
_CROWDED = ("global atomics", "double functions", "builtins")
"What is not asked of a work-item alone: atomics are dear where many meet; functions are asked for in floats."


def calibrate(queue: Queue, until: float = float("inf")) -> Calibration:
    """Measure: copies of 32 MiB each way, a kernel that streams, one that multiplies, an empty one; then one
    for each kind of operation, work-groups that wait for each other, and operations by one work-item alone.

    Args:
        until: a time of `time.monotonic`. What would begin later than that is left out, but for the rates.
    """
    count = 1 << 23
    host = memory.data_of(memory.guarded(4 * count), 4 * count)
    host[:] = 1  # pages that nobody wrote to are all one page
    copied = OwnBuffer(queue, 4 * count)
    buffers = [copied.data, cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * count)]

    def there() -> None:
        copied.upload(queue, host, (0, 4 * count))
        queue.queue.finish()

    def back() -> None:
        copied.download(queue, host, (0, 4 * count))
        queue.queue.finish()

    copies = [_fastest(there), _fastest(back)]
    cl.enqueue_copy(queue.queue, buffers[1], host, is_blocking=True)
    stream = _fastest(lambda: _wait(queue, "stream", count, *buffers))
    empty = _fastest(lambda: _wait(queue, "empty", _GROUP, buffers[0]), 20)
    many = _GROUP * queue.info.compute_units * (64 if queue.info.kind == "gpu" else 4)
    multiply = _seconds_each(partial(_run_trips, queue, "multiply", many, (buffers[0],)))
    arithmetic = many * _MULTIPLY_ADDS / multiply
    measured, left_out = _within(until, _tables(queue, many, buffers))
    worth = {name: arithmetic * seconds for (table, name), seconds in measured.items() if table == "worth"}
    # Calls, without what is done in them, which is counted on its own.
    if {"builtins", "integer operations"} <= set(worth):
        worth["builtins"] = max(0.0, worth["builtins"] - (worth["integer operations"] + 1) / 2)
    if {"double functions", "angles", "powers"} <= set(worth):  # counted on top of those in single precision
        single = (worth["angles"] + worth["powers"]) / 2
        worth["double functions"] = max(0.0, worth["double functions"] - single)
    return Calibration(
        to_device=4 * count / copies[0],
        from_device=4 * count / copies[1],
        memory=8 * count / stream,
        arithmetic=arithmetic,
        launch_seconds=empty,
        worth=worth,
        latency={name: seconds for (table, name), seconds in measured.items() if table == "latency"},
        left_out=tuple(" ".join(place) for place in left_out),
    )


def exercise(queue: Queue, seconds: float) -> None:
    """Keep every processor of the device busy for about this long, once what it runs is compiled."""
    items = _GROUP * queue.info.compute_units
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * items)
    trips = 64
    todo = partial(_run_trips, queue, "multiply", items, (buffer,))
    todo(1)
    while True:
        taken = _seconds(partial(todo, trips))
        if taken >= seconds or trips == _MOST:
            return
        trips = min(_MOST, trips * max(2, int(seconds / taken)))


_Place = tuple[str, str]
"A table of `Calibration`, and a name in it."
_Measure = Callable[[], float]


def _tables(queue: Queue, many: int, buffers: list[cl.Buffer]) -> Iterator[tuple[_Place, _Measure]]:
    """What the tables hold, and what measures its seconds; what decides most forecasts comes first."""
    operations = [
        (number, name, each)
        for number, (name, each) in enumerate(_OPERATIONS.items())
        if queue.info.double_precision or not name.startswith("double")
    ]

    def turn(kernel: str, items: int, *arguments: Any, parts: int) -> Callable[[], float]:
        return lambda: _seconds_each(partial(_run_trips, queue, kernel, items, arguments)) / parts

    for number, name, each in operations:
        yield ("worth", name), turn("operations", many, *buffers, _integer(number), parts=many * each)
    shared = cl.LocalMemory(4 * _GROUP)
    yield ("worth", "barriers"), turn("barriers", many, buffers[0], shared, parts=2 * many)
    yield (
        ("worth", "groups"),
        lambda: _seconds_each(lambda some: _wait(queue, "empty", _GROUP * some, buffers[0]), 1 << 8),
    )
    # The same by one work-item: what it takes when nothing else is there to be done meanwhile.
    yield ("latency", "float operations"), turn("multiply", 1, buffers[0], parts=_MULTIPLY_ADDS)
    yield ("latency", "waits"), lambda: _seconds_each(partial(_hand_over, queue, buffers), 1 << 6)
    for number, name, each in operations:
        if name not in _CROWDED:
            yield ("latency", name), turn("operations", 1, *buffers, _integer(number), parts=each)


def _within(
    until: float, wanted: Iterable[tuple[_Place, _Measure]]
) -> tuple[dict[_Place, float], list[_Place]]:
    """The seconds of what was measured until then, and what was not."""
    measured, left_out = {}, []
    for place, measure in wanted:
        if time.monotonic() < until:
            measured[place] = measure()
        else:
            left_out.append(place)
    return measured, left_out


def _hand_over(queue: Queue, buffers: list[cl.Buffer], groups: int) -> None:
    """Run work-groups each of which waits for the one before it."""
    groups = min(groups, _MOST)
    zero = np.zeros(1, np.int32)
    cl.enqueue_fill_buffer(queue.queue, buffers[1], zero, 0, 4 * (groups + 1))
    _wait(queue, "hand_over", _GROUP * groups, buffers[1])


def _run_trips(queue: Queue, kernel: str, items: int, arguments: tuple[Any, ...], trips: int) -> None:
    """Run a kernel whose last argument is the trip count of its loop."""
    _wait(queue, kernel, items, *arguments, _integer(trips))


def _integer(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _wait(queue: Queue, kernel: str, items: int, *arguments: cl.Buffer | cl.LocalMemory | bytes) -> None:
    compiled = queue.kernel(Build(_OPERATIONS_SOURCE if kernel == "operations" else _SOURCE, kernel))
    compiled.set_args(*arguments)
    cl.enqueue_nd_range_kernel(queue.queue, compiled, (items,), (min(items, _GROUP),)).wait()


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _fastest(action: Callable[[], object], times: int = 4) -> float:
    """Seconds of the fastest of a few calls, the first of which warms up."""
    action()
    return min(_seconds(action) for _ in range(times))


def _seconds_each(action: Callable[[int], object], amount: int = 1) -> float:
    """Seconds that one more of something takes: what is the same for any amount, such as waking up a thread
    for each processor, is not in it.

    The fastest of several are compared, in turn: whoever else uses the machine must not make one of them
    dear.
    """
    action(amount)
    while min(_seconds(partial(action, 4 * amount)) for _ in range(3)) < _LEAST_SECONDS and amount < _MOST:
        amount *= 4
    few = many = float("inf")
    for _ in range(_ROUNDS):
        few = min(few, _seconds(partial(action, amount)))
        many = min(many, _seconds(partial(action, 4 * amount)))
    return max(many - few, 0.02 * many) / (3 * amount)


_SOURCE = f"""
kernel void stream(global const float *a, global float *b) {{ b[get_global_id(0)] = a[get_global_id(0)]; }}
kernel void multiply(global float *a, int trips) {{
    // Never 0: what comes near to that is slow on some processors.
    float x = (get_global_id(0) + 1) * 1e-6f, y = 1.0f, z = 2.0f, u = 3.0f, v = 4.0f;
    for (int i = 0; i < trips; i++) {{
        y = y * 0.9999f + x; z = z * 0.9998f + x; u = u * 0.9997f + x; v = v * 0.9996f + x;
    }}
    a[get_global_id(0)] = y + z + u + v;
}}
kernel void barriers(global float *a, local float *shared, int trips) {{
    int place = get_local_id(0);
    float x = a[get_global_id(0)];
    for (int i = 0; i < trips; i++) {{
        shared[place] = x;
        barrier(CLK_LOCAL_MEM_FENCE);
        x = x * 0.5f + shared[(place + 1) & {_GROUP - 1}];
        barrier(CLK_LOCAL_MEM_FENCE);
    }}
    a[get_global_id(0)] = x;
}}
// As kernels do whose work-groups wait for each other. A ticket gives work out in the order in which groups
// begin, so that none waits for one that has not begun.
kernel void hand_over(global volatile int *flags) {{
    local int taken;
    if (get_local_id(0) == 0) taken = atomic_inc(&flags[0]);
    barrier(CLK_LOCAL_MEM_FENCE);
    int task = taken;
    if (get_local_id(0) == 0) {{
        while (task > 0 && atomic_add(&flags[task], 0) == 0) {{}}
        atomic_xchg(&flags[task + 1], 1);
    }}
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}}
kernel void empty(global float *a) {{ if (get_global_id(0) == 0x7fffffff) a[0] = 1; }}
"""
# One kernel for all, since PoCL takes a second for each that calls functions like these. No value leaves the
# range in which they are ordinary.
_OPERATIONS_SOURCE = f"""
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
kernel void operations(global float *a, global int *counters, int operation, int trips) {{
    int id = get_global_id(0);
    float x = (id & 1023) * 1e-3f + 0.5f, y = x + 0.25f, z = x + 0.5f;
    uint i = id, j = id * 7 + 3;
    switch (operation) {{
    case 0: for (int t = 0; t < trips; t++) {{
        x = 1.3f / (x + 0.7f); i = 1000003 / ((i & 1023) + 3);
    }} break;
    case 1: for (int t = 0; t < trips; t++) {{ x = sqrt(x + 0.5f); y = rsqrt(y + 0.5f); }} break;
    case 2: for (int t = 0; t < trips; t++) {{ x = exp(-x); y = log(y + 1.5f); }} break;
    case 3: for (int t = 0; t < trips; t++) {{ x = sin(x + 0.5f); y = cos(y); }} break;
    case 4: for (int t = 0; t < trips; t++) {{
        i = ((i << 3) ^ (i >> 2)) + j; j = ((j << 5) ^ (j >> 3)) + 11;
    }} break;
    case 5: for (int t = 0; t < trips; t++) {{
        atomic_add(&counters[(uint)(id * 40503 + t * 7) & {_COUNTERS - 1}], 1);
    }} break;
#ifdef cl_khr_fp64
    case 6: {{
        double p = x, q = y, r = z, s = 1.0;
        for (int t = 0; t < trips; t++) {{
            p = p * 0.9999 + x; q = q * 0.9998 + x; r = r * 0.9997 + x; s = s * 0.9996 + x;
        }}
        x = p + q + r + s;
    }} break;
    case 7: {{
        double p = x, q = y;
        for (int t = 0; t < trips; t++) {{ p = sin(p + 0.5); q = exp(-q); }}
        x = p + q;
    }} break;
#endif
    case 8: {{
        // Values that would do with 32 bits, as indices mostly are: compilers make use of that.
        ulong k = id, many = 16777213 + (ulong)operation;
        for (int t = 0; t < trips; t++) k = (k * 131 + 987654321) % many;
        i = (uint)k;
    }} break;
    case 9: for (int t = 0; t < trips; t++) {{
        i = min(i + 7, j); j = max(j ^ i, 5u); x = fmin(x + 0.5f, y); y = fmax(y * 0.5f, z);
    }} break;
    }}
    a[id] = x + y + z + i + j;
}}
"""
