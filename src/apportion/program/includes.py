"""What a source may include: the compiler's own headers and the folders that were given, nothing else.

Sources come from strangers, and a compiler quotes the lines it does not understand: `#include "/etc/shadow"`
would print a password file. Three guards stand one behind the other: the check of the text here, which says
what is wrong before a compiler starts; Landlock, which keeps the compiler from opening anything else; and the
compiler's own list of the headers it opened, checked here before a word of its answer is passed on.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

from apportion.errors import CompileError

MOST_FILES, MOST_BYTES = 2_000, 16 << 20
"Include folders with more than this are not fingerprinted; what needs them is compiled afresh each time."

# Every alternative also matches when its end is missing, and what was matched once is not tried in another
# way (`*+`): otherwise some texts would take quadratic time, or a hundred bytes of memory a character, and
# no deadline holds here.
_STRINGS = r"""
    "(?:[^"\\\n]++|\\.)*+"? | '(?:[^'\\\n]++|\\.)*+'?
    | (?P<comment>//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?)"""
_TOKENS = re.compile(_STRINGS, re.DOTALL | re.VERBOSE)
_TOKENS_WITH_RAW = re.compile(
    r"""R"(?P<mark>[^()\\\s"]{0,16})\(.*?(?:\)(?P=mark)"|\Z) |""" + _STRINGS, re.DOTALL | re.VERBOSE
)
_DIRECTIVE = re.compile(
    r"^[^\S\n]*+(?:\#|%:|\?\?=)[^\S\n]*+(?:include|include_next|import|embed|__include_macros)\b"
    r"""[^\S\n]*+(?P<path>"[^"\n]*+"|<[^>\n]*+>)?""",
    re.MULTILINE,
)
_QUESTION = re.compile(
    r"""(?P<test>(?:defined[^\S\n]*+(?:\([^\S\n]*+)?|\#[^\S\n]*+(?:ifn?def|define)[^\S\n]*+))?"""
    r"""__has_(?:include|include_next|embed)\b[^\S\n]*+(?:\([^\S\n]*+(?P<path>"[^"\n]*+"|<[^>\n]*+>))?"""
)
_CONTINUED = re.compile(r"\\[^\S\n]*+\n")
_OLD_BACKSLASH = "??/"
_LINE_END = re.compile(r"\r\n?")
_QUESTIONS = ("__has_include", "__has_include_next", "__has_embed")
_WORD = re.compile(r"\w++")
_PASTING = re.compile(r"\#\#|%:%:|\?\?=\?\?=")
MOST_CHARACTERS = 64 << 20
"Of one source; a program of a million lines has half as many."
_HEADER_LINE = re.compile(rb"^\.+ (.*)\n?", re.MULTILINE)


def check_text(text: str, name: str) -> None:
    """Refuse includes that name a file outright, or climb out of a folder.

    Raises:
        CompileError: at the line of the first one.
    """
    if len(text) > MOST_CHARACTERS:
        raise CompileError(
            f"The source has {len(text):,} characters, more than the {MOST_CHARACTERS:,} of the largest",
            file=name,
        )
    for read, tokens in _readings(text):
        plain, joins = _plain(read, tokens)
        _check(plain, joins, name)
        without_strings = tokens.sub(_blank, plain)  # what stands in a string is put together with nothing
        if any(can_be_pasted(question, without_strings) for question in _QUESTIONS):
            raise CompileError("Macros that can spell __has_include are not allowed", file=name)


def _check(plain: str, joins: list[int], name: str) -> None:
    for found in (*_DIRECTIVE.finditer(plain), *_QUESTION.finditer(plain)):
        path = found["path"]
        if path is not None and escapes(path[1:-1].strip()):
            raise CompileError(refusal(path), file=name, line=_line_of(found.start("path"), plain, joins))
        asked = found.groupdict().get("test", "")
        if path is None and asked is None:
            # Whether a file exists is also nobody's business, and `stat` is not covered by Landlock.
            message = "__has_include must be followed by a name in quotes or angle brackets, not a macro"
            raise CompileError(message, file=name, line=_line_of(found.start(), plain, joins))


def can_be_pasted(word: str, plain: str) -> bool:
    """Whether a text holds `##` and the pieces of a word, so that macros could put it together."""
    if not _PASTING.search(plain):
        return False
    pieces = {piece for piece in _WORD.findall(plain) if piece in word and piece != word}
    reached = {0}
    for end in range(1, len(word) + 1):
        if any(start in reached and word[start:end] in pieces for start in range(end)):
            reached.add(end)
    return len(word) in reached


def plain_texts(text: str) -> Iterator[tuple[str, Callable[[int], int]]]:
    """Each way to read the text, with continued lines joined and without comments and strings, and what gives
    the line of a place in it."""
    for read, tokens in _readings(text):
        joined, joins = _joined(read)
        plain = tokens.sub(_blank, joined)
        yield plain, partial(_line_of, plain=plain, joins=joins)


def blanked(text: str) -> str:
    """The text with spaces in place of comments and strings."""
    return _TOKENS.sub(_blank, text)


def spaces_for(text: str) -> str:
    """As many spaces, on as many lines."""
    return "\n".join(" " * len(line) for line in text.split("\n"))


def escapes(path: str) -> bool:
    """Whether an include path is absolute or has a parent component."""
    return path.startswith(("/", "~")) or ".." in re.split(r"[/\\]", path)


def comments_of(text: str) -> list[tuple[int, int]]:
    """Where the comments of a text begin and end, in order."""
    return [token.span() for token in _TOKENS.finditer(text) if token["comment"] is not None]


def split_headers(said: bytes) -> tuple[list[str], str]:
    """What `clang -H` wrote: the headers it opened, and the rest (the diagnostics)."""
    headers = [os.fsdecode(header) for header in _HEADER_LINE.findall(said)]
    return headers, _HEADER_LINE.sub(b"", said).decode(errors="replace")


def outside(headers: Iterable[str], folders: Sequence[Path]) -> str | None:
    """The first header that lies, once symbolic links are followed, in none of these folders."""
    roots = [str(folder.resolve()) + os.sep for folder in folders]
    for header in dict.fromkeys(headers):
        # Our folders are given by absolute paths, so a relative one was found in the compiler's own folder.
        if not os.path.isabs(header) or not os.path.realpath(header).startswith(tuple(roots)):
            return header
    return None


def refused(header: str, name: str) -> CompileError:
    """The error for a header that the compiler reached in spite of the check of the text."""
    return CompileError(refusal(f'"{header}"'), file=name)


def fingerprint(folders: Sequence[Path]) -> str | None:
    """A digest of every name and every byte in these folders, or None when there is too much of it.

    Which file an include finds depends also on the files that are *not* there (a header put into an earlier
    folder wins; `__has_include` asks), so a list of the files that were included would not do.
    """
    digest = hashlib.sha256()
    files = size = 0
    for folder in folders:
        digest.update(f"\0folder {folder}\0".encode("utf-8", "surrogateescape"))
        for path in _files_below(folder):
            files += 1
            try:
                size += path.stat(follow_symlinks=False).st_size
                if files > MOST_FILES or size > MOST_BYTES:
                    return None
                digest.update(_described(path))
            except OSError:
                digest.update(f"\0unreadable {path}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _readings(text: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The ways in which compilers read a text: what is wrong in one of them is refused.

    Whether `R"(` begins a raw string and `??/` is a backslash depends on language and compiler. A carriage
    return ends a line for all of them.
    """
    text = _LINE_END.sub("\n", text)
    for read in dict.fromkeys((text, text.replace(_OLD_BACKSLASH, "\\"))):
        for tokens in (_TOKENS, _TOKENS_WITH_RAW)[: 1 + ('R"' in read)]:
            yield read, tokens


def _joined(text: str) -> tuple[str, list[int]]:
    """The text with continued lines joined, and where the joins are."""
    parts = _CONTINUED.split(text)
    return "".join(parts), list(accumulate(len(part) for part in parts[:-1]))


def _plain(text: str, tokens: re.Pattern[str]) -> tuple[str, list[int]]:
    """The text with continued lines joined and comments blanked, and where the joins are."""
    joined, joins = _joined(text)
    return tokens.sub(lambda token: _blank(token) if _is_no_code(token) else token[0], joined), joins


def _is_no_code(token: re.Match[str]) -> bool:
    return token["comment"] is not None or token.groupdict().get("mark") is not None


def _blank(token: re.Match[str]) -> str:
    return spaces_for(token[0])


def _line_of(position: int, plain: str, joins: list[int]) -> int:
    return 1 + plain.count("\n", 0, position) + sum(join <= position for join in joins)


def refusal(path: str) -> str:
    """The message about an include that is not allowed."""
    return (
        f"{path} may not be included. A source may include headers of the compiler and of the given include "
        "paths, and nothing by an absolute path, through '..' or through a link that leads out of them."
    )


def _files_below(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted([*names, *(each for each in folders if os.path.islink(os.path.join(here, each)))]):
            yield Path(here, name)


def _described(path: Path) -> bytes:
    status = path.stat(follow_symlinks=False)
    name = os.fsencode(path)
    if stat.S_ISLNK(status.st_mode):
        return b"\0link " + name + b"\0" + os.fsencode(os.readlink(path))
    if not stat.S_ISREG(status.st_mode):
        return b"\0other " + name
    return b"\0file " + name + b"\0" + hashlib.sha256(path.read_bytes()).digest()
