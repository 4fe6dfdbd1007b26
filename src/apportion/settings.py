"""Where things are kept, and settings read from TOML files into frozen dataclasses."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile, UnwritableFile

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

T = TypeVar("T")

_PART = re.compile(r"\..+\.\d+-\d+\.part")
_swept: set[Path] = set()
"Folders in which this process has looked for what others left."


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write a file that is there whole or not at all: whoever is interrupted leaves the old one, and
    of several processes or threads that write it at once the last one wins. What a process that was killed
    left in the same folder is removed."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    with _beside(path, folder=False) as part:
        yield part
        part.replace(path)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Where to make a folder that is there whole or not at all; at its place is none, or an empty one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _beside(path, folder=True) as part:
        yield part
        if path.exists():
            path.rmdir()
        part.rename(path)


@contextmanager
def scratch_file(path: Path) -> Iterator[Path]:
    """Where to write what goes again with the block, beside a path; what killed processes left is removed."""
    with _beside(path, folder=False) as part:
        yield part


def sweep(folder: Path) -> None:
    """Remove what processes that were killed left half-written in a folder; this process looks once."""
    if folder not in _swept:
        _swept.add(folder)
        _sweep(folder, folder)


@contextmanager
def _beside(path: Path, *, folder: bool) -> Iterator[Path]:
    """A new file or folder beside a path, locked until it is removed."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}.part")
    held = _made(part, folder=folder)
    try:
        if path.parent not in _swept:
            _swept.add(path.parent)
            _sweep(path.parent, part)
        yield part
    finally:
        _remove(part)
        if held is not None:
            os.close(held)


def remove_folder(path: Path) -> None:
    """Remove a folder so that it is there whole or not at all, whenever this process is killed."""
    with _beside(path, folder=True) as part:
        part.rmdir()
        path.rename(part)


def _made(part: Path, *, folder: bool) -> int | None:
    """Make a file or folder; a descriptor that holds its lock for as long as it is open.

    Windows moves nothing that is open, so nothing is held there, and nothing swept.
    """
    while True:
        if folder:
            part.mkdir(exist_ok=True)
        if sys.platform == "win32":
            return None
        try:
            held = os.open(part, os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            if not folder:
                raise
            continue  # another process took it for one that was left, as below
        with suppress(OSError):  # no locks on this file system
            fcntl.flock(held, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held), os.stat(part)):
                return held
        os.close(held)


def _sweep(folder: Path, ours: Path) -> None:
    """Remove parts that nobody holds any more."""
    if sys.platform == "win32":
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in list(entries):
            if not _PART.fullmatch(entry.name) or entry.name == ours.name:
                continue
            with suppress(OSError):
                whole = entry.is_dir(follow_symlinks=False)
                held = os.open(entry.path, (os.O_RDONLY if whole else os.O_RDWR) | os.O_NOFOLLOW)
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(Path(entry.path))
                finally:
                    os.close(held)


def _remove(part: Path) -> None:
    if part.is_dir() and not part.is_symlink():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes | str) -> None:
    """Write a file whole or not at all, text as UTF-8; its folder is made when missing.

    Raises:
        UnwritableFile: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as part:
            part.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise UnwritableFile(f"Cannot write {path}: {error.strerror or error}") from error


def cache_folder(*parts: str) -> Path:
    """A folder for what can be made again: `$APPORTION_CACHE`, else the user's cache; made when missing."""
    root = os.environ.get("APPORTION_CACHE")
    base = Path(root) if root else _user_cache() / "apportion"
    folder = base.joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnreadableFile(
            f"Cannot write to the cache folder {folder} ({error.strerror}). Set APPORTION_CACHE to another."
        ) from error
    return folder


def home_folder(*parts: str) -> Path:
    """A place for what somebody made and keeps, such as models: `$APPORTION_HOME`, else the user's folder of
    data; it need not be there yet."""
    place, data, home = (os.environ.get(name, "") for name in ("APPORTION_HOME", "XDG_DATA_HOME", "HOME"))
    return _home_folder(parts, place, data, home)


@lru_cache(maxsize=64)
def _home_folder(parts: tuple[str, ...], place: str, data: str, _home: str) -> Path:
    """Kept, because each new path takes and frees interned strings, and a service asks at every answer: its
    memory would grow by 4 MB over 100,000 answers."""
    user = Path(data) if os.path.isabs(data) else Path("~/.local/share").expanduser()
    return (Path(place) if place else user / "apportion").joinpath(*parts)


def _user_cache() -> Path:
    """`$XDG_CACHE_HOME`; that is to be passed over where it is empty or relative, else `~/.cache`."""
    place = os.environ.get("XDG_CACHE_HOME", "")
    return Path(place) if os.path.isabs(place) else Path("~/.cache").expanduser()


def read_toml(path: Path) -> dict[str, object]:
    """The tables of a TOML file.

    Raises:
        UnreadableFile: the file is not there.
        MalformedInput: it is not TOML; the message carries the line.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MalformedInput(str(error), file=str(path)) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets without end
        raise MalformedInput(f"is not TOML ({error})", file=str(path)) from error


def texts_in(value: object) -> Iterator[str]:
    """Every text in the values of a TOML or JSON file."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_in(each)


def read_json(path: Path) -> Any:
    """What a file of JSON holds.

    Raises:
        UnreadableFile: the file is not there.
        MalformedInput: it is not JSON, is nested too deeply, or holds what can be written nowhere.
    """
    try:
        said = json.loads(path.read_bytes())
        json.dumps(said, ensure_ascii=False).encode()  # half a pair of UTF-16 is no text
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"is not JSON ({error})", file=str(path)) from error
    return said


def load(kind: type[T], path: Path) -> T:
    """A frozen dataclass of type `kind`, read from a TOML file; unknown and ill-typed keys are errors."""
    return convert(kind, read_toml(path), source=str(path))


def convert(kind: type[T], values: object, *, source: str) -> T:
    """`values` (plain dicts and lists) as a `kind`, with every problem named after its key.

    Raises:
        InvalidSetting: a key is unknown, missing or has a value of the wrong type.
    """
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # here: folders are asked for without them

    # A plain dataclass cannot be given a configuration, and without one unknown keys are dropped in silence.
    # A tuple of one can, and hands it down to the dataclasses inside.
    adapter = TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid"))  # type: ignore[valid-type]
    try:
        (value,) = adapter.validate_python((values,))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'][1:]) or kind.__name__}: {_complaint(problem)}"
            for problem in error.errors()
        )
        raise InvalidSetting(f"{source}: {problems}") from error
    return value


def _complaint(problem: ErrorDetails) -> str:
    # What a value object says of itself comes without pydantic's "Value error, ".
    said = problem.get("ctx", {}).get("error")
    return problem["msg"] if said is None else str(said)
