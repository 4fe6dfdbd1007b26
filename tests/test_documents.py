"""Code blocks of the README and the documentation run as they are printed.

A page runs in a folder of its own, from the top. A block after *Save this as `NAME`* is that file; blocks of `sh`, and
the lines of `console` that begin with `$`, are run by bash; blocks of `python` share one interpreter. `<!-- not run: REASON -->`
before a block leaves it out; `<!-- first: SCRIPT -->` runs a script before it, which finds a few kernels in `$KERNELS`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from cyclopts import App

from apportion.cli import COMMANDS, app, main

ROOT = Path(__file__).parents[1]
PAGES_RUN_ELSEWHERE = {
    "write-a-backend": "test_written_by_others.py",
    "write-a-frontend": "test_written_by_others.py",
    "write-a-learner": "learn/test_outside.py",
    "write-a-policy": "test_written_by_others.py",
    "write-a-predictor": "learn/test_outside.py",
    "write-a-runner": "test_written_by_others.py",
}
"How-tos whose code is that of a package of its own, and the tests that install it."
RUN = (
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *(
        page
        for page in sorted((ROOT / "docs" / "howto").glob("*.md"))
        if page.stem not in PAGES_RUN_ELSEWHERE
    ),
)
PAGES = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/*/*.md")))
_BLOCK = re.compile(r"^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"[Ss]ave (?:this|it) as `([\w.-]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    file: str | None
    "What it is to be saved as."
    not_run: str | None
    "Why it is left out."
    first: str | None = None
    "What bash does before it."


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    end = 0
    for match in _BLOCK.finditer(text):
        before = text[end : match.start()].rstrip()
        end = match.end()
        last = before.rpartition("\n\n")[2]
        saved = _FILE.search(last)
        left_out = re.search(r"<!-- not run: (.+) -->$", before)
        first = re.search(r"<!-- first:\s(((?!-->).)+)-->$", before, re.DOTALL)
        yield Block(
            match["language"], match["text"], saved and saved[1], left_out and left_out[1], first and first[1]
        )


def program_of(page: Path) -> str:
    """A Python program that does what a page says, in the folder where it is started."""
    lines = ["import subprocess, sys", "from pathlib import Path", "sys.path.insert(0, '')"]
    for block in blocks_of(page):
        if block.not_run:
            continue
        if block.first is not None:
            lines.append(bash(block.first.splitlines()))
        if block.file is not None:
            lines.append(f"Path({block.file!r}).write_text({block.text!r})")
        elif block.language == "sh":
            kept = [line for line in block.text.splitlines() if not line.startswith(("pip install", "make "))]
            lines.append(bash(kept))
        elif block.language == "console":
            lines.append(bash(typed(block.text)))
        elif block.language == "python":
            lines.append(block.text)
    return "\n".join(lines)


def bash(lines: Iterable[str]) -> str:
    """A statement that runs these lines, and fails if one of them does."""
    script = "\n".join(["set -euo pipefail", *lines])
    return f"subprocess.run(['bash', '-c', {script!r}], check=True)"


def typed(text: str) -> Iterator[str]:
    """What somebody types of a session at a console: lines after `$`, with those that they go on in."""
    goes_on = False
    for line in text.splitlines():
        if goes_on or line.startswith("$ "):
            yield line.removeprefix("$ ")
            goes_on = line.endswith("\\")


def test_the_code_of_every_page_is_run():
    howtos = {page.stem for page in (ROOT / "docs" / "howto").glob("*.md")}
    assert set(PAGES_RUN_ELSEWHERE) <= howtos
    for page, test in PAGES_RUN_ELSEWHERE.items():
        assert page in (ROOT / "tests" / test).read_text(), page
    others = [
        page
        for page in PAGES
        if page not in RUN and page.stem not in PAGES_RUN_ELSEWHERE and "results" not in page.parts
    ]
    shells = {
        f"{page.relative_to(ROOT)}: {block.text.splitlines()[0]}"
        for page in others
        for block in blocks_of(page)
        if block.language in ("sh", "console")
    }
    assert shells == set(), "a page with commands belongs to RUN"


@pytest.mark.xdist_group("opencl")
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path):
    assert any(True for _ in blocks_of(page))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", program_of(page)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "KERNELS": str(ROOT / "tests" / "kernels")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


def test_the_readme_prints_what_commands_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Those of its answers that are the same on every machine."""
    monkeypatch.chdir(tmp_path)
    blocks = list(blocks_of(ROOT / "README.md"))
    (saved,) = [block for block in blocks if block.file == "saxpy.cl"]
    Path("saxpy.cl").write_text(saved.text)
    checked = []
    for block, printed in pairwise(blocks):
        if not block.text.startswith(("apportion predict", "apportion graph", "apportion counters")):
            continue
        for line in block.text.splitlines():
            with pytest.raises(SystemExit):
                main(shlex.split(line)[1:])
        said = {_cells(line.replace("┃", "│")) for line in capsys.readouterr().out.splitlines()}
        assert {_cells(line) for line in printed.text.splitlines()} <= {*said, ()}
        checked.append(shlex.split(block.text)[1])
    assert checked == ["predict", "graph", "counters"]


