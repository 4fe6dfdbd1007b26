"""The worker process: it loads the drivers, and does what it is asked over a socket.

Run by `apportion.runtime.opencl.worker` in a cage, through `apportion.jobs.caged`.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from apportion.errors import ApportionError
from apportion.runtime.opencl.driver import Driver
from apportion.runtime.opencl.pipe import ANSWER, BEGUN, SEEN, receive, tell, tell_failure

REQUESTS: Mapping[str, Callable[..., Any]] = {
    "describe": Driver.describe,
    "attach": Driver.attach,
    "detach": Driver.detach,
    "build": Driver.build,
    "calibrate": Driver.calibrate,
    "run": Driver.run,
    "again": Driver.again,
    "open_again": Driver.open_again,
    "again_failure": Driver.again_failure,
    "open_stream": Driver.open_stream,
    "prepare_stream": Driver.prepare_stream,
    "stream_failure": Driver.stream_failure,
    "stream_timeline": Driver.stream_timeline,
    "visit": Driver.visit,
}
"What a worker can be asked, and what answers."


def serve(connection: socket.socket) -> None:
    """Answer requests until the other side hangs up."""
    driver: Driver | None = None
    while (request := receive(connection)) is not None:
        name, arguments = request
        try:
            driver = driver or Driver()
            if name == "attach":
                _, descriptors, _, _ = socket.recv_fds(connection, 1, len(arguments[0]))
                arguments = (*arguments, descriptors)
            elif name in ("open_stream", "open_again"):
                _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
                arguments = (*arguments, descriptors[0])
            elif name == "run":
                arguments = (*arguments, partial(tell, connection, BEGUN))
            elif name == "visit":
                arguments = (*arguments, partial(_report, connection))
            tell(connection, ANSWER, REQUESTS[name](driver, *arguments))
        except ApportionError as error:
            tell_failure(connection, type(error).__name__, error.args, error.__dict__)
        except Exception as error:  # a bug of ours, or a driver's error nobody translated: with its place
            said = f"{type(error).__name__}: {error}"
            tell_failure(connection, "LaunchFailed", [said], {"traceback": traceback.format_exc()})


def _report(connection: socket.socket, seen: Any) -> None:
    """Tell what was measured, and wait until it is written down: whoever writes would need a processor while
    the next launch is measured."""
    tell(connection, SEEN, seen)
    if receive(connection) is None:
        os._exit(1)  # nobody is there any more


def main(descriptor: int) -> None:
    """Serve the socket with this descriptor."""
    with socket.socket(fileno=descriptor) as connection:
        serve(connection)
