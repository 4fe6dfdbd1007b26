"""The command line: one thin file per verb, loaded when the verb is used."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from cyclopts import App, Group

from apportion import __version__
from apportion.errors import ApportionError, CompileError, MissingPackage, UnknownName

app = App(
    name="apportion",
    version=__version__,
    help="Which device should do how much of this work, and how sure are we?",
    suppress_keyboard_interrupt=False,  # `main` ends an interrupted command itself
)

GROUPS = {
    "Ask": {
        "predict": (
            "apportion.cli.predict:predict",
            "Say which share of a kernel's work the CPU should take.",
        ),
        "explain": ("apportion.cli.explain:explain", "Show which instructions moved a prediction."),
        "inspect": (
            "apportion.cli.inspect:inspect",
            "Predict times, the best cut and what each line costs.",
        ),
        "tune": (
            "apportion.cli.tune:tune",
            "Find a fast configuration of a program by measuring a few.",
        ),
        "relative": ("apportion.cli.relative:relative", "Predict relative performance across systems."),
        "models": ("apportion.cli.models:models", "List, show and check the trained models."),
        "systems": (
            "apportion.cli.systems:systems",
            "List, add and remove the systems that relative performance knows.",
        ),
        "schedule": ("apportion.cli.schedule:schedule", "Decide which job runs on which system."),
    },
    "Run": {
        "run": ("apportion.cli.run:run", "Run an OpenCL kernel on several devices at once."),
        "devices": ("apportion.cli.devices:devices", "List the devices that kernels can run on."),
        "measure": ("apportion.cli.measure:measure", "Measure kernels on every device, into a table."),
        "calibrate": ("apportion.cli.calibrate:calibrate", "Adapt the timing model to this machine."),
        "suite": (
            "apportion.cli.suite:suite",
            "Verify and time the bundled kernels and programs on every device.",
        ),
        "generate": (
            "apportion.cli.generate:generate",
            "Generate verified kernels to measure and learn from.",
        ),
    },
    "Look": {
        "graph": (
            "apportion.cli.graph:graph",
            "Build program graphs from source, LLVM IR or a folder of them.",
        ),
        "analyze": ("apportion.cli.analyze:analyze", "Run a data-flow analysis over a program graph."),
        "counters": (
            "apportion.cli.counters:counters",
            "Count what programs and kernels do, on any machine.",
        ),
    },
    "Learn": {
        "data": ("apportion.cli.data:data", "List, fetch and check published datasets."),
        "dataset": ("apportion.cli.dataset:dataset", "Make datasets to learn from out of programs."),
        "train": ("apportion.cli.train:train", "Train and evaluate models from experiment files."),
        "rank": (
            "apportion.cli.rank:rank",
            "Order compiler configurations of tensor programs by predicted speed.",
        ),
        "export": ("apportion.cli.export:export", "Write a predictor as an ONNX file."),
    },
    "Tool": {
        "serve": ("apportion.cli.studio:serve", "Open the studio: a page and a service on this machine."),
        "jobs": (
            "apportion.cli.service_jobs:jobs",
            "List, follow and cancel the jobs of a running studio.",
        ),
        "demo": ("apportion.cli.demo:demo", "See the product work on a bundled kernel."),
        "doctor": (
            "apportion.cli.doctor:doctor",
            "Say what is installed, what is found, and what is missing.",
        ),
    },
}
"A group of the help, its verbs, the function that serves each, and its line in the help (said here so that \
help loads no verb)."

ALWAYS_SERVED = ("jobs",)
"Verbs that only a service answers: they take --server themselves."

COMMANDS = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}

for _place, (_title, _verbs) in enumerate(GROUPS.items()):
    _group = Group(_title, sort_key=_place)
    for _name, (_target, _help) in _verbs.items():
        app.command(_target, name=_name, help=_help, group=_group)
app.register_install_completion_command()
_options = Group("Options", sort_key=len(GROUPS))
for _name in ("--help", "--version", "--install-completion"):
    app[_name].group = _options


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, by default that of `sys.argv`; our own errors become one line and exit status 1."""
    serve(app, COMMANDS, sys.argv[1:] if arguments is None else list(arguments))


def serve(served: App, commands: Mapping[str, object], words: list[str]) -> None:
    """Run one command of an application whose `commands` load when they are used."""
    name = served.name[0]
    _open_standard_files()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminated)
    try:
        try:
            _run(served, commands, words)
        finally:
            sys.stdout.flush()  # here, where a full disk is told in one line
    except CompileError as error:
        from apportion.cli.building import where_it_lies  # only then is it needed

        _end(f"{name}: {error}{where_it_lies(error)}", 1)
    except ApportionError as error:
        _end(f"{name}: {error}", 1)
    except ImportError as error:
        missing = _not_installed(error)
        if missing is None:
            raise
        _end(f"{name}: {missing}", 1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except (
        OSError
    ) as error:  # a full disk, a place that is read-only: whatever was being written is as it was
        place = f" ({error.filename})" if error.filename else ""
        _end(f"{name}: {error.strerror or error}{place}", 1)
    except MemoryError:
        _end(f"{name}: there is not enough memory", 1)
    except RecursionError:
        _end(f"{name}: something in the input is nested too deeply", 1)
    except KeyboardInterrupt:
        _end(f"{name}: interrupted; what was finished is kept", 130)


def _run(served: App, commands: Mapping[str, object], words: list[str]) -> None:
    # cyclopts would load every verb to say this.
    if words and not words[0].startswith("-") and words[0] not in commands:
        raise UnknownName("command", words[0], commands)
    there = not words or words[0] not in ALWAYS_SERVED
    if there and any(word.partition("=")[0] == "--server" for word in words):
        from apportion.cli.remote import serve_there, taken_from  # only then is it needed

        address, words = taken_from(words)
        serve_there(served, address or "", words)
        sys.exit(0)  # as every verb ends
    # Without this, cyclopts returns while another command of this process runs (a service in a thread).
    served(words, result_action="print_non_int_sys_exit")


def _not_installed(error: BaseException | None) -> MissingPackage | None:
    """What to install, if a verb's module needs a package that is not there."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name and error.name.split(".")[0] != "apportion":
            from apportion.advise.installation import extra_of  # only then is it needed

            package = error.name.split(".")[0]
            return MissingPackage(package, extra_of(package) or "all", "This command")
        error = error.__cause__ or error.__context__
    return None


def _open_standard_files() -> None:
    """Give closed ones a file that takes everything: else the next file that is opened would be taken for the
    output, or for the errors, and written into."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _terminated(number: int, frame: object) -> None:
    """End as an interruption does: results are whole, and what was started ends too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _end(said: str, status: int) -> NoReturn:
    """Say why, where that can be said, and leave; without writing what is left to an output that is full."""
    with suppress(OSError, ValueError):
        print(said, file=sys.stderr, flush=True)
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    sys.exit(status)
