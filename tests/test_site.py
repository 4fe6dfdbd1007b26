"""The documentation site builds without a network, without a warning, and with every link checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import apportion
from apportion.cli import COMMANDS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


def build(configuration: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """As `make docs` does."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", configuration, "-d", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_page_of_the_documentation_is_in_the_site(site: Path):
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert {str(page) for page in pages if not (site / page.with_suffix(".html")).exists()} == set()


def test_the_reference_has_every_verb_and_every_public_name(site: Path):
    verbs = (site / "reference" / "command-line.html").read_text()
    assert [verb for verb in COMMANDS if f'id="apportion-{verb}"' not in verbs] == []
    names = (site / "reference" / "python.html").read_text()
    missing = [name for name in apportion.__all__ if f'id="{name}"' not in names]
    assert missing == ["__version__", "together"]
    assert "Share one OpenCL kernel between several devices" in names


def test_the_site_asks_nothing_of_other_machines(site: Path):
    for page in ("index.html", "reference/python.html"):
        text = (site / page).read_text()
        assert 'src="http' not in text
        assert 'rel="stylesheet" href="http' not in text


def test_a_link_to_nowhere_stops_the_build(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Start\n\nSee [this](nowhere.md).\n")
    configuration = tmp_path / "mkdocs.yml"
    configuration.write_text(f"site_name: wrong\nhooks: [{ROOT}/tools/site.py]\nnav: [{{Start: index.md}}]\n")
    done = build(configuration, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere.md" in done.stdout + done.stderr
