"""Repeat a construct of a text 10, 1,000, 100,000 and 1,000,000 times, and see what reading it costs.

    python -m reproduction.fuzzing.repetition --cases 1000 --seed 1 [--reader ir] [--out repetition.md]

A construct is a token, a pair of brackets around what stands there, a line, or a few tokens in a row, drawn
from small texts of each kind. Each case is read in a process of its own. A reader must give a value or an
error of ours, and take no more time and memory than so much for each byte of the text: what is quadratic
takes 10,000 times as much at a million repetitions.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import random
import re
import resource
import signal
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from apportion.data.archives import files_in
from apportion.errors import ApportionError, CompileError
from apportion.program.buildfile import parsed, words_of
from apportion.program.hlo.text import module_of_text
from apportion.program.includes import check_text
from apportion.program.kernel.bounds import NDRange
from apportion.program.llvm import graph_of_ir
from apportion.program.untrusted import check_runnable
from apportion.runtime.words import evaluate, read_word
from apportion.runtime.workload import described
from apportion.settings import replace_file

TIMES = (10, 1_000, 100_000, 1_000_000)
MOST_BYTES = 16 << 20
"Longer texts are cut off: the repetitions that fit are read."
SECONDS_A_MEGABYTE, SECONDS = 4.0, 1.0
"Of one processor, on a machine that others use too."
BYTES_A_BYTE, BYTES = 400, 128 << 20
_LIMIT = 12 << 30
_TOKEN = re.compile(r'"[^"\n]*"|[A-Za-z_@%!.$][\w.$]*|\d+|\S|\n|[^\S\n]+')
_BRACKETS = {"(": ")", "[": "]", "{": "}", "<": ">", "/*": "*/", '"': '"', "<{": "}>"}

_IR = """\
; ModuleID = 'a'
source_filename = "a"
target triple = "spir64-unknown-unknown"
%struct.P = type { i32, [4 x float], %struct.P* }
@g = external global i8 addrspace(1)*, align 8
@s = private constant [3 x i8] c"a\\00b"
define spir_kernel void @k(float addrspace(1)* nocapture %x, i32 %n) #0 !kernel_arg_type !1 {
entry:
  %i = call i64 @_Z13get_global_idj(i32 0)
  %c = icmp slt i64 %i, 10
  br i1 %c, label %a, label %b
a:
  %p = getelementptr inbounds float, float addrspace(1)* %x, i64 %i
  %v = load float, float addrspace(1)* %p, align 4
  %w = fadd fast float %v, 0x3FF0000000000000
  store float %w, float addrspace(1)* %p, align 4
  switch i32 %n, label %b [ i32 1, label %a i32 2, label %b ]
