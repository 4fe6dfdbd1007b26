"""Build a release: an sdist, a wheel for each platform, a bill of materials, the changes and checksums.

    python tools/release.py --out out/dist [--python python3.11 --python python3.12] [--platform x86_64]

The sources are those of the last commit, without what lies beside it. A commit with a tag `v1.2.3` gives
version 1.2.3; any other gives the version after the newest tag, as `1.2.4.dev5+g0123456`. Wheels are built
from the unpacked sdist, with the compiler of the `ziglang` package, which makes code for the oldest glibc
that NumPy's wheels still support, and for AArch64 on any machine. CPython 3.11 has a wheel of its own; one
wheel for the stable ABI serves 3.12 and everything newer. Two builds of one commit give the same bytes: times
are those of the commit, entries are sorted, and no path of this machine gets into a file.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PLATFORMS = ("x86_64", "aarch64")
GLIBC = "2.28"
"What NumPy's own wheels need; zig compiles for it on every machine."

_DESCRIBED = re.compile(r"v(\d+\.\d+\.)(\d+)-(\d+)-g([0-9a-f]+)")
_VERSIONED = (
    ("pyproject.toml", re.compile(r'^version = "([^"\n]*)"', re.MULTILINE)),
    ("src/apportion/__init__.py", re.compile(r'^__version__ = "([^"\n]*)"', re.MULTILINE)),
    ("CITATION.cff", re.compile(r"^version: (\S+)", re.MULTILINE)),
)
"Where the version stands, and how."

_BUILDING = ("scikit-build-core", "nanobind", "cmake", "ninja", "ziglang")


def main(words: Sequence[str] | None = None) -> int:
    """Build everything into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/dist"))
    parser.add_argument(
        "--python", action="append", help="an interpreter to build for; 3.11 and 3.12 suffice"
    )
    parser.add_argument("--platform", action="append", choices=PLATFORMS, help="all by default")
    parser.add_argument("--commit", default="HEAD")
    chosen = parser.parse_args(words)
    out: Path = chosen.out.resolve()
    if out.exists() and any(out.iterdir()):
        parser.error(f"{out} is not empty")
    out.mkdir(parents=True, exist_ok=True)
    version = version_of(ROOT, chosen.commit)
    seconds = int(_git(ROOT, "log", "-1", "--format=%ct", chosen.commit))
    with tempfile.TemporaryDirectory() as folder:
        tree = exported(ROOT, chosen.commit, Path(folder) / "tree")
        stamp(tree, version)
        (out / f"apportion-{version}.changes.md").write_text(changes(tree, version, seconds))
        (out / f"apportion-{version}.cdx.json").write_text(bill_of_materials(tree, version, seconds))
        archive = sdist(tree, out, seconds)
        print(archive.name, flush=True)
        for interpreter in chosen.python or [
            name for name in ("python3.11", "python3.12") if shutil.which(name)
        ]:
            tools = build_tools(interpreter, Path(folder) / f"tools-{Path(interpreter).name}")
            for platform in chosen.platform or PLATFORMS:
                print(wheel(archive, out, tools, platform, seconds).name, flush=True)
    lines = [
        f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted(out.iterdir())
    ]
    (out / "SHA256SUMS").write_text("".join(lines))
    return 0


def version_of(repository: Path, commit: str = "HEAD") -> str:
    """The version of a commit: its tag, or a development version after the newest tag."""
    asked = ["git", "-C", str(repository), "describe", "--tags", "--long", "--match", "v[0-9]*.[0-9]*.[0-9]*"]
    said = subprocess.run([*asked, commit], capture_output=True, text=True, check=False)
    found = _DESCRIBED.fullmatch(said.stdout.strip())
    if found is None:  # no tag yet: the version that the sources name comes next
        name, pattern = _VERSIONED[0]
        planned = pattern.search(_git(repository, "show", f"{commit}:{name}"))
        assert planned is not None
        number = _git(repository, "rev-list", "--count", commit)
        return f"{planned[1]}.dev{number}+g{_git(repository, 'rev-parse', '--short=9', commit)}"
    series, last, since, short = found.groups()
    return f"{series}{last}" if since == "0" else f"{series}{int(last) + 1}.dev{since}+g{short}"


