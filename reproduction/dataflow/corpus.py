"""Make the corpus of the data-flow experiments: source packages → one LLVM IR file per C or C++ file.

    python -m reproduction.dataflow.corpus --out CORPUS [--list experiments/corpus.toml] [--only zlib]

Packages come from the machine's own Debian source, through apt with private lists: the system is not touched,
and no code of a package is run. Each package becomes `ir/NAME.tar.gz` with `ir/NAME.json` beside it (version,
digest, licences, what failed and why); a package that has both is done, so an interrupted run goes on where
it was.
"""

from __future__ import annotations

import argparse
import collections
import fcntl
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from apportion.errors import ApportionError, CompileError
from apportion.program.compile import CompileOptions, ir_of
from apportion.program.includes import MOST_BYTES
from apportion.program.source import Source
from apportion.settings import load

SUFFIXES = {".c": "c", ".cc": "c++", ".cpp": "c++", ".cxx": "c++", ".C": "c++"}
HEADER_SUFFIXES = {".h", ".hh", ".hpp", ".inc", ".def"}
TRIAL_FILES = 100
"A package of whose first so many files not a fifth compiles is left there: it wants its own configuration."
BESIDE = ("include", "lib", "src", "inc", "generic", "unix", "common")
"Folders that sources expect on the include path when one of their parents has them."


@dataclass(frozen=True)
class Package:
    """One source package, and what its files need to compile."""

    name: str
    source: str = ""
    "What apt calls it, when that is not its name."
    files: tuple[str, ...] = ("**/*.c", "**/*.cc", "**/*.cpp", "**/*.cxx")
    include: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    "Folders inside the unpacked header packages that go before the common ones."
    defines: tuple[str, ...] = ()
    files_per_package: int | None = None
    skip: int = 0
    "How many of the drawn files another entry of the same source has."


@dataclass(frozen=True)
class Corpus:
    """The contents of a corpus list."""

    seed: int
    optimization: tuple[str, ...]
    files_per_package: int
    ir_bytes: int
    headers: tuple[str, ...]
    packages: tuple[Package, ...]
    config: str = ""
    "What stands for the config.h that a package's own configure would have written."


