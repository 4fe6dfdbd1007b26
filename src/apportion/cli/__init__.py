"""The command line: one thin file per verb, loaded when the verb is used."""

from __future__ import annotations

import sys

from cyclopts import App

from apportion import __version__
from apportion.errors import ApportionError

app = App(
    name="apportion",
    version=__version__,
    help="Which device should do how much of this work, and how sure are we?",
)

COMMANDS = {
    "graph": ("apportion.cli.graph:graph", "Build program graphs from source, LLVM IR or a folder of them."),
    "analyze": ("apportion.cli.analyze:analyze", "Run a data-flow analysis over a program graph."),
    "demo": ("apportion.cli.demo:demo", "See the product work on a bundled kernel."),
    "doctor": ("apportion.cli.doctor:doctor", "Say what is installed, what is found, and what is missing."),
}
"A verb: the function that serves it, and its line in the help (said here so that help loads no verb)."

for _name, (_target, _help) in COMMANDS.items():
    app.command(_target, name=_name, help=_help)
app.register_install_completion_command()


def main() -> None:
    """Run a command; our own errors become one line and exit status 1."""
    try:
        app()
    except ApportionError as error:
        print(f"apportion: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except KeyboardInterrupt:
        print("apportion: interrupted; what was finished is kept", file=sys.stderr)
        sys.exit(130)