b:
  %q = phi float [ 0.0, %entry ], [ %w, %a ]
  ret void
}
declare i64 @_Z13get_global_idj(i32)
attributes #0 = { nounwind "frame-pointer"="none" }
!0 = !{i32 1, !"a", !0}
!1 = !{!"float*", !"int"}
"""
_SOURCE = """\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#include "a.h"
#ifdef A
#define B(x, y) x ## y
#elif defined(C) && !defined D
#endif
/* a comment */ // another
typedef struct { float a; int4 b[3]; } P;
__attribute__((reqd_work_group_size(8, 1, 1)))
kernel void k(global float *x, const int n, P p) {
    const char *s = "a\\n" 'c';
    for (int i = 0; i < n; ++i) x[get_global_id(0)] += (float)i * 2.0f ? R"(raw)" : 1;
}
"""
_HLO = """\
HloModule m, entry_computation_layout={(f32[8,4]{1,0})->f32[8]{0}}
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(f32[] %a, f32[] %b)
}
ENTRY %main (p: f32[8,4]) -> f32[8] {
  %p = f32[8,4]{1,0} parameter(0)
  %z = f32[] constant(0)
  ROOT %r = f32[8]{0} reduce(f32[8,4]{1,0} %p, f32[] %z), dimensions={1}, to_apply=%add
}
"""
_SIDECAR = json.dumps(
    {"kernel": "k", "arguments": {"x": "float32[N]", "n": "int32:N", "s": "below:64"},
     "ranges": [[1024, 64], [[16, 16], [4, 4]]], "suite": "s"}
)  # fmt: skip
_OPTIONS = '-DN=16 -I inc -cl-std=CL2.0 -D "B(x)=(x + 1)" -cl-fast-relaxed-math -U C'
_EXPRESSIONS = "1048576 // (16 * 4) + 3 - N0 * (2 + 1)"


def _include_scan(text: str, folder: Path) -> None:
    with suppress(CompileError):
        check_text(text, "k.cl")
    with suppress(CompileError):
        check_runnable(text, "", "k.cl")


def _sidecar(text: str, folder: Path) -> None:
    (folder / "k.cl").write_text("kernel void k(global float *x, int n) {}")
    (folder / "k.json").write_text(text)
    described(folder / "k.cl")


def _archive(text: str, folder: Path) -> None:
    path = folder / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for number, line in enumerate(text.split("\n")[:20_000]):
            entry = tarfile.TarInfo(line[:5_000] or "empty")
            entry.size = number % 3
            archive.addfile(entry, io.BytesIO(b"abc"[: entry.size]))
    for _ in files_in(path):
        pass


READERS: dict[str, tuple[str, Callable[[str, Path], object]]] = {
    "source": (_SOURCE, _include_scan),
    "ir": (_IR, lambda text, folder: graph_of_ir(text)),
    "hlo": (_HLO, lambda text, folder: module_of_text(text)),
    "sidecar": (_SIDECAR, _sidecar),
    "options": (_OPTIONS, lambda text, folder: parsed(words_of(text))),
    "numbers": (_EXPRESSIONS, lambda text, folder: evaluate(text, NDRange((64,), (8,)))),
    "arguments": (
        "float32[1024] below:64 int32:5 image2d[4,4] file.npy",
        lambda text, folder: read_word(text),
    ),
    "archive": ("a/b.ll\nc.cl\nd/../e.ll\nf", _archive),
}


@dataclass(frozen=True)
class Cost:
    """What became of a case."""

    outcome: str
    "`value`, `error` (one of ours), or what went wrong."
    seconds: float
    bytes: int


def repeated(text: str, times: int, draws: random.Random) -> tuple[str, str]:
    """The text with one construct repeated, and the construct."""
    tokens = [(found.start(), found.end()) for found in _TOKEN.finditer(text)]
    first = draws.randrange(len(tokens))
    last = min(len(tokens), first + draws.choice((1, 1, 1, 2, 3, 5, 8)))
    start, end = tokens[first][0], tokens[last - 1][1]
    kind = draws.random()
    if kind < 0.2:  # a line
        start = text.rfind("\n", 0, start) + 1
        end = text.find("\n", end) + 1 or len(text)
    elif kind < 0.45:  # nested
        opening, closing = draws.choice(list(_BRACKETS.items()))
        count = min(times, MOST_BYTES // (len(opening) + len(closing)))
        closings = closing * (count if draws.random() < 0.7 else 0)
        return text[:start] + opening * count + text[start:end] + closings + text[
            end:
        ], f"{opening} … {closing}"
    construct = text[start:end]
    count = min(times, MOST_BYTES // max(1, len(construct)))
    return text[:start] + construct * count + text[end:], construct


def cost_of(reader: str, text: str) -> Cost:
    """What reading a text costs, in a process of its own that is killed when it takes far too much."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        allowed = SECONDS + SECONDS_A_MEGABYTE * len(text) / (1 << 20)
        resource.setrlimit(resource.RLIMIT_CPU, (int(2 * allowed) + 2, int(2 * allowed) + 3))
        resource.setrlimit(resource.RLIMIT_AS, (_LIMIT, _LIMIT))
        with tempfile.TemporaryDirectory() as folder:
            before, started = _peak(), time.process_time()
            try:
                READERS[reader][1](text, Path(folder))
                outcome = "value"
            except ApportionError:
                outcome = "error"
            except BaseException as error:
                outcome = f"{type(error).__name__}: {str(error)[:100]}"
            os.write(theirs, pickle.dumps((outcome, time.process_time() - started, _peak() - before)))
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if not said:
        ended = os.waitstatus_to_exitcode(status)
        return Cost(f"killed by {signal.Signals(-ended).name}" if ended < 0 else f"left with {ended}", 0.0, 0)
    return Cost(*pickle.loads(said))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def problem_of(cost: Cost, text: str) -> str | None:
    """What is wrong with a cost."""
    if cost.outcome not in ("value", "error"):
        return cost.outcome
    if cost.seconds > SECONDS + SECONDS_A_MEGABYTE * len(text) / (1 << 20):
        return f"{cost.seconds:.1f} s for {len(text):,} bytes"
    if cost.bytes > BYTES + BYTES_A_BYTE * len(text):
        return f"{cost.bytes:,} bytes of memory for {len(text):,} bytes"
    return None


