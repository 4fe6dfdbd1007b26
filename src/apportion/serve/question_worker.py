"""A process that answers questions: it reads one line of JSON each, and writes lines of JSON.

It gives up its right to other files and to the network before it reads the first one. What it answers is
worked out by the functions that the command line calls (`serve.verbs`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from apportion.errors import ApportionError
from apportion.jobs import landlock
from apportion.jobs.lifetime import end_with_parent
from apportion.jobs.processors import peak_memory_bytes
from apportion.serve.failures import failure_of
from apportion.serve.verbs import answer
from apportion.settings import cache_folder, home_folder

if sys.platform != "win32":
    import resource

_READABLE = (
    "/usr", "/lib", "/lib64", "/bin", "/opt", "/proc", "/sys", "/etc/OpenCL", "/etc/ld.so.cache",
    "/etc/localtime",
)  # fmt: skip
_WRITABLE = ("/dev",)


def main() -> None:
    """Answer until the pipe is closed."""
    folder = Path(sys.argv[1])
    # What a driver or a library prints is no answer.
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    restricted = _restrict(folder)
    end_with_parent()

    def say(kind: str, value: Any) -> None:
        pipe.write(json.dumps({kind: value}, ensure_ascii=True, allow_nan=False, default=_plain) + "\n")
        pipe.flush()

    say("ready", {"restricted": restricted})
    with suppress(BrokenPipeError):
        for line in sys.stdin:
            question = json.loads(line)
            _answer(question["verb"], question["form"], folder, say)


def _answer(verb: str, form: Any, folder: Path, say: Callable[[str, Any], None]) -> None:
    try:
        found = answer(verb, form, report=lambda event: say("event", event), folder=folder)
        memory = peak_memory_bytes()
        say("answer", {"value": found, "memory": memory})
    except ApportionError as error:
        status, body = failure_of(error)
        say("error", {"status": status, "body": body})
    except BrokenPipeError:
        raise
    except MemoryError:
        say(
            "error", {"status": 422, "body": {"kind": "LimitExceeded", "message": "It needs too much memory"}}
        )
    except RecursionError:
        say("error", {"status": 422, "body": {"kind": "LimitExceeded", "message": "It is nested too deeply"}})
    except Exception:
        say("bug", traceback.format_exc())


def _restrict(folder: Path) -> bool:
    """Give up every file but the programs of this machine, the caches and the jobs' folder."""
    if not landlock.version():
        return False
    tempfile.tempdir = str(folder / "temporary")
    Path(tempfile.tempdir).mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir
    installed = {Path(sys.prefix), Path(sys.base_prefix), *(Path(path) for path in sys.path if path)}
    rights: list[tuple[Path, int]] = [
        (Path("/"), landlock.LIST),  # the drivers' library for processors begins there
        *((place, landlock.EXECUTE) for place in (*map(Path, _READABLE), *sorted(installed))),
        (home_folder(), landlock.READ),  # models of the user's own
        *((place, landlock.KEEP) for place in (*map(Path, _WRITABLE), cache_folder(), folder)),
    ]
    descriptor = landlock.ruleset(rights)
    try:
        landlock.restrict_this_thread(descriptor)
    finally:
        os.close(descriptor)
    return True


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "tolist"):  # NumPy's arrays and scalars
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no JSON form")


if __name__ == "__main__":
    main()