@dataclass(frozen=True)
class Record:
    """What came of one package."""

    name: str
    version: str
    archive: str
    sha256: str
    licences: tuple[str, ...]
    files_found: int
    files_tried: int
    files_compiled: int
    ir_bytes: int
    seconds: float
    failures: dict[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="where all is kept; outside the repository")
    described = Path(__file__).parents[2] / "experiments" / "corpus.toml"
    parser.add_argument("--list", type=Path, default=described)
    parser.add_argument("--only", nargs="*", default=(), help="only these packages")
    parser.add_argument(
        "--table", action="store_true", help="print what is there as a Markdown table, and stop"
    )
    arguments = parser.parse_args()
    corpus = load(Corpus, arguments.list)
    out: Path = arguments.out.resolve()
    if arguments.table:
        print(table(out))
        return
    apt = Apt(out / "apt")
    headers = _headers(apt, corpus, out)
    (out / "ir").mkdir(parents=True, exist_ok=True)
    for package in corpus.packages:
        record_path = out / "ir" / f"{package.name}.json"
        if (arguments.only and package.name not in arguments.only) or record_path.exists():
            continue
        lock = (out / "ir" / f"{package.name}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue  # another run is at it
        try:
            record = make(package, corpus, apt=apt, headers=headers, out=out)
        except (ApportionError, OSError, subprocess.CalledProcessError, tarfile.TarError) as error:
            print(f"{package.name}: {error}", file=sys.stderr, flush=True)
            continue
        _write(record_path, json.dumps(asdict(record), indent=1).encode())
        print(
            f"{record.name} {record.version}: {record.files_compiled} of {record.files_tried} files, "
            f"{record.ir_bytes / 1e6:.1f} MB of IR, {record.seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )


def make(package: Package, corpus: Corpus, *, apt: Apt, headers: Path, out: Path) -> Record:
    """Fetch, unpack and compile one package; its IR lies in `ir/NAME.tar.gz` afterwards."""
    started = time.monotonic()
    origin = package.source or package.name
    version, archives = apt.source(origin, out / "sources" / origin)
    tree = out / "trees" / package.name
    shutil.rmtree(tree, ignore_errors=True)
    for archive in archives:
        _unpack(archive, tree)
    folders = [folder for folder in tree.iterdir() if folder.is_dir()]
    root = max(folders, key=lambda folder: sum(1 for _ in folder.rglob("*.[chC]*")), default=tree)
    found = sorted({path for pattern in package.files for path in root.glob(pattern) if path.is_file()})
    limit = package.skip + (package.files_per_package or corpus.files_per_package)
    drawn = sorted(found, key=lambda path: _draw(corpus.seed, origin, path, root))
    chosen = drawn[package.skip : limit]
    failures: collections.Counter[str] = collections.Counter()
    tried = compiled = ir_bytes = 0
    partial = out / "ir" / f"{package.name}.tar.gz.part"
    with gzip.open(partial, "wb", 3) as stream, tarfile.open(fileobj=stream, mode="w|") as written:
        for path in chosen:
            if tried == TRIAL_FILES and compiled < TRIAL_FILES // 5:
                break
            if tried % 500 == 0:
                print(f"  {package.name}: {tried} of {len(chosen)}", file=sys.stderr, flush=True)
            tried += 1
            name = path.relative_to(root).as_posix()
            number = int(_draw(corpus.seed, origin, path, root)[:8], 16)
            level = corpus.optimization[number % len(corpus.optimization)]
            options = CompileOptions(
                optimization=level,
                defines=("HAVE_CONFIG_H", "_GNU_SOURCE", *package.defines),
                include_paths=tuple(_include_paths(path, root, package, headers)),
                seconds=20.0,
            )
            try:
                text = _compile(path, root, options).encode()
            except ApportionError as error:
                failures[_reason(error)] += 1
                continue
            if len(text) > corpus.ir_bytes:
                failures[f"more than {corpus.ir_bytes} bytes of IR"] += 1
                continue
            member = tarfile.TarInfo(f"{package.name}/{name}.O{level}.ll")
            member.size = len(text)
            written.addfile(member, io.BytesIO(text))
            compiled, ir_bytes = compiled + 1, ir_bytes + len(text)
    partial.rename(partial.with_suffix(""))
    licences = _licences(tree)
    shutil.rmtree(tree)
    return Record(
        name=package.name, version=version, archive=archives[0].name,
        sha256=hashlib.sha256(archives[0].read_bytes()).hexdigest(), licences=licences,
        files_found=len(found), files_tried=tried, files_compiled=compiled, ir_bytes=ir_bytes,
        seconds=round(time.monotonic() - started, 1), failures=dict(failures.most_common(20)),
    )  # fmt: skip


def table(out: Path) -> str:
    """The packages that were made, as Markdown."""
    records = [json.loads(path.read_bytes()) for path in sorted((out / "ir").glob("*.json"))]
    lines = ["| package | version | licences | files tried | IR files | MB of IR | SHA-256 of the archive |"]
    lines.append("|---|---|---|---:|---:|---:|---|")
    for record in records:
        licences = ", ".join(record["licences"][:4]) + (" …" if len(record["licences"]) > 4 else "")
        lines.append(
            f"| {record['name']} | {record['version']} | {licences} | {record['files_tried']:,} "
            f"| {record['files_compiled']:,} | {record['ir_bytes'] / 1e6:.1f} | `{record['sha256'][:16]}…` |"
        )
    tried, compiled = (sum(record[name] for record in records) for name in ("files_tried", "files_compiled"))
    size = sum(record["ir_bytes"] for record in records) / 1e6
    lines.append(
        f"| **{len(records)} packages** | | | **{tried:,}** | **{compiled:,}** | **{size:,.0f}** | |"
    )
    return "\n".join(lines)


class Apt:
    """The machine's package source, read through private lists that also name source packages."""

    def __init__(self, folder: Path) -> None:
        parts = folder / "parts"
        for inner in (parts, folder / "lists" / "partial", folder / "cache" / "archives" / "partial"):
            inner.mkdir(parents=True, exist_ok=True)
        for path in Path("/etc/apt/sources.list.d").glob("debian*.sources"):
            # The security suite drops a version when the next one comes; the release keeps its own.
            stanzas = [text for text in path.read_text().split("\n\n") if "-security" not in text]
            text = re.sub(r"^Types:.*$", "Types: deb deb-src", "\n\n".join(stanzas), flags=re.MULTILINE)
            (parts / path.name).write_text(text)
        (folder / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "{parts}";\n'
            f'Dir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\nAPT::Sandbox::User "root";\n'
        )
        self._environment = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
        if not any((folder / "lists").glob("*Sources*")):
            self._run("update", folder=folder)

    def source(self, name: str, folder: Path) -> tuple[str, list[Path]]:
        """The version of a source package and its archives, the largest (upstream's) first."""
        if not any(folder.glob("*.dsc")):
            folder.mkdir(parents=True, exist_ok=True)
            self._run("source", "--download-only", "--only-source", name, folder=folder)
        controls = list(folder.glob("*.dsc"))
        if not controls:
            raise FileNotFoundError(f"apt fetched no source package called {name}")
        control = controls[0].read_text()
        version = re.search(r"^Version: (.+)$", control, flags=re.MULTILINE)
        archives = sorted(folder.glob("*.tar.*"), key=lambda path: -path.stat().st_size)
        archives = [path for path in archives if path.suffix != ".asc"]
        return version.group(1) if version else "?", archives

    def headers(self, name: str, folder: Path, target: Path) -> None:
        """Lay the header files of a binary package under `target`; its scripts are not run."""
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.glob(f"{name}_*.deb")):
            self._run("download", name, folder=folder)
        archive = next(folder.glob(f"{name}_*.deb"))
        subprocess.run(["dpkg-deb", "-x", str(archive), str(target)], check=True)

    def _run(self, *words: str, folder: Path) -> None:
        command = ["apt-get", "-q", "-q", *words]
        subprocess.run(command, check=True, cwd=folder, env=self._environment, stdout=subprocess.DEVNULL)


def _headers(apt: Apt, corpus: Corpus, out: Path) -> Path:
    """The folder with all header packages unpacked, and our stand-in for config.h."""
    target = out / "headers"
    if not (target / "done").exists():
        for name in corpus.headers:
            try:
                apt.headers(name, out / "debs", target)
            except (subprocess.CalledProcessError, StopIteration) as error:
                print(f"no headers of {name}: {error}", file=sys.stderr, flush=True)
        (target / "done").touch()
    (target / "config").mkdir(exist_ok=True)
    (target / "config" / "config.h").write_text(corpus.config)
    # Folders this large are never cached; one large file in the first says so at once, instead of after
    # 2,000 headers were read for each source.
    (target / "large").mkdir(exist_ok=True)
    with (target / "large" / "hole").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    return target


def _include_paths(path: Path, root: Path, package: Package, headers: Path) -> Iterator[Path]:
    seen: set[Path] = set()
    parents = [path.parent, *(parent for parent in path.parents if parent == root or root in parent.parents)]
    wanted = [
        headers / "large",
        *(root / folder for folder in package.include),
        *parents,
        *(parent / beside for parent in parents for beside in BESIDE),
        *(headers / folder for folder in package.headers),
        headers / "config",
        headers / "usr" / "include",
        headers / "usr" / "include" / "x86_64-linux-gnu",
    ]
    for folder in wanted:
        if folder not in seen and folder.is_dir():
            seen.add(folder)
            yield folder


def _compile(path: Path, root: Path, options: CompileOptions) -> str:
    """The IR of a file; a C file that no modern standard accepts is tried as the C of its time."""
    read = Source.read(path, language=SUFFIXES[path.suffix])
    text = _rooted(str(read.text), path.parent, root)
    source = Source(text, read.language, path.relative_to(root).as_posix())
    try:
        return ir_of(source, options)
    except CompileError as error:
        if source.language != "c" or "file not found" in error.message:
            raise
        return ir_of(source, replace(options, standard="gnu89"))


def _rooted(text: str, folder: Path, root: Path) -> str:
    """The text with `#include "../x.h"`, which the compiler refuses, written from the package's root."""

    def place(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / found["path"]))
        if root not in target.parents:
            return found[0]
        return f'{found["head"]}"{target.relative_to(root).as_posix()}"'

    return re.sub(r'(?P<head>#\s*include\s*)"(?P<path>[^"\n]*\.\.[^"\n]*)"', place, text)


