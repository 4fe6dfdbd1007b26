"""The options of every verb that reads source: how a project's build compiles it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from apportion.cli.show import note
from apportion.errors import ApportionError, CompileError, InvalidSetting
from apportion.program.buildfile import BuildOptions, parsed, words_of
from apportion.program.source import Source

COMPILING = Group("How source is compiled", sort_key=1)


@Parameter(name="*", group=COMPILING)
@dataclass(frozen=True)
class Building:
    """What the command line says of compiling; a build file beside the source says the rest."""

    define: Annotated[tuple[str, ...], Parameter(name=["--define", "-D"], negative="")] = ()
    "A macro, NAME or NAME=VALUE. Repeatable."

    include: Annotated[tuple[Path, ...], Parameter(name=["--include", "-I", "-include"], negative="")] = ()
    """A folder of headers, or a header that is read before the source. Repeatable. Headers beside the source
    are found without it."""

    std: str | None = None
    "Version of the language, such as CL1.2, CL3.0 or c++17."

    language: str | None = None
    "opencl, cuda, hip, c, c++, llvm or bitcode, whatever the file's name says."

    target: str | None = None
    "LLVM triple to compile for."

    build_options: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    """Options as clBuildProgram takes them: "-DN=5 -I inc -cl-fast-relaxed-math". A file apportion.toml
    (`[build]` with options, define, include, std) or compile_commands.json beside the source is read too."""

    guess: Annotated[bool, Parameter(negative="")] = False
    "Where macros, types, headers or functions are missing, try values for them, and say which."

    def words(self) -> BuildOptions:
        """Everything but the guesses."""
        said = parsed(words_of(self.build_options))
        for path in self.include:
            if not path.exists():
                raise InvalidSetting(f"The include path {path} is neither a folder nor a file")
        mine = BuildOptions(
            defines=self.define,
            include_paths=tuple(path for path in self.include if path.is_dir()),
            headers=tuple(path for path in self.include if not path.is_dir()),
            standard=self.std,
            language=self.language,
            target=self.target,
        )
        return mine.over(said)

    def source(self, path: Path, language: str | None = None) -> Source:
        """The source in a file, compiled as is said here; `language` is what the verb expects."""
        source = Source.read(path, self.language or language, build=self.words())
        if source.build.ignored:
            note(f"{path}: without effect here: {' '.join(source.build.ignored)}.")
        if source.companions:
            note(
                f"{path} lacks what these files beside it define; they are read before it: {_names(source)}."
            )
        if not self.guess:
            return source
        from apportion.program.kernel.recover import guessed  # few ask for it

        found, guesses = guessed(source, path)
        if guesses:
            note(f"Guessed: {', '.join(guesses)}. What comes of it is no better than the guesses.")
        return found

    def source_or_path(self, path: Path) -> Source | Path:
        """The source, or the path of one that cannot be read: whoever reads it says so in its turn."""
        try:
            return self.source(path)
        except ApportionError:
            return path


USUAL = Building()


def _names(source: Source) -> str:
    return ", ".join(Path(each).name for each in source.companions)


_LACKED = re.compile(r"'([^'/][^']*)' file not found")
_MOST_ABOVE, _MOST_BESIDE = 8, 200
"Folders that are looked into for a header: above the source, and beside or in those nearest to it."


def where_it_lies(error: CompileError) -> str:
    """What to add for a header that was not found, where one of that name lies near the source; else nothing.

    Only whoever typed the command is told: what a kernel includes, no service answers.
    """
    lacked = _LACKED.search(str(error))
    if lacked is None or ".." in Path(lacked[1]).parts or not error.file or not Path(error.file).is_file():
        return ""
    above = list(Path(error.file).resolve().parents)[:_MOST_ABOVE]
    beside: list[Path] = []
    for folder in above[:3]:
        with suppress(OSError):
            beside += sorted(each for each in folder.iterdir() if each.is_dir())[:_MOST_BESIDE]
    for folder in (*above, *beside):
        with suppress(OSError):
            if (folder / lacked[1]).is_file():
                near = os.path.relpath(folder)
                return f" One lies there with: -I {folder if near.startswith('../../..') else near}"
    return ""
