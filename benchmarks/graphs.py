"""Building program graphs: throughput beside the reference's, growth with size, threads, memory.

    python -m benchmarks graphs

CPU seconds throughout, because the machine may be busy; the reference's include the start of its process, one
for each file, which is how it is used, and its output is thrown away.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from apportion.program.llvm import GraphOptions, graph_of_ir
from benchmarks.reference import llvm2graph

SHARED = Path(__file__).parents[2] / "shared" / "data" / "programl-oracle"
SETS = {"CGO17 -O0": "cgo17_spir64_O0", "CGO17 -O3": "cgo17_spir64_O3", "ProGraML tests": "programl_tests"}
PEER_FILES = 40
"How many files of each set the reference is timed on: it takes up to half a second for one."


def main() -> None:
    print("Program graphs from LLVM IR: MB of IR per CPU second, one thread, full texts kept")
    corpora = (
        {title: _inputs(name) for title, name in SETS.items()} if SHARED.exists() else {"chains": _chains()}
    )
    peer = llvm2graph()
    if peer is None:
        print("  (the reference could not be fetched or run here: its column is empty)")
    print(f"  {'inputs':16}{'files':>7}{'ours':>9}{'minstr/s':>10}{'reference':>11}{'ratio':>8}")
    for title, sources in corpora.items():
        sample = sources[:: max(1, len(sources) // PEER_FILES)]
        # The same files for both.
        ours = _rate(sample, graph_of_ir, repeats=5)
        theirs = _peer_rate(peer, sample) if peer else float("nan")
        instructions = sum(_instructions(text) for text in sources)
        seconds = _cpu_seconds(lambda: [graph_of_ir(text) for text in sources], repeats=3)  # noqa: B023
        print(
            f"  {title:16}{len(sources):7}{ours:9.1f}{instructions / seconds / 1e6:10.2f}"
            f"{theirs:11.2f}{ours / theirs:7.0f}x"
        )
    print("\nGrowth with the size of one function of unnamed values (the reference is quadratic here)")
    print(
        f"  {'instructions':>13}{'ours, ms':>11}{'per instr., ns':>16}"
        f"{'reference, ms':>15}{'bytes per node+edge':>21}"
    )
    for count in (1_000, 10_000, 100_000, 1_000_000):
        text = _chain(count)
        graph = graph_of_ir(text)
        seconds = _cpu_seconds(lambda: graph_of_ir(text), repeats=3)  # noqa: B023
        theirs = len(text) / 1e6 / _peer_rate(peer, [text]) if peer and count <= 10_000 else float("nan")
        print(
            f"  {count:13,}{seconds * 1e3:11.2f}{seconds / count * 1e9:16.0f}{theirs * 1e3:15.1f}"
            f"{graph.nbytes / sum(graph.size):21.1f}"
        )
    print("\nThreads (the interpreter's lock is released while a graph is built), wall clock")
    texts = [_chain(100_000)] * 8
    one = _wall_seconds(lambda: [_without_texts(text) for text in texts])
    for threads in sorted({2, os.cpu_count() or 1}):
        with ThreadPoolExecutor(threads) as pool:
            many = _wall_seconds(lambda: list(pool.map(_without_texts, texts)))
        print(f"  {threads} threads: {one / many:.2f}x one thread")


def _without_texts(text: bytes) -> object:
    return graph_of_ir(text, options=GraphOptions(full_text=False))


def _inputs(name: str) -> list[bytes]:
    with tarfile.open(SHARED / f"{name}.inputs.tar.gz") as archive:
        files = [archive.extractfile(member) for member in archive if member.isfile()]
        return [file.read() for file in files if file]


def _chains() -> list[bytes]:
    return [_chain(50 * (1 + i % 20)) for i in range(200)]


def _chain(instructions: int) -> bytes:
    lines = ["define i32 @f(i32 %a, i32 %b) {", "  %1 = add nsw i32 %a, %b"]
    lines += [f"  %{i} = add nsw i32 %{i - 1}, %b" for i in range(2, instructions)]
    return ("\n".join(lines) + f"\n  ret i32 %{instructions - 1}\n}}\n").encode()


def _instructions(text: bytes) -> int:
    graph = graph_of_ir(text, options=GraphOptions(full_text=False))
    return int((graph.node_type == 0).sum()) - 1


def _rate(sources: list[bytes], function: Callable[[bytes], object], *, repeats: int) -> float:
    seconds = _cpu_seconds(lambda: [function(source) for source in sources], repeats=repeats)
    return sum(map(len, sources)) / 1e6 / seconds


def _peer_rate(binary: Path, sources: list[bytes]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for source in sources:
        subprocess.run(
            [binary, "-"], input=source, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return sum(map(len, sources)) / 1e6 / seconds


def _cpu_seconds(function: Callable[[], object], *, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def _wall_seconds(function: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
