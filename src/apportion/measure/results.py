"""Whether a function returned what it should: element by element, in words where it did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting

USUAL = {2: (1e-2, 1e-3), 4: (1e-3, 1e-5), 8: (1e-6, 1e-9)}
"Bytes of the less exact of two floating-point types → relative and absolute tolerance."
_KINDS = {
    "b": "truths",
    "i": "whole numbers",
    "u": "whole numbers",
    "f": "real numbers",
    "c": "complex numbers",
}


@dataclass(frozen=True)
class Tolerance:
    """How far an element may be off: by `relative` of what it should be, plus `absolute`."""

    relative: float | None = None
    "By the floating-point type when not given: 1e-6 (64 bits), 1e-3 (32), 1e-2 (16)."
    absolute: float | None = None
    "Likewise: 1e-9, 1e-5, 1e-3."

    def __post_init__(self) -> None:
        for name in ("relative", "absolute"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InvalidSetting(f"The {name} tolerance must be 0 or more, not {value}")


def difference(found: Any, expected: Any, tolerance: Tolerance, *, at: str = "the result") -> str:
    """Where a result is not what it should be, in words; empty when it is.

    Numbers and arrays (NumPy's, JAX's, PyTorch's) are compared element by element, real and imaginary parts
    each; dicts, lists and tuples part by part; anything else must be equal.
    """
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping):
            return f"{at} is {_kind(found)}, not a dict"
        if set(found) != set(expected):
            odd = sorted(map(str, set(found) ^ set(expected)))
            return f"{at} differs in the keys {', '.join(odd)}"
        return _first(
            difference(found[key], expected[key], tolerance, at=f"{at}[{key!r}]") for key in expected
        )
    if isinstance(expected, tuple | list) and not _is_numbers(expected):
        if not isinstance(found, tuple | list):
            return f"{at} is {_kind(found)}, not {len(expected)} parts"
        if len(found) != len(expected):
            return f"{at} has {len(found)} parts, not {len(expected)}"
        parts = enumerate(zip(found, expected, strict=True))
        return _first(difference(one, other, tolerance, at=f"{at}[{place}]") for place, (one, other) in parts)
    if expected is None or isinstance(expected, str | bytes):
        return (
            ""
            if type(found) is type(expected) and found == expected
            else f"{at} is {found!r}, not {expected!r}"
        )
    return _of_arrays(found, expected, tolerance, at)


def _of_arrays(found: Any, expected: Any, tolerance: Tolerance, at: str) -> str:
    try:
        got, want = _array(found), _array(expected)
    except (TypeError, ValueError):
        return f"{at} is {_kind(found)}, which cannot be compared with {_kind(expected)}"
    for array, kind in ((got, found), (want, expected)):
        if array.dtype.kind not in _KINDS:
            same = type(found) is type(expected) and bool(np.all(found == expected))
            return "" if same else f"{at} is {_kind(kind)}, which cannot be compared"
    if got.shape != want.shape:
        return f"{at} has shape {got.shape}, not {want.shape}"
    plain = isinstance(expected, bool | int | float | complex | list | tuple)
    if not plain and _KINDS[got.dtype.kind] != _KINDS[want.dtype.kind]:
        return (
            f"{at} holds {_KINDS[got.dtype.kind]} ({got.dtype}), not {_KINDS[want.dtype.kind]} ({want.dtype})"
        )
    got, want = got.reshape(-1), want.reshape(-1)
    relative, absolute = _tolerances(got.dtype, want.dtype, tolerance)
    wrong = ~_close(got.real, want.real, relative, absolute)
    if "c" in (got.dtype.kind, want.dtype.kind):
        wrong |= ~_close(got.imag, want.imag, relative, absolute)
    if not wrong.any():
        return ""
    place = int(np.argmax(wrong))
    where = f"element {place}" if len(got) > 1 else at
    many = f" ({int(wrong.sum())} of {len(got)} differ)" if len(got) > 1 else ""
    return f"{where} is {got[place]}, not {want[place]}{many}"


def _close(got: NDArray[Any], want: NDArray[Any], relative: float, absolute: float) -> NDArray[np.bool_]:
    if got.dtype.kind in "biu" and want.dtype.kind in "biu":
        exact: NDArray[np.bool_] = got == want
        return exact
    close: NDArray[np.bool_] = np.isclose(
        got.astype(np.float64), want.astype(np.float64), rtol=relative, atol=absolute, equal_nan=True
    )
    return close


def _tolerances(got: np.dtype[Any], want: np.dtype[Any], tolerance: Tolerance) -> tuple[float, float]:
    sizes = [one.itemsize // (2 if one.kind == "c" else 1) for one in (got, want) if one.kind in "fc"]
    relative, absolute = USUAL.get(min(sizes, default=8), USUAL[8])
    return (
        relative if tolerance.relative is None else tolerance.relative,
        absolute if tolerance.absolute is None else tolerance.absolute,
    )


def _array(value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):  # a tensor of PyTorch's, wherever it lies
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
        return np.asarray(value.numpy())
    array = np.asarray(value)
    return array.astype(np.float32) if str(array.dtype) == "bfloat16" else array


def _is_numbers(values: Sequence[Any]) -> bool:
    """Whether a list is one of plain numbers, or lists of them: an array written out."""
    try:
        return np.asarray(values).dtype.kind in _KINDS and not any(hasattr(one, "shape") for one in values)
    except ValueError:
        return False


def _first(problems: Any) -> str:
    return next((problem for problem in problems if problem), "")


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
