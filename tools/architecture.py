"""Draw the tree in docs/architecture.md again, from the first line of every module's docstring.

python tools/architecture.py            # write it
python tools/architecture.py --check    # say whether it is as it should be
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "apportion"
PAGE = ROOT / "docs" / "architecture.md"
FIRST = "src/apportion/\n"
WIDTH = 96
"Of what is said of a module."
ORDER = (
    "jobs", "program", "device", "suite", "suite/kernelforms", "data", "data/published", "counters",
    "counters/imports", "task", "model", "collect", "train", "advise", "cli", "testing",
)  # fmt: skip


def said_of(path: Path) -> str:
    """The first sentence of a module's docstring, shortened to fit."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
    text = text.split(". ")[0].removesuffix(".")
    if len(text) <= WIDTH:
        return text
    return text[:WIDTH].rsplit(" ", 1)[0].rstrip(",;:") + " …"


def tree() -> str:
    """The part of the page that lists packages and modules."""
    known = {str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("__init__.py")} - {"."}
    if known != set(ORDER):
        raise SystemExit(f"tools/architecture.py does not place {sorted(known ^ set(ORDER))}")
    lines = [
        f"├── {name + '.py':<18} {said_of(SOURCE / f'{name}.py')}"
        for name in ("__init__", "errors", "registry", "settings")
    ]
    for package in ORDER:
        folder = SOURCE / package
        lines.append(f"├── {package + '/':<18} {said_of(folder / '__init__.py')}")
        lines += [
            f"│   ├── {path.name:<20} {said_of(path)}"
            for path in sorted(folder.glob("*.py"))
            if path.name != "__init__.py"
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page, or check it."""
    text = PAGE.read_text()
    before, _, rest = text.partition(FIRST)
    _, end, after = rest.partition("```")
    drawn = before + FIRST + tree() + end + after
    if "--check" in sys.argv:
        raise SystemExit(0 if drawn == text else "docs/architecture.md is out of date: tools/architecture.py")
    PAGE.write_text(drawn)


if __name__ == "__main__":
    main()
