"""The worker process: it loads the drivers, does what it is asked over a socket, and dies with whoever
started it.

Run by `apportion.runtime.opencl.worker` as `python -m apportion.runtime.opencl.server DESCRIPTOR`.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from functools import partial
from typing import Any

from apportion.errors import ApportionError
from apportion.jobs.lifetime import end_with_parent
from apportion.runtime.opencl.driver import Driver
from apportion.runtime.opencl.pipe import BEGUN, SEEN, receive, send


def serve(connection: socket.socket) -> None:
    """Answer requests until the other side hangs up."""
    driver: Driver | None = None
    while (request := receive(connection)) is not None:
        name, arguments = request
        try:
            driver = driver or Driver()
            if name == "attach":
                _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
                arguments = (arguments[0], descriptors[0], arguments[1])
            elif name == "run":
                arguments = (*arguments, lambda: send(connection, BEGUN))
            elif name == "visit":
                arguments = (*arguments, partial(_tell, connection))
            answer: Any = (True, getattr(driver, name)(*arguments))
        except ApportionError as error:
            answer = (False, (type(error).__name__, error.args, error.__dict__))
        except (
            Exception
        ) as error:  # a bug of ours, or a driver's error nobody translated: told with its place
            answer = (
                False,
                (
                    "LaunchFailed",
                    (f"{type(error).__name__}: {error}",),
                    {"traceback": traceback.format_exc()},
                ),
            )
        send(connection, answer)


def _tell(connection: socket.socket, seen: Any) -> None:
    """Tell what was measured, and wait until it is written down: whoever writes would need a processor while
    the next launch is measured."""
    send(connection, (SEEN, seen))
    if receive(connection) is None:
        os._exit(1)  # nobody is there any more


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    end_with_parent()  # even while a kernel runs for ever
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        serve(connection)
    os._exit(0)  # without the drivers' own clean-up, which some of them do not survive


if __name__ == "__main__":
    main()
