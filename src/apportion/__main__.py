"""How the command line starts: an interruption while modules still load is one line, and no traceback."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command, that of `sys.argv`."""
    try:
        from apportion.cli import main as command  # here: loading takes a moment, in which Ctrl-C may come

        command()
    except KeyboardInterrupt:
        print("apportion: interrupted before anything was begun", file=sys.stderr, flush=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