def _reason(error: ApportionError) -> str:
    """A failure without names and places, so that failures can be counted."""
    text = next(iter(str(getattr(error, "message", error)).splitlines()), "") or "#error without a word"
    return re.sub(r"'[^']*'", "'…'", text)[:120] if "file not found" not in text else text[:120]


def _draw(seed: int, package: str, path: Path, root: Path) -> str:
    return hashlib.sha256(f"{seed}/{package}/{path.relative_to(root).as_posix()}".encode()).hexdigest()


def _unpack(archive: Path, tree: Path) -> None:
    _extract(archive, tree)
    for inner in [path for path in tree.rglob("*.tar.*") if path.stat().st_size > 10_000_000]:
        _extract(inner, tree)  # gcc's archive holds upstream's
        inner.unlink()


def _extract(archive: Path, tree: Path) -> None:
    tree.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as opened:
        for member in opened:
            wanted = Path(member.name).suffix in {*SUFFIXES, *HEADER_SUFFIXES, ".xz", ".gz"}
            if member.isfile() and (wanted or member.name.endswith("debian/copyright")):
                opened.extract(member, tree, filter="data")


def _licences(tree: Path) -> tuple[str, ...]:
    """The licences that the package's machine-readable copyright file names."""
    found: set[str] = set()
    for path in tree.rglob("debian/copyright"):
        found.update(re.findall(r"^License: *(\S.*)$", path.read_text(errors="replace"), flags=re.MULTILINE))
    return tuple(sorted(found))[:40]


def _write(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(content)
    partial.rename(path)


if __name__ == "__main__":
    main()
