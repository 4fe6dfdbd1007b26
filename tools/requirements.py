"""Print the requirements of the project and of the named extras, read from pyproject.toml.

The Makefile installs them before the project itself, so that an editable install needs no build isolation.
"""

import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def requirements(extras: list[str]) -> list[str]:
    """Everything the project needs with these extras, self-references followed, each once."""
    found = list(PROJECT["dependencies"])
    for extra in extras:
        for line in EXTRAS[extra]:
            if line.startswith("apportion["):
                found += requirements(line[len("apportion[") : -1].split(","))
            else:
                found.append(line)
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    print(*requirements(sys.argv[1:]))
