"""A release names its version once, lists what it holds, and comes out the same twice."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tools import release

ROOT = Path(__file__).parents[2]
SECONDS = 1_790_000_000


def git(folder: Path, *words: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", folder, *author, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / "src" / "apportion").mkdir(parents=True)
    for name, _ in release._VERSIONED:
        (folder / name).write_text((ROOT / name).read_text())
    git(tmp_path, "init", "-q", str(folder))
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "First")
    return folder


def test_a_tagged_commit_has_the_version_of_its_tag(repository: Path):
    git(repository, "tag", "v1.2.3")
    assert release.version_of(repository) == "1.2.3"


def test_a_commit_after_a_tag_is_on_the_way_to_the_next_version(repository: Path):
    git(repository, "tag", "v1.2.3")
    git(repository, "commit", "-q", "--allow-empty", "-m", "Second")
    assert re.fullmatch(r"1\.2\.4\.dev1\+g[0-9a-f]{7,}", release.version_of(repository))


def test_without_a_tag_the_version_that_the_sources_name_comes_next(repository: Path):
    assert re.fullmatch(r"\d+\.\d+\.\d+\.dev1\+g[0-9a-f]{9}", release.version_of(repository))


def test_the_version_is_written_wherever_the_sources_name_it(repository: Path):
    named = [pattern.search((ROOT / name).read_text())[1] for name, pattern in release._VERSIONED]
    assert len(set(named)) == 1
    release.stamp(repository, "7.8.9")
    for name, pattern in release._VERSIONED:
        text = (repository / name).read_text()
        assert pattern.search(text)[1] == "7.8.9"
        assert pattern.sub("", text) == pattern.sub("", (ROOT / name).read_text())


def test_every_fragment_gets_into_the_changes():
    text = release.changes(ROOT, "1.2.3", SECONDS)
    assert text.startswith("# apportion 1.2.3 (2026-09-21)\n")
    flat = " ".join(text.split())
    fragments = sorted((ROOT / "changelog.d").glob("*.md"))
    assert fragments
    for fragment in fragments:
        assert fragment.name.split(".")[-2] in ("feature", "fix", "speed", "docs", "removal"), fragment.name
        words = " ".join(fragment.read_text().split()[:6])
        assert words in flat, fragment.name


def test_the_bill_of_materials_is_valid_and_complete():
    text = release.bill_of_materials(ROOT, "1.2.3", SECONDS)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert text == release.bill_of_materials(ROOT, "1.2.3", SECONDS)
    parts = {part["name"]: part for part in json.loads(text)["components"]}
    models = json.loads((ROOT / "src/apportion/weights/manifest.json").read_text())["models"]
    assert models
    for model in models:
        assert parts[model["name"]]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
        assert parts[model["name"]]["hashes"][0]["content"] == model["checksum"]
    assert {"numpy", "polars", "ziglang"} <= set(parts)
    assert parts["numpy"]["scope"] == "required"
    assert parts["ziglang"]["scope"] == "optional"
    page = (ROOT / "src/apportion/serve/page/LICENSES.txt").read_text()
    vendored = [part for part in parts.values() if part["bom-ref"].startswith("pkg:npm/")]
    assert len(vendored) == len(re.findall(r"^={20,}$", page, re.MULTILINE)) > 10


def wheel_at(path: Path, names: list[str], when: tuple[int, int, int, int, int, int]) -> Path:
    contents = {
        "p/__init__.py": b"",
        "p/tool.sh": b"#!/bin/sh\n",
        "p-1.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n\n",
        "p-1.dist-info/RECORD": b"stale",
    }
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = (0o755 if name.endswith(".sh") else 0o644) << 16
            archive.writestr(entry, contents[name])
    return path


def test_a_repacked_wheel_depends_on_nothing_but_its_contents(tmp_path: Path):
    names = ["p/__init__.py", "p/tool.sh", "p-1.dist-info/WHEEL", "p-1.dist-info/RECORD"]
    stem = "p-1-cp311-cp311-linux_x86_64.whl"
    first = wheel_at(tmp_path / "a" / stem, names, (2001, 1, 1, 0, 0, 0))
    second = wheel_at(tmp_path / "b" / stem, names[::-1], (2026, 5, 4, 3, 2, 0))
    made = []
    for number, found in enumerate((first, second)):
        out = tmp_path / f"out{number}"
        out.mkdir()
        made.append(release.repacked(found, out, "manylinux_2_28_aarch64", SECONDS))
    assert made[0].read_bytes() == made[1].read_bytes()
    assert made[0].name == "p-1-cp311-cp311-manylinux_2_28_aarch64.whl"
    with zipfile.ZipFile(made[0]) as archive:
        assert b"Tag: cp311-cp311-manylinux_2_28_aarch64\n" in archive.read("p-1.dist-info/WHEEL")
        assert (
            archive.read("p-1.dist-info/RECORD")
            .decode()
            .splitlines()[0]
            .startswith("p-1.dist-info/WHEEL,sha256=")
        )
        assert archive.getinfo("p/tool.sh").external_attr >> 16 & 0o100
        assert not archive.getinfo("p/__init__.py").external_attr >> 16 & 0o100
