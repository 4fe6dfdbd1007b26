"""What the first call of a known kernel costs in a new process, stage by stage, beside plain pyopencl.

    python -m benchmarks.first_call --turns 9

Every turn starts a new process for each method, in turn; drivers have compiled the kernel before, and the
launch memory knows it, except for `share, fresh`. `share` opens every device, `share, cpu` that one alone;
plain pyopencl opens the first device of a kind. Told are milliseconds of wall-clock time (the least and the
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
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from apportion.coexecution.sharing import as_source
from apportion.runtime.opencl.platforms import worker_environment

STAGES = ("import", "open", "first call", "second call")
_COUNT = 1 << 16
SOURCE = """
kernel void saxpy(global const float *x, global float *y, float a, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
_CLOCK = f"""
import json, os, resource, time
SOURCE, COUNT = {SOURCE!r}, {_COUNT}
marks, children = [], []
def mark():
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime
    for child in children:
        words = open(f"/proc/{{child}}/stat").read().rsplit(")", 1)[1].split()
        cpu += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    marks.append((time.perf_counter(), cpu))
if PACKED:
    import sys, types
    sys.modules["packed_ir"] = types.ModuleType("packed_ir")
    sys.modules["packed_ir"].packed = lambda source, options: PACKED
def find_ir():
    if PACKED:
        sys.modules["apportion.program"].frontends._entries["opencl"] = "packed_ir:packed"
mark()
"""
"PACKED is the kernel's IR where there is no compiler; else empty."
_SHARE = """
import numpy as np
import apportion
apportion.share
find_ir()
mark()
with apportion.share(SOURCE, MORE) as kernel:
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
kind = getattr(cl.device_type, "KIND")
device = next(d for p in cl.get_platforms() for d in p.get_devices() if d.type & kind)
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


def methods(kinds: Sequence[str]) -> dict[str, str]:
    """What is measured → the code of a process, with devices of these kinds."""
    plain = {f"plain pyopencl, {kind}": _PLAIN.replace("KIND", kind.upper()) for kind in kinds}
    shares = {f"share, {kind}": _SHARE.replace("MORE", f"devices=['{kind}']") for kind in kinds[:1]}
    return {
        **plain,
        **shares,
        "share, known": _SHARE.replace("MORE", "fresh=False"),
        "share, fresh": _SHARE.replace("MORE", "fresh=True"),
    }


def stages_of(code: str, environment: dict[str, str], packed: str = "") -> list[tuple[float, float]]:
    """Milliseconds of wall-clock and of processor time of each stage, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", f"PACKED = {packed!r}\n{_CLOCK}{code}"], env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    marks: list[list[float]] = json.loads(done.stdout.splitlines()[-1])
    return [(1e3 * (b[0] - a[0]), 1e3 * (b[1] - a[1])) for a, b in pairwise(marks)]


def kinds_of(environment: dict[str, str]) -> list[str]:
    """The kinds of the devices here, as pyopencl finds them."""
    code = (
        "import pyopencl as cl\n"
        "types = [d.type for p in cl.get_platforms() for d in p.get_devices()]\n"
        "print(*(k for k in ('cpu', 'gpu') if any(t & getattr(cl.device_type, k.upper()) for t in types)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return said.stdout.split()


def measured(turns: int, packed: str = "", seconds: float = 1e9) -> dict[str, dict[str, dict[str, float]]]:
    """Method → stage → the least and the median of wall-clock time, and the least of processor time."""
    environment = worker_environment() | {"PYTHONDONTWRITEBYTECODE": ""}
    codes = methods(kinds_of(environment))
    found: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in codes}
    until = time.monotonic() + seconds
    for turn in range(turns + 1):
        if turn > 1 and time.monotonic() > until:
            break
        for name, code in codes.items():
            stages = stages_of(code, environment if name.startswith("plain") else _own(environment), packed)
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
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no turn after so long")
    parser.add_argument("--ir", type=Path, help="what `benchmarks.programs --pack` wrote")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    packed = json.loads(asked.ir.read_text())[as_source(SOURCE).digest] if asked.ir else ""
    found: dict[str, Any] = measured(asked.turns, packed, asked.seconds)
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
