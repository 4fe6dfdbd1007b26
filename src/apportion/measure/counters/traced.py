"""ptrace as a source: exact counts of what a command opens and starts, or of its instructions, one by one.

It needs no tool, no right and no counter of the processor: any user may trace what they start, in a
container too. Stepping through every instruction is some ten thousand times slower, so only the smallest of
programs are stepped through from beginning to end; of others, bursts at regular times tell the mix of where
the time goes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from apportion import _native
from apportion.errors import JobError, LimitExceeded
from apportion.measure.counters.command import Command, execute
from apportion.measure.counters.counter_source import CounterSource, MissingCounter, Reading, reading_of_mix
from apportion.measure.counters.mix import MIX_COUNTERS, MixCounter

MOST_STEPS = 2_000_000
BURST, GAP_MICROSECONDS = 500, 20_000


class _TracingSource(CounterSource):
    """A command in a process that traces it."""

    settings: ClassVar[dict[str, Any]]

    def measure(self, command: Command) -> Reading:
        with tempfile.TemporaryDirectory(prefix="apportion-") as folder:
            out = Path(folder) / "trace.json"
            job = {"command": command.words, "input": str(command.stdin), "out": str(out), **self.settings}
            words = [sys.executable, "-m", "apportion.measure.counters.traced", json.dumps(job)]
            execute(command, words=words)
            if not out.exists():
                raise JobError("Tracing came to nothing")
            found = json.loads(out.read_text())
        if found["problem"]:
            raise JobError(
                f"{found['problem']}. Set kernel.yama.ptrace_scope to 1 or less; in a container, allow the "
                "system call ptrace (--cap-add SYS_PTRACE, with older kernels)"
            )
        return self.reading(found)

    def reading(self, found: dict[str, Any]) -> Reading:
        """The counters of what tracing found."""
        mix = found["mix"]
        return reading_of_mix({name: mix[name] for name in self.counts}, found["unknown"], found["seconds"])


class TraceSource(_TracingSource):
    """Files opened, and threads started, by system calls: of the command and all that it starts."""

    name = "trace"
    counts: ClassVar[Mapping[str, str]] = {"fds_opened": "exact", "threads": "exact"}
    settings: ClassVar[dict[str, Any]] = {"step": False, "most_steps": 0, "burst": 0, "gap_us": 0}

    def reading(self, found: dict[str, Any]) -> Reading:
        values = {"fds_opened": float(found["opened"]), "threads": float(1 + found["threads"])}
        return Reading(values, found["seconds"])


class StepSource(_TracingSource):
    """Every instruction, for commands of at most two million."""

    name = "step"
    counts = dict.fromkeys(MIX_COUNTERS, "exact")
    slow = True
    slowdown = 10_000.0
    settings: ClassVar[dict[str, Any]] = {"step": True, "most_steps": MOST_STEPS, "burst": 0, "gap_us": 0}

    def reading(self, found: dict[str, Any]) -> Reading:
        if not found["whole"]:
            raise LimitExceeded(
                f"It executes more than {MOST_STEPS:,} instructions, too many to step through; use "
                "step-sampled, qemu or callgrind"
            )
        return super().reading(found)


class SampledStepSource(_TracingSource):
    """Bursts of 500 instructions, 20 ms of running apart: the mix, weighted by time."""

    name = "step-sampled"
    counts = dict.fromkeys(MIX_COUNTERS[1:], "sampled")
    slow = True
    settings: ClassVar[dict[str, Any]] = {
        "step": True, "most_steps": 0, "burst": BURST, "gap_us": GAP_MICROSECONDS
    }  # fmt: skip

    def reading(self, found: dict[str, Any]) -> Reading:
        reading = super().reading(found)
        if found["steps"]:
            return reading
        problem = MissingCounter("the command ended before the first burst", "use the source step")
        return Reading(reading.values, reading.seconds, dict.fromkeys(self.counts, problem))


def trace(job: dict[str, Any]) -> dict[str, Any]:
    """Trace a command and add up what it did: in a process of its own."""
    start = time.monotonic()
    try:
        raw = _native.trace_process(
            job["command"], job["input"], job["step"], job["most_steps"], job["burst"], job["gap_us"]
        )
    except RuntimeError as error:
        return {"problem": str(error)}
    seconds = time.monotonic() - start
    mix: dict[str, float | None] = dict.fromkeys(MIX_COUNTERS)
    unknown = 0.0
    if job["step"]:
        counted = _mix(raw)
        mix, unknown = counted.counters(whole=raw["whole"]), counted.unknown_share
    names = ("steps", "bursts", "whole", "opened", "threads", "processes", "exit_status")
    found = {name: raw[name] for name in names}
    return {"problem": "", "seconds": seconds, "mix": mix, "unknown": unknown, **found}


def _mix(raw: dict[str, Any]) -> MixCounter:
    mix = MixCounter()
    code: dict[int, bytes] = raw["code"]
    whole = {
        place: one for place, data in code.items() for one in mix.instructions(data) if data.startswith(one)
    }
    pairs = zip(raw["from"].tolist(), raw["to"].tolist(), raw["times"].tolist(), strict=True)
    for before, here, times in pairs:
        here_code = whole.get(here)
        if here_code is None:
            mix.unknown += times
            continue
        decoded = mix.decode(here_code)
        # Only a jump leads to itself. A trap in the same place comes after each turn of a repeated string
        # instruction, which is one instruction, and where a new program has begun.
        if before == here and decoded is not None and decoded.kind != "control":
            continue
        mix.add(here_code, whole.get(before), times)
    return mix


def _main() -> None:
    job = json.loads(sys.argv[1])
    found = trace(job)
    Path(job["out"]).write_text(json.dumps(found))
    status = found.get("exit_status", 0)
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    _main()
