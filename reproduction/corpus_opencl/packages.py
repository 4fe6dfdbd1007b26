"""Source packages that hold OpenCL C, how they are fetched, and how each builds its kernels."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from apportion.errors import ApportionError, UnreadableFile
from apportion.program.buildfile import BuildOptions, parsed, words_of

PLAN = Path(__file__).with_name("packages.toml")
_SEED = 19
"Draws files where a package has very many."
_KERNEL = re.compile(r"^\s*(?:__)?kernel\b|\bKERNEL_FQ\b", re.MULTILINE)
_APT = ("-o", "Dir::Etc::sourceparts=/dev/null", "-o", "APT::Sandbox::User=root")


@dataclass(frozen=True)
class Package:
    """A package, and where its kernels are."""

    name: str
    origin: str
    "`debian` or `pypi`."
    version: str
    root: Path
    options: str
    "As its build gives them to the compiler; folders are relative to `root`."
    name_pattern: str = ""
    "What finds the names in a kernel that have options of their own."
    each: tuple[str, ...] = ()
    "Macros for each of these names, which takes the place of `{n}`."
    flat: tuple[tuple[str, str], ...] = ()
    "What is written otherwise in these macros for files of two dimensions, which have 2d in their names."
    most: int = 1 << 30
    "Files that are drawn."

    def build(self, path: Path) -> BuildOptions:
        """The options for the kernels of a file."""
        text = path.read_text("utf-8", "replace")
        options = parsed(words_of(self.options), self.root)
        names = sorted(set(re.findall(self.name_pattern, text))) if self.name_pattern else []
        macros = tuple(macro.replace("{n}", name) for name in names for macro in self.each)
        for usual, flat in self.flat if "2d" in path.name else ():
            macros = tuple(macro.replace(usual, flat) for macro in macros)
        return replace(options, defines=(*options.defines, *macros))

    def files(self) -> list[Path]:
        """Its files of OpenCL C that define a kernel, or as many of them as are drawn."""
        found = self._files()
        return sorted(random.Random(_SEED).sample(found, self.most)) if len(found) > self.most else found

    def _files(self) -> list[Path]:
        found = []
        for path in sorted(self.root.rglob("*.cl")):
            try:
                text = path.read_text("utf-8", "replace")
            except OSError:
                continue
            if _KERNEL.search(text):
                found.append(path)
        return found


def packages(folder: Path) -> Iterator[Package]:
    """The packages of the plan that are in a folder; those that could not be fetched are left out."""
    for name, said in tomllib.loads(PLAN.read_text()).items():
        root = folder / name / "tree"
        if root.is_dir() and any(root.rglob("*.cl")):
            version = (folder / name / "version").read_text().strip()
            yield Package(
                name, said["origin"], version, root, said.get("options", ""), said.get("name", ""),
                tuple(said.get("each", ())), tuple(map(tuple, said.get("flat", ()))),
                said.get("most", 1 << 30),
            )  # fmt: skip


def fetch(folder: Path) -> Iterator[tuple[str, str]]:
    """Fetch what is not there yet; each package with what became of it."""
    listed = False
    for name, said in tomllib.loads(PLAN.read_text()).items():
        place = folder / name
        if (place / "version").exists():
            yield name, "there"
            continue
        place.mkdir(parents=True, exist_ok=True)
        try:
            if said["origin"] == "debian":
                if not listed:
                    _list_sources(folder)
                    listed = True
                version = _from_debian(name, folder, place)
            else:
                version = _from_pypi(name, place)
        except ApportionError as error:
            yield name, str(error)
            continue
        (place / "version").write_text(version + "\n")
        yield name, version


def _list_sources(folder: Path) -> None:
    """A list of Debian's source packages, apart from the machine's own lists."""
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text("deb-src http://deb.debian.org/debian bookworm main\n")
    _run("apt-get", *_lists(folder), "update", folder=folder)


def _lists(folder: Path) -> tuple[str, ...]:
    return (
        *_APT, "-o", f"Dir::Etc::sourcelist={folder.resolve()}/sources.list",
        "-o", f"Dir::State::lists={folder.resolve()}/lists",
    )  # fmt: skip


def _from_debian(name: str, folder: Path, place: Path) -> str:
    _run("apt-get", *_lists(folder), "source", "--download-only", name, folder=place)
    (description,) = place.glob("*.dsc")
    _run("dpkg-source", "--no-check", "--skip-patches", "-x", description.name, "tree", folder=place)
    for archive in place.glob("*.tar.*"):
        archive.unlink()
    return description.stem


def _from_pypi(name: str, place: Path) -> str:
    _run(
        sys.executable,
        "-m",
        "pip",
        "-q",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        name,
        folder=place,
    )
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "tree")
    wheel.unlink()
    return wheel.stem.split("-py")[0]


def _run(*command: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UnreadableFile(f"{command[0]} failed: {said[-1] if said else 'it gave no reason'}")
