"""`apportion serve`: the studio, a service and a page on this machine."""

from __future__ import annotations

import os
import sys
import webbrowser
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note
from apportion.errors import MissingPackage
from apportion.serve.service_settings import ServiceSettings
from apportion.settings import cache_folder

_FLAG = Parameter(negative="")  # no --no-open beside --open, no --empty-name beside --name


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    name: Annotated[tuple[str, ...], _FLAG] = (),
    open: Annotated[bool, _FLAG] = False,
    no_run: Annotated[bool, _FLAG] = False,
    token: str | None = None,
    rate: float = 1000.0,
    folder: Path | None = None,
    demo: Annotated[bool, _FLAG] = False,
) -> None:
    """Open the studio: a page that shows what kernels will do on this machine, and a service for programs.

    It prints the page's address, which holds the token that running code needs. Ctrl-C ends it.

    Args:
        host: The address to listen on. On another than 127.0.0.1, every request needs the token.
        port: The port of the service; 0 takes a free one.
        name: Another name that browsers call the service by, as NAME or NAME:PORT: of a tunnel or a proxy.
            May be given several times.
        open: Open the page in a browser.
        no_run: Never run a kernel that a client sends. Predictions are still answered.
        token: The token to ask for, at least 16 characters, instead of a new one.
        rate: How many requests a second one client may send. Beyond it the answer is status 429: ask again
            later.
        folder: Where jobs and their results are kept. By default in the cache folder.
        demo: First run and measure some bundled kernels, in a folder of their own, so that there is something
            to look at within a minute.
    """
    for package in ("fastapi", "uvicorn", "httptools"):
        if find_spec(package) is None:
            raise MissingPackage(package, "serve", "The studio")
    # One thread multiplies small matrices sooner than several that wait for each other: 0.25 ms of processor
    # time for a prediction, not 1.3. NumPy reads this when it is loaded, which nothing above has done.
    for library in ("OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    from apportion.serve import server  # it needs the packages above
    from apportion.serve.demonstration import fill_soon

    settings = ServiceSettings(
        host=host, port=port, names=name, runs_code=not no_run, requests_per_second=rate
    )
    if token is not None:
        settings = replace(settings, token=token)
    if demo and folder is None:
        folder = cache_folder("serve-demo")
    if folder is not None:
        settings = replace(settings, folder=folder)
    listening = server.bound(settings)
    settings = replace(settings, port=listening.getsockname()[1])
    print(settings.address, flush=True)
    if demo:
        fill_soon(settings)
    note(
        "The studio is open at this address. It holds a token: who has it can run code here. Ctrl-C ends it."
    )
    if not settings.on_loopback:
        note("Other machines reach it by this machine's name or address. Nothing is encrypted: use a tunnel.")
    if open:
        webbrowser.open(settings.address)
    server.serve(settings, listening)
    sys.exit(0)
