"""What papers report and what we want to reach, as data: `published.toml` in each table's folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TypeVar

from apportion.settings import convert, read_toml

T = TypeVar("T")
NAME = "published.toml"


def published(table: str, kind: type[T]) -> T:
    """The numbers of a table: `reproduction/TABLE/published.toml` as a frozen dataclass of this type.

    Raises:
        InvalidSetting: a key is missing, unknown or of another type.
    """
    path = Path(__file__).parent / table / NAME
    return convert(kind, _read(path), source=str(path))


@cache
def _read(path: Path) -> dict[str, object]:
    return read_toml(path)