_ABOUT = f"""\
One construct of a small text (a token, a few tokens, a line, a pair of brackets) is repeated; texts end at
16 MiB. *Survived*: a value or an error of ours, within {SECONDS_A_MEGABYTE:g} s of one processor a MiB (and
{SECONDS:g} s) and {BYTES_A_BYTE} bytes of memory a byte (and {BYTES >> 20} MiB). Cases are tried / survived.
"""


def main() -> int:
    """Read so many cases, and tell what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--reader", action="append", choices=READERS)
    parser.add_argument("--out", type=Path, help="the page to write")
    chosen = parser.parse_args()
    tried: Counter[tuple[str, int]] = Counter()
    survived: Counter[tuple[str, int]] = Counter()
    worst: dict[str, tuple[float, str]] = {}
    findings: list[str] = []
    started = time.monotonic()
    names = chosen.reader or list(READERS)
    for number in range(chosen.cases):
        if chosen.seconds is not None and time.monotonic() - started > chosen.seconds:
            break
        draws = random.Random(f"{chosen.seed} {number}")
        reader, times = names[number % len(names)], TIMES[number // len(names) % len(TIMES)]
        text, construct = repeated(READERS[reader][0], times, draws)
        cost = cost_of(reader, text)
        problem = problem_of(cost, text)
        tried[reader, times] += 1
        survived[reader, times] += problem is None
        if problem is not None:
            findings.append(f"case {number}, {reader}: {times:,} × {construct[:60]!r}: {problem}")
            print(findings[-1], flush=True)
        if len(text) > 1 << 20:
            worst[reader] = max(
                worst.get(reader, (0.0, "")), (cost.seconds / len(text) * 2**20, construct[:40])
            )
    asked = f"python -m reproduction.fuzzing.repetition --cases {sum(tried.values())} --seed {chosen.seed}"
    took = f"{time.monotonic() - started:.0f} s on a machine that others used too"
    lines = [
        f"# Repeated constructs\n\n`{asked}`, {datetime.now(UTC).date()}, {took}.\n", _ABOUT,
        "| reader | " + " | ".join(f"{times:,} ×" for times in TIMES) + " | slowest, s a MiB | of |",
        "|---|" + "---:|" * (len(TIMES) + 1) + "---|",
    ]  # fmt: skip
    for name in names:
        seconds, construct = worst.get(name, (0.0, ""))
        cells = [f"{tried[name, times]} / {survived[name, times]}" for times in TIMES]
        lines.append(f"| {name} | {' | '.join(cells)} | {seconds:.2f} | `{json.dumps(construct)[1:-1]}` |")
    lines += ["", *(f"- {finding}" for finding in findings)] if findings else ["", "All were survived."]
    page = "\n".join(lines) + "\n"
    if chosen.out is None:
        print(page, end="")
    else:
        replace_file(chosen.out, page)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
