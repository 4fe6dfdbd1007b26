"""The suite's programs by StarPU 1.3: the same kernels on the same arrays, placed by `dmda` and `dmdas`.

    python -m benchmarks.starpu --replay ./starpu_replay --out starpu.jsonl

StarPU's OpenCL workers stand for both devices (STARPU_OPENCL_ON_CPUS), one for each. Its performance models
are trained by rounds of their own (STARPU_CALIBRATE), in a folder that is empty to begin with; then each
policy runs in a new process. What a program reads between launches is left out: the launches are those that
a run with NumPy's control flow made. Kernels, arguments and ranges are the ones of `benchmarks.programs`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from apportion.program.compile import ir_of
from apportion.program.kernel.access import accesses_of
from apportion.runtime.base import LocalMemory
from apportion.runtime.drivers import DriverOptions
from apportion.runtime.opencl.platforms import worker_environment
from apportion.suite.programs import PROGRAMS
from apportion.suite.programs.base import Calls, Program, ProgramInstance
from reproduction.packed_ir import unpack

POLICIES = ("dmda", "dmdas")


class Traced(Calls):
    """Writes down what is launched, and runs it in a session's place: reads come from one that does."""

    def __init__(self, names: list[str], levels: int) -> None:
        self.names, self.levels = names, levels
        self.launches: list[tuple[str, tuple[Any, ...], Any, Any]] = []
        self.reads = 0

    def launch(self, kernel: str, *arguments: Any, global_size: Any, local_size: Any) -> None:
        self.launches.append((kernel, arguments, global_size, local_size))

    def read(self, name: str) -> Any:
        # Only the search reads: whether a level was the last one.
        self.reads += 1
        return np.array([self.reads if self.reads < self.levels else -1])


def trace(program: Program, instance: ProgramInstance) -> bytes:
    """A program as the replay reads it."""
    source = program.source()
    ir, text = ir_of(source), str(source.text).encode()
    access = accesses_of(ir, str(source.text))
    names, kernels = list(instance.arrays), list(access)
    levels = int(instance.expected["level"].max()) + 1 if "level" in instance.expected else 0
    calls = Traced(names, levels)
    instance.steps(calls)
    lines = [f"{len(names)} {len(kernels)} {len(calls.launches)} {len(text)}\n".encode(), text]
    lines.append(
        " ".join(["", *kernels, *(str(values.nbytes) for values in instance.arrays.values())]).encode()
    )
    for kernel, arguments, global_size, local_size in calls.launches:
        words: list[Any] = [kernels.index(kernel), len(global_size), len(arguments)]
        for each in zip(global_size, local_size, strict=True):
            words += each
        for number, value in enumerate(arguments):
            if isinstance(value, str):
                words += ["A", names.index(value), int(access[kernel].arguments[number].writes)]
            elif isinstance(value, LocalMemory):
                words += ["L", value.nbytes]
            else:
                data = np.asarray(value).tobytes()
                words += ["V", len(data), *data]
        lines.append(("\n" + " ".join(map(str, words))).encode())
    return b"".join(lines) + b"\n" + b"".join(values.tobytes() for values in instance.arrays.values())


def run(
    replay: Path, file: Path, policy: str, rounds: int, models: Path, calibrate: bool, seconds: float
) -> Any:
    """Milliseconds of each round, and the bytes of all arrays after the first."""
    out = file.with_suffix(".out")
    environment = os.environ | worker_environment(DriverOptions(pocl_instances=1)) | {
        "STARPU_SCHED": policy, "STARPU_NCPU": "0", "STARPU_OPENCL_ON_CPUS": "1", "STARPU_HOME": str(models),
        "STARPU_SILENT": "1", "STARPU_CALIBRATE": str(int(calibrate)), "STARPU_HOSTNAME": "here",
        "STARPU_LIMIT_CPU_MEM": "16000",
    }  # fmt: skip
    done = subprocess.run(
        [replay, file, str(rounds), out],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{done.returncode}: {done.stderr.strip()[-300:]}")
    return [float(line) for line in done.stdout.split()], out.read_bytes()


def measure(replay: Path, program: Program, size: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Both policies on one program."""
    instance = program.instance(getattr(program, size))
    file = folder / f"{program.name}.trace"
    file.write_bytes(trace(program, instance))
    row: dict[str, Any] = {"program": program.name, "size": size, "said": {}, "rounds": {}}
    models = folder / "models"
    run(replay, file, "dmda", 12, models, True, 60)
    for policy in POLICIES:
        milliseconds, data = run(replay, file, policy, rounds, models, False, 60)
        row["rounds"][policy] = [1e-3 * each for each in milliseconds]
        found, place = {}, 0
        for name, values in instance.arrays.items():
            found[name] = np.frombuffer(data, values.dtype, values.size, place).reshape(values.shape)
            place += values.nbytes
        row["said"][policy] = program.verify(instance.expected, found) or "ok"
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replay", type=Path, required=True)
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS))
    parser.add_argument("--size", default="usual", choices=("small", "usual"))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no program after so long")
    parser.add_argument("--ir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("starpu.jsonl"))
    asked = parser.parse_args()
    if asked.ir:
        unpack(asked.ir)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, asked.out.open("a") as out:
        for name in asked.programs:
            if time.monotonic() - began > asked.seconds:
                print(f"no time for {name}")
                continue
            try:
                row = measure(asked.replay.resolve(), PROGRAMS[name], asked.size, asked.rounds, Path(folder))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name}: {error}", flush=True)
                continue
            out.write(json.dumps(row) + "\n")
            out.flush()
            told = {
                policy: round(1e3 * statistics.median(each[1:]), 3) for policy, each in row["rounds"].items()
            }
            print(f"{time.monotonic() - began:.0f} s: {name} {told} {row['said']}", flush=True)


if __name__ == "__main__":
    main()