def exported(repository: Path, commit: str, tree: Path) -> Path:
    """The files of a commit in a new folder."""
    done = subprocess.run(
        ["git", "-C", str(repository), "archive", "--format=tar", commit], capture_output=True, check=True
    )
    tree.mkdir()
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(tree, filter="data")
    return tree


def stamp(tree: Path, version: str) -> None:
    """Write the version wherever the sources name it."""
    for name, pattern in _VERSIONED:
        text = (tree / name).read_text()
        found = pattern.search(text)
        if found is None:
            raise SystemExit(f"{name} names no version")
        (tree / name).write_text(f"{text[: found.start(1)]}{version}{text[found.end(1) :]}")


def changes(tree: Path, version: str, seconds: int) -> str:
    """What changed, gathered from `changelog.d/` by towncrier."""
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", version,
         "--date", _iso(seconds)[:10]],
        cwd=tree, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"towncrier: {done.stderr.strip()}")
    return done.stdout[done.stdout.index("#") :]


def sdist(tree: Path, out: Path, seconds: int) -> Path:
    """The sdist of a folder."""
    program = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    _run([sys.executable, "-c", program, str(out)], cwd=tree, env=_environment(seconds))
    (found,) = out.glob("*.tar.gz")
    return found


def build_tools(interpreter: str, folder: Path) -> Path:
    """An environment of that interpreter with what builds a wheel, in the versions used here."""
    _run([interpreter, "-m", "venv", "--without-pip", str(folder)])
    python = folder / "bin" / "python"
    wanted = [f"{name}=={importlib.metadata.version(name)}" for name in _BUILDING]
    _run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet",
          "--disable-pip-version-check", *wanted])  # fmt: skip
    return python


