"""How long programs of `torch_programs` take on one system, and what they consist of.

    python -m reproduction.collect.program_times measure FOLDER SYSTEM --device cuda
    python -m reproduction.collect.program_times count FOLDER

Each leaves FOLDER/SYSTEM.jsonl or FOLDER/counters.jsonl, a line for each run; the same command goes on where it was.
Only torch is needed. `python -m reproduction collect programs FOLDER` makes one table of all.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from apportion.jobs.journal import Journal
from reproduction.collect.torch_programs import Draw, TorchProgram, every_run

STEPS = 12
REPEATS, MOST_REPEATS, ENOUGH = 5, 15, 0.05
"A run is timed five times at least, and up to fifteen times while all of them took less than so many seconds."
COUNTERS = "counters"
ABOUT = "about"
_KINDS = {
    "products": ("mm", "bmm", "addmm", "convolution", "linear", "dot", "mv", "attention"),
    "reductions": ("sum", "mean", "max", "min", "amax", "amin", "logsumexp", "norm", "var", "median", "any"),
    "sorts": ("sort", "topk", "unique", "searchsorted", "bincount"),
    "lookups": ("index", "gather", "scatter", "embedding", "take", "repeat_interleave"),
    "scans": ("cumsum", "cummin", "cummax", "cumprod"),
    "transcendental": (
        "exp",
        "log",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "erf",
        "gelu",
        "pow",
        "sqrt",
        "softmax",
    ),
    "random": ("rand", "randn", "normal", "randint", "bernoulli", "randperm"),
    "transforms": ("fft",),
    "factorisations": ("linalg", "cholesky", "solve"),
}
"What operators are counted as, by a part of their name; `others` are element-wise."


_TOTALS = ("operators", "elements", "bytes_in", "bytes_out", "largest", "integer_elements", "others")


class OperatorCounts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what reaches the device: operators, elements, bytes; the same on every device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: dict[str, float] = dict.fromkeys(
            (
                "operators",
                "elements",
                "bytes_in",
                "bytes_out",
                "largest",
                "integer_elements",
                "others",
                *_KINDS,
            ),
            0.0,
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [
            one for one in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)
        ]
        result = func(*args, **(kwargs or {}))
        made = [one for one in torch.utils._pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]
        name = str(func)
        if func.is_view or not made:
            return result
        elements = float(sum(one.numel() for one in made))
        count = self.counts
        count["operators"] += 1
        count["elements"] += elements
        count["bytes_in"] += sum(one.numel() * one.element_size() for one in given)
        count["bytes_out"] += sum(one.numel() * one.element_size() for one in made)
        count["largest"] = max(count["largest"], *(float(one.numel()) for one in (*given, *made)))
        count["integer_elements"] += sum(one.numel() for one in made if not one.is_floating_point())
        kind = next((kind for kind, parts in _KINDS.items() if any(part in name for part in parts)), "others")
        count[kind] += elements
        return result


def run_name(program: TorchProgram, size: int) -> str:
    """What a run is called in tables: family/program/size."""
    return f"{program.family}/{program.name}/{size}"


def draw_on(device: str) -> Draw:
    """Normal numbers on a device."""
    return lambda *shape: torch.randn(*shape, device=device)


def made(program: TorchProgram, size: int, device: str) -> Callable[[], object]:
    """A program that is ready to run; the same numbers for the same program and size."""
    torch.manual_seed(size)
    return program.make(size, draw_on(device))


def measure(folder: Path, system: str, device: str, *, threads: int, seconds: float, steps: int) -> int:
    """Time every run that is not timed yet, small ones first; how many were left when the time was over."""
    if threads:
        torch.set_num_threads(threads)
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    end, left = time.monotonic() + seconds, 0
    journal = Journal(folder / f"{system}.jsonl", sync=False)
    known = {entry["run"] for entry in journal.entries()}
    if ABOUT not in known:
        journal.add({"run": ABOUT, **_about(device, threads)})
    for program, size in every_run(steps):
        name = run_name(program, size)
        if name in known:
            continue
        if time.monotonic() > end:
            left += 1
            continue
        journal.add({"run": name, **_timed(program, size, device)})
    return left


def count(folder: Path, *, steps: int) -> None:
    """Count every run that is not counted yet, on one CPU thread."""
    torch.set_num_threads(1)
    journal = Journal(folder / f"{COUNTERS}.jsonl", sync=False)
    known = {entry["run"] for entry in journal.entries()}
    for program, size in every_run(steps):
        if run_name(program, size) not in known:
            work = made(program, size, "cpu")
            operators, flops = OperatorCounts(), FlopCounterMode(display=False)
            with flops:
                work()
            with operators:
                work()
            found = {**operators.counts, "flops": float(flops.get_total_flops())}
            journal.add({"run": run_name(program, size), "counters": found})


def _timed(program: TorchProgram, size: int, device: str) -> dict[str, Any]:
    try:
        work = made(program, size, device)
        taken: list[float] = []
        work()
        _wait(device)
        while len(taken) < REPEATS or (len(taken) < MOST_REPEATS and sum(taken) < ENOUGH):
            began = time.perf_counter()
            work()
            _wait(device)
            taken.append(time.perf_counter() - began)
    except Exception as error:
        return {"failure": f"{type(error).__name__}: {error}"[:200]}
    return {"seconds": [float(f"{one:.4g}") for one in taken]}


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _about(device: str, threads: int) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    return {
        "device": device, "name": name, "threads": threads or torch.get_num_threads(), "torch": torch.__version__,
        "multiprocessor_share": os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", ""),
    }  # fmt: skip


def main() -> None:
    """Measure, or count, as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("measure", "count"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("system", nargs="?", default="")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--steps", type=int, default=STEPS)
    words = parser.parse_args()
    if words.what == "count":
        count(words.folder, steps=words.steps)
        return
    if not words.system:
        parser.error("measure needs the name of the system")
    left = measure(
        words.folder,
        words.system,
        words.device,
        threads=words.threads,
        seconds=words.seconds,
        steps=words.steps,
    )
    print(f"{words.system}: {left} runs left")


if __name__ == "__main__":
    main()
