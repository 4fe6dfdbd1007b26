"""Headers that lie beside a source: `#include "sibling.h"` is replaced by what the file holds.

A source that was read from a file may include what lies in its own folder and below it, and nothing else. The
text that comes of it stands alone: a compiler in a sandbox, a driver, another process and a table of
measurements all need it without the folder.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from apportion.errors import MalformedInput
from apportion.program import includes

MOST_BYTES = 32 << 20
"Of a source with its headers: two headers that include each other's copies double at every step."
MOST_DEEP = 64

_INCLUDE = re.compile(
    r'^[^\S\n]*\#[^\S\n]*include[^\S\n]*(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>)'
    r"[^\S\n]*(?://[^\n]*|/\*[^\n]*\*/[^\S\n]*)?$",
    re.MULTILINE,
)
_LINE = re.compile(r'^#line (?P<number>\d{1,9})(?: "(?P<name>.*)")?$', re.MULTILINE)
_ONCE = re.compile(r"^[^\S\n]*\#[^\S\n]*pragma[^\S\n]+once\b[^\n]*$", re.MULTILINE)


def inlined(text: str, name: str, folder: Path, others: tuple[Path, ...] = ()) -> str:
    """A source with the headers of its own folder in their places; without any it is the text as it came.

    Args:
        name: of the source, for messages.
        folder: where it lies.
        others: folders whose headers are put in place too, `#include <header.h>` as well; those that lie in
            none of the folders stay what they are.

    Raises:
        MalformedInput: with its headers the source is too large.
        CompileError: it, or a header of its own, names a file outside its folder.
    """
    if not _INCLUDE.search(text):
        return text
    reader = _Reader(folder.resolve(), tuple(path.resolve() for path in others), name)
    found = reader.placed(text, name, folder.resolve(), ())
    return found if reader.opened else text


def with_header(text: str, name: str, header: Path) -> str:
    """A source that begins with a header, as with a compiler's `-include`."""
    first = inlined(_read(header), str(header), header.parent)
    return f"{_line(1, str(header))}\n{first}\n{_line(1, name)}\n{text}"


def own_lines(text: str, name: str) -> tuple[str, ...]:
    """The lines of the file itself, by their numbers in it, without those of headers in their places."""
    if _LINE.search(text) is None:
        return tuple(text.split("\n"))
    found: dict[int, str] = {}
    number, own = 1, True
    for line in text.split("\n"):
        if moved := _LINE.fullmatch(line):
            number = int(moved["number"])
            own = own if moved["name"] is None else moved["name"] == _quoted(name)
            continue
        if own:
            found[number] = line
        number += 1
    return tuple(found.get(each, "") for each in range(1, max(found, default=0) + 1))


@dataclass
class _Reader:
    folder: Path
    others: tuple[Path, ...]
    name: str
    opened: set[Path] = field(default_factory=set)
    bytes: int = 0

    def placed(self, text: str, name: str, here: Path, above: tuple[Path, ...]) -> str:
        """The text with its includes in place; `above` are the headers that it is being read for."""
        parts: list[str] = []
        end = 0
        line = 1
        hidden = includes.comments_of(text) if "/*" in text else []
        begins = [first for first, _ in hidden]
        for match in _INCLUDE.finditer(text):
            comment = bisect_right(begins, match.start()) - 1
            if comment >= 0 and match.start() < hidden[comment][1]:
                continue
            path = self._found(match["quoted"], match["angled"], here)
            if path is None:
                continue
            line += text.count("\n", end, match.start())
            parts += [text[end : match.start()], self._header(path, above), "\n", _line(line + 1, name)]
            end = match.end()
        return "".join([*parts, text[end:]])

    def _found(self, quoted: str | None, angled: str | None, here: Path) -> Path | None:
        wanted = quoted or angled or ""
        if includes.escapes(wanted):
            return None  # the compiler's frontend says so, with the line
        folders = [*([here, self.folder] if quoted else []), *self.others]
        for folder in dict.fromkeys(folders):
            path = (folder / wanted).resolve()
            if any(path.is_relative_to(root) for root in (self.folder, *self.others)) and path.is_file():
                return path
        return None

    def _header(self, path: Path, above: tuple[Path, ...]) -> str:
        if path in above or len(above) >= MOST_DEEP:
            return ""  # its own guard would leave nothing of it
        text = _read(path)
        self.opened.add(path)
        self.bytes += len(text)
        if self.bytes > MOST_BYTES:
            raise MalformedInput(
                f"with its headers the source has more than {MOST_BYTES >> 20} MiB; headers that include "
                "each other again and again need guards (#ifndef … #define … #endif)",
                file=self.name,
            )
        includes.check_text(text, str(path))
        body = self.placed(_ONCE.sub("", text), str(path), path.parent, (*above, path))
        if not _ONCE.search(text):
            return f"{_line(1, str(path))}\n{body}"
        guard = "APPORTION_ONCE_" + re.sub(r"\W", "_", str(path), flags=re.ASCII)
        return f"#ifndef {guard}\n#define {guard}\n{_line(1, str(path))}\n{body}\n#endif"


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MalformedInput(f"the header cannot be read: {error.strerror}", file=str(path)) from error
    if b"\0" in data:
        raise MalformedInput("the header is a binary file", file=str(path))
    return data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")


def _line(number: int, name: str) -> str:
    return f'#line {number} "{_quoted(name)}"'


def _quoted(name: str) -> str:
    plain = "".join(each if each.isprintable() else "?" for each in name)
    return plain.replace("\\", "\\\\").replace('"', '\\"')
