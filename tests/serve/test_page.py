"""The built page: what its sources give, small, and complete without another site."""

from __future__ import annotations

import hashlib
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
    built = (PAGE / "built-from.txt").read_text().strip()
    assert built == digest.hexdigest(), "the sources of the page have changed: run `make web`"


def test_building_again_gives_the_same_files(tmp_path):
    if not (WEB / "node_modules").is_dir() or shutil.which("node") is None:
        pytest.skip("the page's packages are not installed here: cd web && npm ci")
    subprocess.run(["node", "build.mjs", str(tmp_path / "page")], cwd=WEB, check=True, capture_output=True)
    for path in PAGE.iterdir():
        assert (tmp_path / "page" / path.name).read_bytes() == path.read_bytes(), path.name


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
