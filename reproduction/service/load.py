"""Load `apportion serve` on loopback and write what it took: `python -m reproduction.service.load OUT.json`.

Three questions: how fast a known kernel is answered at 32 clients, how fast a source never seen is, and
whether memory grows. Sources never seen are kernels of the generator, each with code of its own, and the
service starts with an empty cache. Clients are coroutines of one process, so they take a part of the same
processors.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from apportion.errors import ApportionError
from apportion.program.compile import ir_of
from apportion.program.source import Source
from apportion.suite.generator import drawn

STARTERS = Path(__file__).parents[2] / "src/apportion/serve/starters"
CLIENTS = 32
_MOST_GROWTH = 1.05
"Of the service's memory, from the first tenth of the long run to its end."
_SEED = 21
"Of the kernels never seen."
PARTS = ("known", "new", "memory", "limit")
TOKEN = "the-load-run-has-its-own-token"


async def main() -> int:
    """Measure and write; 1 if an answer was lost or wrong, or memory grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--known", type=int, default=20_000, help="requests for known kernels")
    parser.add_argument("--new", type=int, default=300, help="requests for sources never seen")
    parser.add_argument("--long", type=int, default=100_000, help="requests over which memory is watched")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with service(Path(folder), rate=100_000) as (port, pid):
            found = await measured(port, pid, options)
        if "limit" in options.parts:
            with service(Path(folder), rate=200) as (port, pid):
                found["beyond the limit"] = await beyond(port, pid)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    wrong = [
        what for what, one in found.items()
        if isinstance(one, dict) and "statuses" in one
        and not set(one["statuses"]) <= ({"200", "429"} if what == "beyond the limit" else {"200"})
    ]  # fmt: skip
    if "memory" in found:
        _, after, *_, last = found["memory"]["kib"]
        if last > _MOST_GROWTH * after:
            wrong.append("memory")
    print(f"Wrong: {', '.join(wrong) or 'nothing'}")
    return 1 if wrong else 0


@contextmanager
def service(folder: Path, *, rate: int) -> Iterator[tuple[int, int]]:
    """A running service with a cache of its own, which knows no kernel: its port and its process."""
    process = subprocess.Popen(
        [
            sys.executable, "-c", "from apportion.cli import main; main()", "serve", "--port", "0",
            "--folder", str(folder), "--token", TOKEN, "--rate", str(rate),
        ],
        env=os.environ | {"APPORTION_CACHE": str(folder / "cache")}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline().partition("/#")[0].rpartition(":")[2]), process.pid
    finally:
        process.terminate()
        process.wait()


async def beyond(port: int, pid: int) -> dict[str, Any]:
    """Requests of clients that ask more than they may."""
    saxpy, chance = (STARTERS / "saxpy.cl").read_text(), random.Random(1)
    requests = [question(port, "saxpy.cl", saxpy, chance) for _ in range(6000)]
    return await load(port, pid, requests, CLIENTS)


def generated() -> Iterator[tuple[str, str]]:
    """Kernels of the generator that compile: name and text."""
    for number in itertools.count():
        made = drawn(_SEED, number)
        with suppress(ApportionError):
            ir_of(Source(made.source, "opencl", f"{made.name}.cl"))
            yield f"{made.name}.cl", made.source


async def ready(port: int) -> None:
    """Wait until the devices are found and measured, which takes processors of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /api/devices HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
    await reader.read()
    writer.close()


async def measured(port: int, pid: int, options: argparse.Namespace) -> dict[str, Any]:
    """Every number."""
    kernels = [(path.name, path.read_text()) for path in sorted(STARTERS.glob("*.cl"))]
    chance = random.Random(0)

    def known() -> bytes:
        name, text = chance.choice(kernels)
        return question(port, name, text, chance)

    await ready(port)
    await load(port, pid, [known() for _ in range(200)], CLIENTS)  # so that every kernel is known
    found: dict[str, Any] = {
        "processors": len(os.sched_getaffinity(0)), "nice": os.nice(0),
        "load_average_before": round(os.getloadavg()[0], 2),
    }  # fmt: skip
    if "known" in options.parts:
        found["known"] = await load(port, pid, [known() for _ in range(options.known)], CLIENTS)
        for rate in (300, 400):
            found[f"known, {rate} a second"] = await load(
                port, pid, [known() for _ in range(options.known // 2)], CLIENTS, rate=rate
            )
    if "new" in options.parts:
        kernels_never_seen = generated()
        for clients, words in ((1, "one client"), (4, "four clients")):
            drawn_now = itertools.islice(kernels_never_seen, options.new)
            requests = [question(port, name, text, chance) for name, text in drawn_now]
            found[f"new, {words}"] = await load(port, pid, requests, clients)
    if "memory" in options.parts:
        memory = []
        for _ in range(10):
            memory.append(resident(pid) >> 10)
            await load(port, pid, [known() for _ in range(options.long // 10)], CLIENTS)
        found["memory"] = {"requests": options.long, "kib": [*memory, resident(pid) >> 10]}
    return found


def question(port: int, name: str, text: str, chance: random.Random) -> bytes:
    """A request for a prediction of a launch of some size."""
    body = json.dumps(
        {
            "source": {"text": text, "name": name},
            "local_size": chance.choice([64, 128, 256]),
            "bytes": chance.randrange(1 << 10, 1 << 30),
        }
    ).encode()
    return (
        f"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def load(
    port: int, pid: int, requests: list[bytes], clients: int, *, rate: float | None = None
) -> dict[str, Any]:
    """All requests, by so many clients that each wait for an answer before they ask again.

    Args:
        rate: requests per second that are sent together; as many as are answered where it is not given.
    """
    taken: list[float] = []
    statuses: Counter[int] = Counter()

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for turn, request in enumerate(requests[number::clients]):
            if rate is not None:
                await asyncio.sleep(max(0.0, start + (turn * clients + number) / rate - time.perf_counter()))
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            )
            body = await reader.readexactly(length)
            taken.append(time.perf_counter() - began)
            status = int(head[9:12])
            if b"connection: close" in head.lower():  # as after a 429
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            statuses[status] += 1
            if status == 200:
                assert 0 <= json.loads(body)["cpu_share"] <= 1
        writer.close()

    began = start = time.perf_counter()
    used = processor_seconds(pid)
    await asyncio.gather(*(client(number) for number in range(clients)))
    seconds, used = time.perf_counter() - began, processor_seconds(pid) - used
    order = sorted(taken)
    return {
        "requests": len(requests), "clients": clients, "seconds": round(seconds, 2),
        "per_second": round(len(requests) / seconds, 1),
        "processor_ms_each": round(1e3 * used / len(requests), 3),
        "median_ms": round(1e3 * statistics.median(order), 2),
        "p90_ms": round(1e3 * order[int(0.9 * len(order))], 2),
        "p99_ms": round(1e3 * order[int(0.99 * len(order))], 2), "most_ms": round(1e3 * order[-1], 2),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
    }  # fmt: skip


def processor_seconds(pid: int) -> float:
    """What the service's own process has had of the processors, without its workers and its clients."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    """Bytes of memory of the service's own process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