def _cells(line: str) -> tuple[str, ...]:
    """What stands in a row of a table."""
    return tuple(cell.strip() for cell in line.split("│") if cell.strip())


def test_a_page_that_is_wrong_would_be_found(tmp_path: Path):
    page = tmp_path / "wrong.md"
    page.write_text("Save this as `a.txt`:\n\n```\nhello\n```\n\n```sh\ngrep goodbye a.txt\n```\n")
    done = subprocess.run(
        [sys.executable, "-c", program_of(page)], cwd=tmp_path, capture_output=True, check=False
    )
    assert (tmp_path / "a.txt").read_text() == "hello\n"
    assert done.returncode == 1


def commands_of(page: Path) -> Iterator[list[str]]:
    """The words of each `apportion` command line in a page's shell blocks."""
    for block in blocks_of(page):
        if block.language not in ("sh", "console"):
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|[|;&] *)apportion (.*)", line.strip())
            if found:
                try:
                    yield shlex.split(found[1], comments=True)
                except ValueError:
                    continue


def verbs_of(served: App, name: str) -> Iterator[tuple[str, App]]:
    """A verb and the verbs below it, at any depth, by their words."""
    yield name, served
    for below in served:
        if not below.startswith("-"):
            yield from verbs_of(served[below], f"{name} {below}")


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Each verb, and each verb below it: the options it has."""
    found: dict[str, set[str]] = {}
    for verb in COMMANDS:
        for name, one in verbs_of(app[verb], verb):
            try:
                arguments = one.assemble_argument_collection()
            except Exception:
                arguments = ()
            found[name] = {option for argument in arguments for option in argument.names} | {"--help", "-h"}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_that_a_page_prints_have_these_verbs_and_options(page: Path, options):
    wrong = []
    for words in commands_of(page):
        known = [" ".join(words[:count]) for count in (3, 2, 1) if " ".join(words[:count]) in options]
        verb = known[0] if known else words[0] if words else ""
        if verb.startswith("-"):
            continue
        if verb not in options:
            wrong.append(f"no verb: {' '.join(words)}")
            continue
        until = words.index("--") if "--" in words else len(words)
        for word in words[:until]:
            name = word.partition("=")[0]
            if name.startswith("--") and name not in options[verb] | {"--version"}:
                wrong.append(f"{verb} has no {name}")
    assert wrong == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("[ht]*to*/*.md")), ids=lambda page: page.name)
def test_a_page_that_begins_with_installing_does_so_from_a_checkout(page: Path):
    for block in blocks_of(page):
        for line in block.text.splitlines():
            # What is not on PyPI would not be found there, or somebody else's would.
            assert not re.match(r"(?:\$ )?pip install '?apportion\b", line), line


_PATH = re.compile(
    r"\b(?:tools|benchmarks|reproduction|experiments|examples|tests|native)/[\w./-]+\.(?:py|sh|toml|csv|xz|parquet|cpp)\b"
)


def test_the_files_that_pages_and_scripts_name_are_there():
    written = [
        *PAGES,
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        ROOT / "Makefile",
        *ROOT.glob("tools/*.sh"),
    ]
    lost = {
        f"{page.relative_to(ROOT)}: {path}"
        for page in written
        for path in _PATH.findall(page.read_text())
        if not (ROOT / path).exists()
    }
    assert lost == set()
