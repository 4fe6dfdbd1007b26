"""Arguments of one launch: what somebody says of them (see `words`), and what is assumed of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from apportion.errors import UnknownName
from apportion.program.kernel.access import KernelAccess
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.signature import Signature
from apportion.runtime.default_arguments import Assumption, deduced
from apportion.runtime.images import Argument, Image
from apportion.runtime.words import named, value_of
from apportion.runtime.workload import Case
from apportion.settings import replace_file


@dataclass(frozen=True, eq=False)
class Arguments:
    """Every argument of a launch, and which were not given."""

    values: dict[str, Argument]
    "By name, in the kernel's order."
    case: Case
    "The same in words."
    assumed: tuple[Assumption, ...] = ()


def arguments_for(
    signature: Signature,
    access: KernelAccess,
    span: NDRange,
    given: Sequence[str] | Mapping[str, str] = (),
    *,
    seed: int = 0,
) -> Arguments:
    """A value for each argument of a kernel.

    Args:
        given: `name=value` as on the command line, or names with their values.
        seed: of the random numbers; the same seed gives the same arrays.

    Raises:
        InvalidSetting: a value that cannot be read, or that the argument cannot take.
        UnknownName: an argument that the kernel does not have.
        UnreadableFile: a file that cannot be read.
    """
    names = [argument.name for argument in signature.arguments]
    said = named(given if isinstance(given, Mapping) else tuple(given), names)
    found = deduced(signature, access, span, said)
    values = {
        argument.name: value_of(word, np.random.default_rng([seed, argument.index]))
        for argument, word in zip(signature.arguments, found.case.words(), strict=True)
    }
    return Arguments(values, found.case, found.assumed)


def save(path: Path, name: str, values: Mapping[str, Argument]) -> None:
    """Write an array argument, or the pixels of an image, to a `.npy` file.

    Raises:
        UnknownName: the kernel has no array of that name.
        UnreadableFile: the file cannot be written.
    """
    arrays = {
        key: value.pixels if isinstance(value, Image) else value
        for key, value in values.items()
        if isinstance(value, Image) or (isinstance(value, np.ndarray) and value.ndim)
    }
    if name not in arrays:
        raise UnknownName("array", name, arrays)
    buffer = BytesIO()
    np.save(buffer, arrays[name], allow_pickle=False)
    replace_file(path if path.suffix == ".npy" else path.with_name(f"{path.name}.npy"), buffer.getvalue())
