"""Arrays with a description beside them: `NAME.npz`, and `NAME.json` with what they are and a checksum."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import MalformedInput, UnreadableFile
from apportion.settings import replace_file


def write_described(
    folder: Path, name: str, arrays: Mapping[str, NDArray[Any]], description: Mapping[str, Any]
) -> Path:
    """Write both files; that of the arrays comes back."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    data = buffer.getvalue()
    described = {"name": name, "sha256": hashlib.sha256(data).hexdigest(), **description}
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / f"{name}.json", (json.dumps(described, indent=1) + "\n").encode())
    path = folder / f"{name}.npz"
    replace_file(path, data)
    return path


def read_described(folder: Path, name: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The description and the arrays that `write_described` wrote.

    Raises:
        UnreadableFile: a file is missing.
        MalformedInput: the arrays are not those that the description speaks of.
    """
    path = folder / f"{name}.npz"
    try:
        described = json.loads((folder / f"{name}.json").read_text())
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableFile(f"Cannot read the model {name}: {error}") from error
    if hashlib.sha256(data).hexdigest() != described["sha256"]:
        raise MalformedInput("the weights do not have the checksum of their description", file=str(path))
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return described, dict(arrays)
    except (ValueError, zipfile.BadZipFile) as error:
        raise MalformedInput(f"is not a file of arrays ({error})", file=str(path)) from error
