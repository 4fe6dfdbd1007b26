"""Random arithmetic for generated kernels: chains of statements that stay finite, of any type and length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """A type of numbers."""

    name: str
    "As OpenCL C writes it."
    dtype: str
    "As NumPy names one component."
    bytes: int
    components: int = 1

    @property
    def is_float(self) -> bool:
        """Whether it has fractions."""
        return self.dtype.startswith("float")

    @property
    def scalar(self) -> str:
        """The type of one component."""
        return self.name.rstrip("248") if self.components > 1 else self.name


FLOAT, DOUBLE = Kind("float", "float32", 4), Kind("double", "float64", 8)
INT, UINT = Kind("int", "int32", 4), Kind("uint", "uint32", 4)
LONG, FLOAT4 = Kind("long", "int64", 8), Kind("float4", "float32", 16, 4)
FLOAT2, INT4 = Kind("float2", "float32", 8, 2), Kind("int4", "int32", 16, 4)
SCALARS = (FLOAT, FLOAT, FLOAT, DOUBLE, INT, UINT, LONG)
KINDS = (*SCALARS, FLOAT4, FLOAT2, INT4)


class Draw:
    """Choices from one seed."""

    def __init__(self, seed: int | Sequence[int]) -> None:
        self._random = np.random.default_rng(seed)

    def one(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[int(self._random.integers(len(options)))]

    def some(self, options: Sequence[T], count: int) -> list[T]:
        """Several different ones, in their order."""
        chosen = self._random.choice(len(options), min(count, len(options)), replace=False)
        return [options[int(place)] for place in sorted(chosen)]

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        return int(self._random.integers(low, high + 1))

    def scale(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, as often small as large."""
        return round(float(np.exp(self._random.uniform(np.log(low), np.log(high)))))

    def chance(self, part: float) -> bool:
        """True this often."""
        return bool(self._random.random() < part)

    def fraction(self) -> float:
        """A number from 0.2 to 0.95, with three digits."""
        return round(float(self._random.uniform(0.2, 0.95)), 3)


def constant(draw: Draw, kind: Kind) -> str:
    """A number of this kind."""
    if kind.is_float:
        text = f"{draw.fraction()}" + ("" if kind.scalar == "double" else "f")
    else:
        text = f"{draw.between(1, 97)}" + {"uint": "u", "long": "L"}.get(kind.scalar, "")
    return text if kind.components == 1 else f"({kind.name})({text})"


def statements(
    draw: Draw,
    kind: Kind,
    seeds: Sequence[str],
    count: int,
    special: float,
    names: tuple[str, str] = ("x", "y"),
) -> list[str]:
    """`count` statements over two variables of this kind, which hold values before.

    Args:
        seeds: other expressions of this kind.
        special: the part that are roots, exponentials, logarithms and angles.
    """
    lines = []
    for _ in range(count):
        target, other = draw.one((names, names[::-1], names))
        seed = draw.one((*seeds, other)) if seeds else other
        c = constant(draw, kind)
        forms: tuple[str, ...]
        if kind.is_float:
            forms = _SPECIAL if draw.chance(special) else _FLOAT
        elif kind.scalar == "uint":
            forms = _INTEGER + _BITS
        else:
            forms = _INTEGER
        lines.append(draw.one(forms).format(t=target, o=other, s=seed, c=c, k=draw.between(1, 29)))
    return lines


_FLOAT = (
    "{t} = {t} * {c} + {s};",
    "{t} = fma({t}, {c}, {o} * {c});",
    "{t} = {o} * {c} - {t} * {c};",
    "{t} = fma({s}, {c}, {t} * {c});",
    "{t} = fmax({t} * {c}, {s});",
    "{t} = fmin({t}, {s} + {c});",
    "{t} = {t} * {c} + {o} * {o} * {c} / (fabs({o}) + {c});",
    "{t} = {s} / (fabs({t}) + {c});",
    "{t} = fabs({t} - {s}) * {c};",
    "{t} = {c} * ({t} + {s} - {o});",
    "{t} = mad({t}, {c}, {s});",
)
_SPECIAL = (
    "{t} = sqrt(fabs({t}) + {c});",
    "{t} = exp(-fabs({t})) + {s} * {c};",
    "{t} = log(fabs({t}) + {c} + {c});",
    "{t} = sin({t}) * {c} + {s};",
    "{t} = cos({t} + {c});",
    "{t} = pow(fabs({t}) + {c}, {c});",
    "{t} = rsqrt(fabs({s}) + {c}) * {t};",
    "{t} = tanh({t}) + {c};",
    "{t} = atan({t} + {s});",
)
_INTEGER = (
    "{t} = {t} + {s};",
    "{t} = {t} - {o} * {c};",
    "{t} = {t} * {c} + {s};",
    "{t} = max({t}, {s});",
    "{t} = min({t}, {o} + {c});",
    "{t} = ({t} & 1023) * {c} + ({o} & 255);",
    "{t} = {t} ^ ({s} + {c});",
    "{t} = ({t} | {c}) - {s};",
    "{t} = ({t} & 65535) / {c} + {s};",
    "{t} = ({t} & 65535) % ({c} + 1) + {o};",
)
_BITS = (
    "{t} ^= {t} >> {k};",
    "{t} = rotate({t}, {k}u) + {s};",
    "{t} = ({t} << 3) ^ ({o} >> 2);",
    "{t} = popcount({t}) + {s};",
    "{t} = mul_hi({t}, {o}) + {c};",
    "{t} = {t} * 2654435761u + {s};",
)
