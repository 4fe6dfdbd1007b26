"""What the first call of a known kernel costs in a new process, stage by stage, beside plain pyopencl.

    python -m benchmarks.first_call --turns 9

Every turn starts a new process for each method, in turn; drivers have compiled the kernel before, and the
launch memory knows it, except for `share, fresh`. Told are milliseconds of wall-clock time (the least and the
median of the turns) and the least of processor time, with that of the worker process: what an idle machine
would take where nothing overlaps. `import`: Python's start is not in it. `open`: until the devices are known
and the kernel is read. `first call`: until its results are in the caller's array.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from itertools import pairwise
from typing import Any

from apportion.runtime.opencl.platforms import worker_environment

STAGES = ("import", "open", "first call", "second call")
_COUNT = 1 << 16
_SOURCE = """
kernel void saxpy(global const float *x, global float *y, float a, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
_CLOCK = f"""
import json, os, resource, time
SOURCE, COUNT = {_SOURCE!r}, {_COUNT}
marks, children = [], []
def mark():
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime
    for child in children:
        words = open(f"/proc/{{child}}/stat").read().rsplit(")", 1)[1].split()
        cpu += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    marks.append((time.perf_counter(), cpu))
mark()
"""
_SHARE = """
import numpy as np
import apportion
apportion.share
mark()
with apportion.share(SOURCE, fresh=FRESH) as kernel:
    children.append(kernel.backend.worker.process_id)
    mark()
    x, y = np.ones(COUNT, np.float32), np.zeros(COUNT, np.float32)
    for _ in range(2):
        kernel(x, y, 2.0, COUNT, global_size=COUNT)
        mark()
print(json.dumps(marks))
"""
_PLAIN = """
import numpy as np
import pyopencl as cl
mark()
device = cl.get_platforms()[0].get_devices()[0]
context = cl.Context([device])
queue = cl.CommandQueue(context)
saxpy = cl.Kernel(cl.Program(context, SOURCE).build(), "saxpy")
mark()
x, y = np.ones(COUNT, np.float32), np.zeros(COUNT, np.float32)
flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
for _ in range(2):
    a, b = (cl.Buffer(context, flags, hostbuf=each) for each in (x, y))
    saxpy(queue, (COUNT,), (64,), a, b, np.float32(2), np.int32(COUNT))
    cl.enqueue_copy(queue, y, b)
    mark()
print(json.dumps(marks))
"""
METHODS = {
    "plain pyopencl": _PLAIN,
    "share, known": _SHARE.replace("FRESH", "False"),
    "share, fresh": _SHARE.replace("FRESH", "True"),
}


def stages_of(method: str, environment: dict[str, str]) -> list[tuple[float, float]]:
    """Milliseconds of wall-clock and of processor time of each stage, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _CLOCK + METHODS[method]], env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    marks: list[list[float]] = json.loads(done.stdout.splitlines()[-1])
    return [(1e3 * (b[0] - a[0]), 1e3 * (b[1] - a[1])) for a, b in pairwise(marks)]


def measured(turns: int) -> dict[str, dict[str, dict[str, float]]]:
    """Method → stage → the least and the median of wall-clock time, and the least of processor time."""
    environment = worker_environment() | {"PYTHONDONTWRITEBYTECODE": ""}
    found: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in METHODS}
    for turn in range(turns + 1):
        for name in METHODS:
            stages = stages_of(name, environment if name == "plain pyopencl" else _own(environment))
            if turn:  # in the first one, drivers compile
                found[name].append(stages)
    return {
        name: {
            stage: {
                "least": round(min(each[at][0] for each in rows), 1),
                "median": round(statistics.median(each[at][0] for each in rows), 1),
                "processor": round(min(each[at][1] for each in rows), 1),
            }
            for at, stage in enumerate(STAGES)
        }
        for name, rows in found.items()
    }


def _own(environment: dict[str, str]) -> dict[str, str]:
    """What a process has that finds its drivers itself."""
    return dict(os.environ) | {"PYTHONDONTWRITEBYTECODE": environment["PYTHONDONTWRITEBYTECODE"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found: dict[str, Any] = measured(asked.turns)
    if asked.json:
        print(json.dumps(found))
        return
    print(f"{'ms: least / median / processor':32s}" + "".join(f"{stage:>24s}" for stage in STAGES))
    for name, stages in found.items():
        cells = [
            f"{one['least']:.0f} / {one['median']:.0f} / {one['processor']:.0f}" for one in stages.values()
        ]
        print(f"{name:32s}" + "".join(f"{cell:>24s}" for cell in cells))


if __name__ == "__main__":
    main()
