"""One of several processes that share work, by what a command line says of it."""

from __future__ import annotations

from apportion.errors import InvalidSetting


def shared_by(text: str) -> tuple[int, int]:
    """The number of this process, from 1, and how many there are: I/N in words.

    Raises:
        InvalidSetting: the text says something else.
    """
    first, _, last = text.partition("/")
    if not (first.isdigit() and last.isdigit()):
        raise InvalidSetting(f"A worker is given as I/N, such as 1/4, not {text!r}")
    number, workers = int(first), int(last)
    if not 1 <= number <= workers:
        raise InvalidSetting(f"A worker is given as I/N, with I from 1 to N, not {text}")
    return number, workers
