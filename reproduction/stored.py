"""What a page is made of, in one compressed file of JSON: the page can be made again without what made it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from apportion.errors import MalformedInput, UnreadableFile
from apportion.settings import replace_file


def keep(path: Path, value: object) -> None:
    """Write a value that JSON can say; equal values give equal files."""
    replace_file(path, gzip.compress(json.dumps(value).encode(), mtime=0))


def kept(path: Path, *, made_by: str) -> Any:
    """The value that `keep` wrote.

    Args:
        path: the file.
        made_by: the command that writes it, for whoever does not have it.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it holds something else.
    """
    try:
        return json.loads(gzip.decompress(path.read_bytes()))
    except OSError as error:
        raise UnreadableFile(
            f"Cannot read {path}: {error.strerror or error}. Make it with: {made_by}"
        ) from error
    except (ValueError, EOFError) as error:
        raise MalformedInput(
            f"is no stored result ({error}). Make it with: {made_by}", file=str(path)
        ) from error
