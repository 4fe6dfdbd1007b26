"""What processes of ours send each other: pickles of our own making, of which only values are restored.

A worker may have read what strangers wrote, and a fault in a parser may have made it theirs. What it sends
back is therefore restored as plain values, arrays, and classes that only hold values; nothing that a pickle
could otherwise call is called. Nothing of this is ever written to a file.
"""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

from apportion.errors import ApportionError, JobError

_PLAIN = {
    "builtins": {
        "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "object",
        "range", "set", "slice", "str", "tuple",
    },
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "pathlib": {"Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
}  # fmt: skip
"Module → what of it makes a value of its arguments, and does nothing else."
_MOVED = {"numpy.core.multiarray": "numpy._core.multiarray", "numpy.core.numeric": "numpy._core.numeric",
          "pathlib._local": "pathlib"}  # fmt: skip
"Other names of these modules, in other versions."


def packed(value: object) -> bytes:
    """The value for another process of ours to restore; never for a file.

    Errors of ours in it are restored as they were. Exception's own way would call `__init__` with the
    finished message, which those with other parameters refuse or wrap a second time.
    """
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def restored(data: bytes, only: tuple[str, ...] = ()) -> Any:
    """A value that another process packed.

    Args:
        only: beginnings of modules whose dataclasses are all that may be in it besides numbers, text and what
            holds those; when not given, everything that is a value.

    Raises:
        JobError: it is no value, or one of a class that does more than hold values.
    """
    return _Values(data, only).load()


def holds_values(kind: object) -> bool:
    """Whether an object of a class is what its fields are: a dataclass, a named tuple, an enumeration or an
    error of ours."""
    return isinstance(kind, type) and (
        is_dataclass(kind)
        or issubclass(kind, (Enum, ApportionError))
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ApportionError):
            return _same_error, (type(value), value.args, vars(value))
        return NotImplemented


class _Values(pickle.Unpickler):
    def __init__(self, data: bytes, only: tuple[str, ...]) -> None:
        super().__init__(io.BytesIO(data))
        self._only = only

    def find_class(self, module: str, name: str) -> Any:
        # Modules are judged by name: looking for something in one that nobody here has asked for imports it.
        if self._only:
            if module.startswith(self._only) and is_dataclass(found := super().find_class(module, name)):
                return found
        elif name in _PLAIN.get(_MOVED.get(module, module), ()):
            return super().find_class(module, name)
        elif (module, name) == (__name__, _same_error.__name__):
            return _same_error
        elif module.partition(".")[0] in sys.modules:
            found = super().find_class(module, name)
            if holds_values(found):
                return found
        raise JobError(
            f"A worker sent a {module}.{name}. What comes back from one are plain values, arrays, "
            "dataclasses, named tuples and enumerations"
        )


def _same_error(kind: type[ApportionError], args: tuple[Any, ...], state: dict[str, Any]) -> ApportionError:
    if not (isinstance(kind, type) and issubclass(kind, ApportionError)):
        raise JobError(f"A worker sent {kind!r} for an error of ours")
    # The builtin whose memory layout the class has: a class of two builtins takes only that one's __new__.
    builtin: Any = kind
    while builtin.__module__ != "builtins":
        builtin = builtin.__base__
    error: ApportionError = builtin.__new__(kind, *args)
    error.args = args  # OSError leaves this to __init__
    vars(error).update(state)
    return error