def wheel(archive: Path, out: Path, python: Path, platform: str, seconds: int) -> Path:
    """The wheel of an sdist for one interpreter and platform.

    Args:
        python: the interpreter, in an environment from `build_tools`.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        (tree,) = folder.iterdir()
        compiler = folder / "c++"
        hidden = f"-ffile-prefix-map={folder}=. -ffile-prefix-map={python.parents[1]}=tools"
        compiler.write_text(
            f"#!/bin/sh\nexec {python} -m ziglang c++ -target {platform}-linux-gnu.{GLIBC} {hidden} "
            '-Wl,--build-id=none "$@"\n'
        )
        compiler.chmod(0o755)
        suffix = _run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"]
        ).strip()
        environment = _environment(seconds) | {
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "CXX": str(compiler),
            "_PYTHON_HOST_PLATFORM": f"linux-{platform}",
            "SETUPTOOLS_EXT_SUFFIX": re.sub(r"x86_64|aarch64", platform, suffix),
            "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"),
        }
        built = folder / "built"
        built.mkdir()
        program = "import sys; from scikit_build_core.build import build_wheel; build_wheel(sys.argv[1])"
        _run([str(python), "-c", program, str(built)], cwd=tree, env=environment)
        (found,) = built.glob("*.whl")
        return repacked(found, out, f"manylinux_{GLIBC.replace('.', '_')}_{platform}", seconds)


def repacked(found: Path, out: Path, platform: str, seconds: int) -> Path:
    """A wheel with the platform named in its tags, its entries sorted, and nothing in it but contents."""
    stem, _, _ = found.name.rpartition("-")
    target = out / f"{stem}-{platform}.whl"
    with zipfile.ZipFile(found) as opened:
        files = {name: opened.read(name) for name in opened.namelist() if not name.endswith("/")}
        programs = {entry.filename for entry in opened.infolist() if entry.external_attr >> 16 & 0o100}
    (about,) = (name for name in files if name.endswith(".dist-info/WHEEL"))
    tag = "-".join(stem.split("-")[2:])
    text = re.sub(r"^Tag: .*\n", "", files[about].decode(), flags=re.MULTILINE).rstrip("\n")
    files[about] = f"{text}\nTag: {tag}-{platform}\n".encode()
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    del files[record]
    lines = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in sorted(files.items())]
    files[record] = ("".join(lines) + f"{record},,\n").encode()
    when = _zip_time(seconds)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as written:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, when)
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name in programs else 0o100644) << 16
            written.writestr(entry, data)
    return target


def bill_of_materials(tree: Path, version: str, seconds: int) -> str:
    """A CycloneDX 1.6 document: what the wheel holds of others, which models, and what it depends on."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    reference = f"pkg:pypi/apportion@{version}"
    needed = [_requirement(line, None) for line in project["dependencies"]]
    for extra, lines in sorted(project["optional-dependencies"].items()):
        if extra not in ("all", "dev", "docs"):
            needed += [_requirement(line, extra) for line in lines if not line.startswith("apportion[")]
    components = list(
        {part["bom-ref"]: part for part in [*needed, *_vendored(tree), *_models(tree)]}.values()
    )
    inner = [part["bom-ref"] for part in components]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, reference)}",
        "version": 1,
        "metadata": {
            "timestamp": _iso(seconds),
            "component": {
                "type": "library", "bom-ref": reference, "purl": reference,
                "name": "apportion", "version": version,
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": components,
        "dependencies": [{"ref": reference, "dependsOn": inner}, *({"ref": each} for each in inner)],
    }  # fmt: skip
    return json.dumps(document, indent=1) + "\n"


def _requirement(line: str, extra: str | None) -> dict[str, Any]:
    """A package that users install beside ours; its licence is known where it is installed here."""
    found = re.fullmatch(r"([A-Za-z0-9._-]+)(\[[^]]*\])?\s*(.*)", line)
    assert found is not None, line
    name = found[1].lower()
    part: dict[str, Any] = {
        "type": "library", "bom-ref": f"pkg:pypi/{name}", "purl": f"pkg:pypi/{name}", "name": name,
        "scope": "required" if extra is None else "optional",
        "properties": [
            {"name": "apportion:versions", "value": found[3] or "any"},
            *([{"name": "apportion:extra", "value": extra}] if extra else []),
        ],
    }  # fmt: skip
    return part


def _vendored(tree: Path) -> Iterator[dict[str, Any]]:
    """The libraries inside the studio's page, from the list of their licences."""
    text = (tree / "src/apportion/serve/page/LICENSES.txt").read_text()
    for name, version, licence in re.findall(r"^=+\n(\S+) (\S+) \(([^)\n]+)\)$", text, re.MULTILINE):
        reference = f"pkg:npm/{name.replace('@', '%40')}@{version}"
        yield {
            "type": "library", "bom-ref": reference, "purl": reference, "name": name, "version": version,
            "licenses": [{"license": {"id": licence}}],
        }  # fmt: skip


def _models(tree: Path) -> Iterator[dict[str, Any]]:
    """The shipped models, with their checksums and licences."""
    for model in json.loads((tree / "src/apportion/weights/manifest.json").read_text())["models"]:
        yield {
            "type": "machine-learning-model", "bom-ref": f"model:{model['name']}", "name": model["name"],
            "description": f"{model['question']}, {model['predictor']}, made by `{model['made_by']}`",
            "hashes": [{"alg": "SHA-256", "content": model["checksum"]}],
            "licenses": [{"license": {"id": model["licence"]}}],
        }  # fmt: skip


def _environment(seconds: int) -> dict[str, str]:
    return dict(os.environ) | {"SOURCE_DATE_EPOCH": str(seconds), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}


def _run(command: Sequence[str], *, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:6])} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def _git(repository: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(repository), *words], capture_output=True, text=True, check=True
    ).stdout.strip()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _zip_time(seconds: int) -> tuple[int, int, int, int, int, int]:
    year, month, day, hour, minute, second = map(int, re.findall(r"\d+", _iso(seconds)))
    return max(year, 1980), month, day, hour, minute, second


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    raise SystemExit(main())
