"""Compiler options in words (`-D N=5 -I include -cl-std=CL1.2`), and the build files that give them.

A file `apportion.toml` or `compile_commands.json` beside a source says how it is compiled. Such a file comes
from whom the source comes from, so it may add folders of headers only at or below its own place.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile

SETTINGS, COMMANDS = "apportion.toml", "compile_commands.json"
LARGEST_BYTES = 16 << 20

FLAGS = frozenset(
    ("-cl-single-precision-constant", "-cl-denorms-are-zero", "-cl-fp32-correctly-rounded-divide-sqrt",
     "-cl-opt-disable", "-cl-strict-aliasing", "-cl-uniform-work-group-size", "-cl-no-subgroup-ifp",
     "-cl-mad-enable", "-cl-no-signed-zeros", "-cl-unsafe-math-optimizations", "-cl-finite-math-only",
     "-cl-fast-relaxed-math", "-cl-kernel-arg-info", "-w")
)  # fmt: skip
"Options without a value that clang and drivers of OpenCL both take; they may change what a kernel computes."

_VENDORS = re.compile(
    r"-cl-(?:nv|amd|intel|qcom|arm|ext)-|-f(?:no-)?bin-|-save-temps|-qcom|-g$|-O[0-3sg]?$|-f|-m|-W|-pthread"
)
"Options of one driver or of a host's compiler; without them a kernel computes the same."
_KEYS = ("options", "define", "include", "std", "language", "target")


@dataclass(frozen=True)
class BuildOptions:
    """How a source is compiled, as its user or its project says it."""

    defines: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    include_paths: tuple[Path, ...] = ()
    headers: tuple[Path, ...] = ()
    "Files that are read before the source (`-include`)."
    standard: str | None = None
    language: str | None = None
    target: str | None = None
    flags: tuple[str, ...] = ()
    "Some of `FLAGS`."
    ignored: tuple[str, ...] = ()
    "Words that have no effect here."

    def over(self, other: BuildOptions) -> BuildOptions:
        """Both, where this one wins: its macros replace those of the same name, its folders come first."""
        mine = {name_of(define) for define in (*self.defines, *self.undefined)}
        return BuildOptions(
            (*(each for each in other.defines if name_of(each) not in mine), *self.defines),
            (*other.undefined, *self.undefined),
            tuple(dict.fromkeys((*self.include_paths, *other.include_paths))),
            tuple(dict.fromkeys((*other.headers, *self.headers))),
            self.standard or other.standard,
            self.language or other.language,
            self.target or other.target,
            tuple(dict.fromkeys((*other.flags, *self.flags))),
            tuple(dict.fromkeys((*other.ignored, *self.ignored))),
        )


NOTHING = BuildOptions()


def name_of(define: str) -> str:
    """The macro that `NAME=VALUE` or `NAME(x)=VALUE` defines."""
    return re.split(r"[=(]", define, maxsplit=1)[0]


_PIECE = re.compile(
    r"""(?P<space>[ \t\r\n]+)|(?P<plain>[^ \t\r\n'"\\]+)|\\(?P<escaped>.)|'(?P<single>[^']*)'"""
    r"""|"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"|(?P<open>.)""",
    re.DOTALL,
)


def words_of(text: str) -> list[str]:
    """Words as a shell would take them apart: those of `shlex.split`, in time in proportion to the text.

    Raises:
        InvalidSetting: a quote is open.
    """
    words: list[list[str]] = []
    within = False
    for piece in _PIECE.finditer(text):
        kind, value = piece.lastgroup, piece[piece.lastgroup or 0]
        if kind == "open":
            reason = "No escaped character" if value == "\\" else "No closing quotation"
            raise InvalidSetting(f"Build options must be words as in a shell, not {text!r:.200}: {reason}")
        if kind == "space":
            within = False
            continue
        if not within:
            words.append([])
            within = True
        words[-1].append(re.sub(r'\\(["\\])', r"\1", value) if kind == "double" else value)
    return ["".join(word) for word in words]


def parsed(words: Sequence[str], folder: Path | None = None) -> BuildOptions:
    """What options say.

    Args:
        words: as a compiler or `clBuildProgram` takes them.
        folder: what relative folders are relative to; the working directory when not given.

    Raises:
        InvalidSetting: an option that is not known, or that lacks its value.
    """
    here = folder or Path()
    lists: dict[str, list[Any]] = defaultdict(list)
    single: dict[str, str] = {}
    left = iter(words)
    for word in left:
        match = re.match(
            r"-(?P<name>D|U|I|isystem|iquote|include|imacros|x|target|std|cl-std)(?P<rest>.*)$",
            word,
            re.DOTALL,
        )
        if word.startswith("--target="):
            single["target"] = word.removeprefix("--target=")
        elif word in FLAGS:
            lists["flags"].append(word)
        elif match is not None:
            name, value = match["name"], match["rest"]
            if name in ("std", "cl-std", "target"):
                value = value.removeprefix("=")
            if not value:
                following = next(left, None)
                if following is None:
                    raise InvalidSetting(f"The build option {word} lacks its value")
                value = following
            _keep(lists, single, name, value.strip(), here)
        elif _VENDORS.match(word):
            lists["ignored"].append(word)
        else:
            raise InvalidSetting(
                f"The build option {word!r} is not known. There are -D, -U, -I, -include, -x, -target, "
                f"-cl-std= and {', '.join(sorted(FLAGS))}"
            )
    return replace(NOTHING, **{name: tuple(values) for name, values in lists.items()}, **single)  # type: ignore[arg-type]


def written(build: BuildOptions) -> list[str]:
    """The words that `parsed` takes for the same, but for headers, whose text a source holds already."""
    return [
        *(f"-D{define}" for define in build.defines),
        *(f"-U{name}" for name in build.undefined),
        *([] if build.standard is None else [f"-cl-std={build.standard}"]),
        *([] if build.target is None else [f"--target={build.target}"]),
        *build.flags,
    ]


def _keep(lists: dict[str, list[Any]], single: dict[str, str], name: str, value: str, here: Path) -> None:
    """Keep what one option says; where one value is meant, the last."""
    match name:
        case "D":
            lists["defines"].append(value)
        case "U":
            lists["undefined"].append(value)
        case "include" | "imacros":
            lists["headers"].append(here / value)
        case "x":
            single["language"] = {"cl": "opencl"}.get(value, value)
        case "target":
            single["target"] = value
        case "std" | "cl-std":
            single["standard"] = value
        case _:
            lists["include_paths"].append(here / value)


def beside(source: Path) -> BuildOptions:
    """What the build file beside a source says of it: `apportion.toml`, else `compile_commands.json`.

    Raises:
        UnreadableFile, MalformedInput: the build file cannot be read, or is not what it should be.
    """
    for name, reader in ((SETTINGS, _settings), (COMMANDS, _commands)):
        path = source.parent / name
        if path.is_file():
            return _confined(reader(path, source), path)
    return NOTHING


def _confined(found: BuildOptions, file: Path) -> BuildOptions:
    """Without folders and headers that lie elsewhere."""
    root = file.parent.resolve()
    inside = [path for path in found.include_paths if path.resolve().is_relative_to(root) and path.is_dir()]
    headers = [path for path in found.headers if path.resolve().is_relative_to(root)]
    out = [*(f"-I{path}" for path in found.include_paths if path not in inside),
           *(f"-include {path}" for path in found.headers if path not in headers)]  # fmt: skip
    return replace(found, include_paths=tuple(inside), headers=tuple(headers), ignored=(*found.ignored, *out))


def _settings(path: Path, source: Path) -> BuildOptions:
    try:
        table = tomllib.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"is not TOML ({error})", file=str(path)) from None
    build = table.get("build", {})
    if not isinstance(build, Mapping):
        raise MalformedInput("[build] must be a table", file=str(path))
    common = {key: value for key, value in build.items() if not isinstance(value, Mapping)}
    own = build.get(source.name, {})
    return _table(own, path).over(_table(common, path))


def _table(values: Mapping[str, Any], path: Path) -> BuildOptions:
    if unknown := sorted(set(values) - set(_KEYS)):
        raise MalformedInput(
            f"[build] has no setting {unknown[0]!r}; there are {', '.join(_KEYS)}, and tables named after "
            "files",
            file=str(path),
        )
    for key, value in values.items():
        wanted = "a list of texts" if key in ("define", "include") else "a text"
        texts = value if key in ("define", "include") else [value]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise MalformedInput(f"{key} must be {wanted}, not {value!r}", file=str(path))
    words = words_of(values.get("options", ""))
    words += [f"-D{define}" for define in values.get("define", ())]
    words += [f"-I{folder}" for folder in values.get("include", ())]
    words += [
        f"-{name}={values[key]}" for key, name in (("std", "std"), ("target", "target")) if key in values
    ]
    found = _parsed(words, path)
    return replace(found, language=values.get("language", found.language))


def _commands(path: Path, source: Path) -> BuildOptions:
    try:
        entries = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise MalformedInput(f"is not JSON ({error})", file=str(path)) from None
    wanted = source.resolve()
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("file"), str):
            continue
        folder = path.parent / str(entry.get("directory", ""))
        if (folder / entry["file"]).resolve() != wanted:
            continue
        words = entry.get("arguments") or words_of(str(entry.get("command", "")))
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise MalformedInput("arguments must be a list of texts", file=str(path))
        return _parsed(_relevant(words[1:]), path, folder)
    return NOTHING


def _relevant(words: Sequence[str]) -> list[str]:
    """The options of a compiler's command that say what a source means."""
    kept: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word in ("-D", "-U", "-I", "-isystem", "-iquote", "-include", "-x", "-target") and left:
            kept += [word, left.pop(0)]
        elif word in ("-o", "-MF", "-MT", "-MQ") and left:
            left.pop(0)
        elif word in FLAGS or re.match(r"-(?:D|U|I|isystem|iquote|std=|cl-std=|-target=)", word):
            kept.append(word)
    return kept


def _parsed(words: Sequence[str], path: Path, folder: Path | None = None) -> BuildOptions:
    try:
        return parsed(words, folder or path.parent)
    except InvalidSetting as error:
        raise MalformedInput(str(error), file=str(path)) from None


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise UnreadableFile(f"{path} has more than {LARGEST_BYTES:,} bytes")
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise UnreadableFile(f"{path} is not text in UTF-8") from None
    except OSError as error:
        if isinstance(error, UnreadableFile):
            raise
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
