"""A studio with something in it: bundled kernels are run and measured once, in a folder of their own."""

from __future__ import annotations

import sys
from threading import Thread
from typing import Any

from apportion.client import Client
from apportion.errors import ApportionError
from apportion.serve.service_settings import ServiceSettings
from apportion.serve.starters import starters

SHOWN = ("saxpy.cl", "matmul.cl", "matmul-tiled.cl", "stencil.cl", "mandelbrot.cl", "nbody.cl")
MEASURED = ("saxpy.cl", "stencil.cl")
_SMALLER = 2
"Two-dimensional ranges are this many times smaller than the page's, so that the page is filled in a minute."


def fill_soon(settings: ServiceSettings) -> None:
    """Run and measure some kernels as soon as the service answers, unless an earlier one did."""
    Thread(target=_fill, args=(settings,), daemon=True).start()


def _fill(settings: ServiceSettings) -> None:
    try:
        _ask_for_all(Client(settings.address, seconds=300.0), settings)
    except ApportionError as error:
        print(f"The demonstration ended early: {error}", file=sys.stderr)


def _ask_for_all(client: Client, settings: ServiceSettings) -> None:
    if not settings.runs_code or any(job["state"] == "done" for job in client.jobs()):
        return
    known = {one["name"]: one for one in starters()}
    for name in SHOWN:
        one = known[name]
        size = [max(64, length // _SMALLER) for length in one["global_size"]]
        body: dict[str, Any] = {
            "source": {"text": one["text"], "name": name},
            "global_size": size,
            "arguments": [_scaled(word) for word in one["arguments"]],
            "name": one["title"],
        }
        client.ask("POST", "/api/run", body)
    sources = [{"text": known[name]["text"], "name": name} for name in MEASURED]
    form = {"sources": sources, "sizes": [1 << 14, 1 << 18], "local_sizes": [64], "seconds": 0.2}
    client.ask("POST", "/api/measure", form | {"name": "two kernels at two sizes"})


def _scaled(word: str) -> str:
    """An integer argument that is a length, for a range that is smaller."""
    name, _, value = word.partition("=")
    return word if name == "most" else f"{name}={max(64, int(value) // _SMALLER)}"
