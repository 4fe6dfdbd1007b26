"""Arrays and their description: `NAME.safetensors`, and `NAME.json` with what they are and a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from apportion.data.artifact import Arrays, arrays_from_bytes, arrays_to_bytes
from apportion.errors import MalformedInput, UnreadableFile
from apportion.settings import replace_file

END = ".safetensors"


def write_described(
    folder: Path, name: str, arrays: Mapping[str, NDArray[Any]], description: Mapping[str, Any]
) -> Path:
    """Write both files; that of the arrays comes back."""
    data = arrays_to_bytes(arrays)
    described = {"name": name, "sha256": hashlib.sha256(data).hexdigest(), **description}
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / f"{name}.json", (json.dumps(described, indent=1) + "\n").encode())
    path = folder / f"{name}{END}"
    replace_file(path, data)
    return path


def read_described(folder: Path, name: str) -> tuple[dict[str, Any], Arrays]:
    """The description and the arrays that `write_described` wrote.

    Raises:
        UnreadableFile: a file is missing.
        MalformedInput: the arrays are not those that the description speaks of.
    """
    path = folder / f"{name}{END}"
    try:
        described = json.loads((folder / f"{name}.json").read_text())
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"Cannot read the model {name}: {error}") from error
    if hashlib.sha256(data).hexdigest() != described["sha256"]:
        raise MalformedInput("the weights do not have the checksum of their description", file=str(path))
    return described, arrays_from_bytes(data, path)


def described_in(folder: Path) -> list[str]:
    """The names of what `write_described` wrote to a folder, in order."""
    return sorted(path.stem for path in folder.glob(f"*{END}"))
