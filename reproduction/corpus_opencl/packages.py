"""Source packages that hold OpenCL C, how they are fetched, and how each builds its kernels."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from apportion.errors import ApportionError, UnreadableFile
from apportion.program.buildfile import BuildOptions, name_of, parsed, words_of

PLAN = Path(__file__).with_name("packages.toml")
_SEED = 19
"Draws files where a package has very many."
_MOST_ARRAYS = 4
"Of a kernel, whose arrays may each have two dimensions or three."
_KERNEL = re.compile(r"^\s*(?:__)?kernel\b|\bKERNEL_FQ\b", re.MULTILINE)
_DEBIAN = "http://deb.debian.org/debian"
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
    "What is written otherwise in these macros for names of arrays of two dimensions."
    forms: tuple[tuple[str, str], ...] = ()
    "Options besides, for files whose path a pattern finds."
    suffixes: tuple[str, ...] = (".cl",)
    "Of files that hold kernels."
    leave_out: str = ""
    "Finds the paths of files that are no kernels, such as those that must not compile."
    held_out: bool = False
    "Chosen by its name before anybody looked into it, and given no options."
    most: int = 1 << 30
    "Files that are drawn."

    def builds(self, path: Path) -> Iterator[BuildOptions]:
        """The options for the kernels of a file; several where they follow from what a call is given, which
        the package's host program finds out then: arrays of two dimensions or of three."""
        text = path.read_text("utf-8", "replace")
        place = str(path.relative_to(self.root))
        more = [words for pattern, words in self.forms if re.search(pattern, place)]
        options = parsed(words_of(" ".join([self.options, *more])), self.root)
        names = sorted(set(re.findall(self.name_pattern, text))) if self.name_pattern else []
        written = {name for name in names if re.search("dst|out", name, re.IGNORECASE)}
        every = set(names)
        likely = {False: [set(), every], True: [every, set()]}["2d" in path.name]
        sizes = range(1, len(every)) if len(every) <= _MOST_ARRAYS else ()
        others = [set(some) for size in sizes for some in itertools.combinations(names, size)]
        ways = [*likely, written, every - written, *others]
        for two_dimensional in dict.fromkeys(map(frozenset, ways)) if names and self.flat else [set()]:
            macros = tuple(
                self._macro(macro, name, flat=name in two_dimensional)
                for name in names
                for macro in self.each
            )
            kept = (each for each in options.defines if name_of(each) not in options.undefined)
            yield replace(options, defines=(*kept, *macros))

    def _macro(self, macro: str, name: str, *, flat: bool) -> str:
        for usual, other in self.flat if flat else ():
            macro = macro.replace(usual, other)
        return macro.replace("{n}", name)

    def kernels_in(self, path: Path) -> int:
        """How many kernels a file seems to hold, by its words: for files that no compiler has read."""
        return len(_KERNEL.findall(path.read_text("utf-8", "replace")))

    def files(self) -> list[Path]:
        """Its files of OpenCL C that define a kernel, or as many of them as are drawn."""
        found = self._files()
        return sorted(random.Random(_SEED).sample(found, self.most)) if len(found) > self.most else found

    def _files(self) -> list[Path]:
        found = []
        for path in sorted(self.root.rglob("*")):
            place = str(path.relative_to(self.root))
            if path.suffix not in self.suffixes or (self.leave_out and re.search(self.leave_out, place)):
                continue
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
        if root.is_dir() and (folder / name / "version").is_file():
            options = said.get("options", "")
            for header in said.get("empty", ()):
                (folder / name / "empty").mkdir(exist_ok=True)
                (folder / name / "empty" / header).touch()
                options += " -I ../empty"
            yield Package(
                name, said["origin"], (folder / name / "version").read_text().strip(), root,
                options.strip(), said.get("name", ""), tuple(said.get("each", ())),
                tuple(map(tuple, said.get("flat", ()))), tuple(map(tuple, said.get("forms", ()))),
                tuple(said.get("suffixes", (".cl",))), said.get("leave_out", ""),
                said.get("held_out", False), said.get("most", 1 << 30),
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
                version = _from_debian(name, said.get("release", "bookworm"), folder, place)
            else:
                version = _from_pypi(name, place)
        except (ApportionError, OSError) as error:
            yield name, str(error)
            continue
        (place / "version").write_text(version + "\n")
        yield name, version


def _list_sources(folder: Path) -> None:
    """A list of Debian's source packages, apart from the machine's own lists."""
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    lines = [f"deb-src {_DEBIAN} {release} main" for release in ("bookworm", "trixie")]
    (folder / "sources.list").write_text("\n".join(lines) + "\n")
    _run("apt-get", *_lists(folder), "update", folder=folder)


def _lists(folder: Path) -> tuple[str, ...]:
    return (
        *_APT, "-o", f"Dir::Etc::sourcelist={folder.resolve()}/sources.list",
        "-o", f"Dir::State::lists={folder.resolve()}/lists",
    )  # fmt: skip


def _from_debian(name: str, release: str, folder: Path, place: Path) -> str:
    """Unpack what the package's authors published, without Debian's patches; its version.

    A mirror may hold that and no longer the description beside it, so each archive is fetched by itself.
    """
    said = _run(
        "apt-get", *_lists(folder), "source", "--print-uris", f"{name}/{release}", folder=place
    )  # fmt: skip
    archives = re.findall(r"^'(\S+)' (\S+\.orig\S*\.tar\.(?:gz|xz|bz2)) ", said, re.MULTILINE)
    if not archives:
        raise UnreadableFile(f"Debian's {release} lists no archive of {name}")
    for address, file in archives:
        part = re.search(r"\.orig-([\w-]+)\.tar", file)  # of what is published in several archives
        inside = Path("tree", part[1]) if part else Path("tree")
        (place / inside).mkdir(parents=True, exist_ok=True)
        urllib.request.urlretrieve(address, place / file)
        _run("tar", "-xf", file, "-C", str(inside), "--strip-components=1", folder=place)
        (place / file).unlink()
    return str(archives[0][1]).partition(".orig")[0]


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
    return "-".join(wheel.stem.split("-")[:2])


def _run(*command: str, folder: Path) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UnreadableFile(f"{command[0]} failed: {said[-1] if said else 'it gave no reason'}")
    return done.stdout
