"""Send `apportion serve` what it should refuse: `python -m reproduction.service.abuse OUT.json`.

Malformed bodies by the thousand, forged hosts and origins, missing tokens, paths that lead out of the page,
bodies that are too large or never end, and clients that never finish their headers. Nothing may leak, nothing
may stop.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import socket
import string
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import response_schema_conformance

STARTERS = Path(__file__).parents[2] / "src/apportion/serve/starters"
TOKEN = "the-abuse-run-has-its-own-token"
VERBS = (
    "predict",
    "predict/batch",
    "explain",
    "inspect",
    "graph",
    "picture",
    "analyze",
    "relative",
    "schedule",
    "rank",
    "tune",
    "train",
    "counters/import",
    "run",
    "measure",
)
LEAKS = re.compile(r"/(?:home|root|work|tmp|usr|etc|proc|var)/|site-packages|Traceback|\.py\b|PATH=|HOME=")
"What no answer may hold: paths, environment, tracebacks."
_WORDS = (
    "source", "text", "local_size", "bytes", "kernel", "global_size", "language", "name", "task", "pair",
    "profiles", "systems", "policies", "jobs", "launches", "arguments", "seed", "root", "roots", "analysis",
)  # fmt: skip


def malformed(chance: random.Random) -> bytes:
    """A body that no form takes, or hardly."""
    saxpy = (STARTERS / "saxpy.cl").read_text()
    leaves: list[Any] = [
        None, True, -1, 0, 10**400, 1e308, "", "\0", "ü" * 50, "../../etc/passwd", "cpu=4", "eft", [], {},
        "".join(chance.choices(string.printable, k=20)), 64, saxpy, "opencl", 2**63, "x=/etc/passwd",
        '#include "/etc/passwd"', "__kernel void f(__global int *x) { for (;;) x[0]++; }",
    ]  # fmt: skip

    def value(depth: int) -> object:
        kind = chance.randrange(9)
        if kind == 0 and depth < 4:
            return {chance.choice(_WORDS): value(depth + 1) for _ in range(3)}
        if kind == 1 and depth < 4:
            return [value(depth + 1) for _ in range(3)]
        return chance.choice(leaves)

    good = {"source": {"text": saxpy}, "local_size": 64, "bytes": 1 << 20}
    base = good if chance.random() < 0.5 else {}
    body = base | {chance.choice(_WORDS): value(0) for _ in range(chance.randrange(1, 5))}
    data = json.dumps(body).encode()
    if chance.random() < 0.3:
        place = chance.randrange(len(data))
        data = data[:place] + bytes(chance.choices(range(256), k=3)) + data[place + 2 :]
    if chance.random() < 0.05:
        data = b"[" * 5000 + data
    return data


def leaks(text: str) -> bool:
    """Whether an answer tells something of the machine; the paths that were sent do not count."""
    return bool(LEAKS.search(text.replace("/etc/passwd", "")))


def main() -> int:
    """Abuse and write; 1 if something leaked or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--each", type=int, default=20, help="requests of each kind for each address")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [
                sys.executable, "-c", "from apportion.cli import main; main()", "serve", "--port", "0",
                "--folder", folder, "--token", TOKEN, "--no-run", "--rate", "100000",
            ],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().partition("/#")[0].rpartition(":")[2])
            found = abused(port, options.requests)
            found["schemathesis"] = generated(port, options.each)
            assert process.poll() is None, "the service has stopped"
        finally:
            process.terminate()
            process.wait()
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    let_in = [name for name, status in found["forged"].items() if not 400 <= status < 500]
    unheard = found["health_beside_200_slow_clients"] != 200 or set(found["paths_out_of_the_page"]) != {"404"}
    return 1 if found["leaks_or_faults"] or found["schemathesis"]["faults"] or let_in or unheard else 0


def abused(port: int, requests: int) -> dict[str, Any]:
    """What became of everything."""
    chance = random.Random(11)
    began = time.perf_counter()
    statuses: Counter[int] = Counter()
    leaked = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for _ in range(requests):
        path = f"/api/{chance.choice(VERBS)}"
        body = malformed(chance)
        status, text = asked(connection, "POST", path, body)
        statuses[status] += 1
        if status >= 500 and status != 504:
            leaked.append((path, status, body[:300].decode("latin-1")))
        if leaks(text):
            leaked.append((path, status, text[:300]))
    malformed_seconds = time.perf_counter() - began
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    for one in slow:
        one.sendall(f"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode())
    status, _ = asked(connection, "GET", "/api/health", b"")
    forged = {
        name: asked(connection, "POST", "/api/predict", b"{}", {header: value})[0]
        for name, header, value in (
            ("foreign host", "Host", "evil.example"), ("foreign origin", "Origin", "https://evil.example"),
            ("null origin", "Origin", "null"), ("cross-site", "Sec-Fetch-Site", "cross-site"),
            ("form", "Content-Type", "application/x-www-form-urlencoded"),
        )
    }  # fmt: skip
    escapes = Counter(
        asked(connection, "GET", f"/page/{path}", b"")[0]
        for path in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "%2fetc%2fpasswd", "..%5c..%5capp.py")
    )
    forged["no token"] = asked(connection, "GET", "/api/jobs", b"", {"Authorization": "Bearer wrong"})[0]
    forged["too large"] = asked(connection, "POST", "/api/predict", b" " * (2 << 20))[0]
    for one in slow:
        one.close()
    return {
        "malformed": {
            "requests": requests, "addresses": len(VERBS), "seconds": round(malformed_seconds, 1),
            "statuses": {str(code): count for code, count in sorted(statuses.items())},
        },
        "leaks_or_faults": leaked[:20],
        "health_beside_200_slow_clients": status,
        "forged": forged,
        "paths_out_of_the_page": {str(code): count for code, count in escapes.items()},
    }  # fmt: skip


def generated(port: int, each: int) -> dict[str, Any]:
    """What schemathesis makes of the description of every address: requests that fit it, and others."""
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/api/openapi.json")
    statuses: Counter[str] = Counter()
    faults: list[tuple[str, int]] = []
    addresses = 0
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]
        addresses += 1
        for mode in GenerationMode:
            if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
                continue

            @settings(
                max_examples=each, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                answer = case.call(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=120)
                statuses[str(answer.status_code)] += 1
                fault = answer.status_code == 500 or leaks(answer.text)
                if answer.status_code != 405:
                    try:
                        case.validate_response(answer, checks=[response_schema_conformance])
                    except (FailureGroup, Failure):
                        fault = True
                if fault:
                    faults.append((operation.label, answer.status_code))  # noqa: B023  (asked now)

            ask()
    return {
        "version": schemathesis.__version__, "addresses": addresses, "requests": sum(statuses.values()),
        "statuses": dict(statuses), "faults": faults[:20],
    }  # fmt: skip


def asked(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes,
    more: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Status and text of an answer."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}", **(more or {})}
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")
    except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
        connection.close()  # the service hangs up on what is too large; the next request connects again
        return 0, ""


if __name__ == "__main__":
    sys.exit(main())
