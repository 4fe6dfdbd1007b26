"""A kernel's arguments, bound: checked against its signature and laid out in memory that workers share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, NotSplittable
from apportion.program.kernel.access import KernelAccess
from apportion.program.kernel.launch_values import Contents, contents_of
from apportion.program.kernel.signature import KernelArgument, Signature
from apportion.runtime.backend import Backend
from apportion.runtime.base import LocalMemory
from apportion.runtime.images import Argument, Image, ImageForm, Sampler
from apportion.runtime.memory import Region
from apportion.runtime.plan import ArrayPlace, LocalPlace, Place, SamplerPlace, ValuePlace


class SharedMemory:
    """The shared arrays of a session: those it handed out, and those it keeps for copies of the caller's."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._given: dict[int, Region] = {}
        self._kept: dict[int, Region] = {}

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array of zeros that devices use without a copy."""
        count = int(np.prod(shape))
        region = self.backend.allocate(count * np.dtype(dtype).itemsize)
        array = region.array(np.dtype(dtype), shape if isinstance(shape, tuple) else (shape,))
        self._given[array.ctypes.data] = region
        return array

    def place(self, number: int, values: NDArray[Any]) -> tuple[Region, NDArray[Any]]:
        """Shared memory that holds an argument: its own where it was made here, else a copy."""
        region = self._given.get(values.ctypes.data)
        if region is not None and region.nbytes == values.nbytes and values.flags.c_contiguous:
            return region, values
        region = self._kept.get(number)
        if region is None or region.nbytes != values.nbytes:
            region = self._kept[number] = self.backend.allocate(values.nbytes)
        shared = region.array(values.dtype, values.shape)
        shared[...] = values
        return region, shared

    def clear(self) -> None:
        """Let go of all."""
        self._given.clear()
        self._kept.clear()


@dataclass
class Binding:
    """The arguments of one launch, in shared memory."""

    places: tuple[Place, ...]
    scalars: Mapping[int, int]
    shared: dict[str, NDArray[Any]]
    "Argument → the array that devices work on."
    given: dict[str, NDArray[Any]]
    "Argument → the caller's array."
    _initial: dict[str, NDArray[Any]] = field(default_factory=dict)

    def contents(self) -> dict[int, Contents]:
        """Argument number → what it holds now, for arrays of integers: they may be trip counts of loops."""
        return {
            number: contents_of(self.shared[place.name])
            for number, place in enumerate(self.places)
            if isinstance(place, ArrayPlace) and self.shared[place.name].dtype.kind in "iu"
        }

    @property
    def written(self) -> list[ArrayPlace]:
        """The arrays that the kernel writes."""
        return [place for place in self.places if isinstance(place, ArrayPlace) and place.written]

    def remember(self) -> None:
        """Keep what the written arrays hold now, so that trial runs can start from it again."""
        for place in self.written:
            shared, given = self.shared[place.name], self.given[place.name]
            # The caller's own array, where it is another, still holds it.
            self._initial[place.name] = given if given is not shared else shared.copy()

    def restore(self, names: Collection[str] | None = None) -> None:
        """Make the written arrays, or those of these names, hold what they held when they were remembered."""
        for name, values in self._initial.items():
            if names is None or name in names:
                self.shared[name][...] = values

    def give_back(self) -> None:
        """Copy results to the caller's arrays."""
        for place in self.written:
            if self.given[place.name] is not self.shared[place.name]:
                self.given[place.name][...] = self.shared[place.name]


def bind(
    signature: Signature,
    access: KernelAccess,
    values: tuple[Argument, ...],
    memory: SharedMemory,
    merges: Mapping[str, str],
) -> Binding:
    """Check the arguments and lay them out.

    Args:
        merges: argument → merge, where the caller knows better than the analysis.

    Raises:
        InvalidSetting: an argument is missing, or not of the kind that the kernel takes.
    """
    if len(values) != len(signature.arguments):
        names = ", ".join(f"{argument.name}: {argument.type}" for argument in signature.arguments)
        raise InvalidSetting(
            f"The kernel {signature.name!r} takes {len(signature.arguments)} arguments ({names}), not "
            f"{len(values)}"
        )
    places: list[Place] = []
    scalars: dict[int, int] = {}
    shared: dict[str, NDArray[Any]] = {}
    given: dict[str, NDArray[Any]] = {}
    for argument, value in zip(signature.arguments, values, strict=True):
        if not argument.is_supported:
            raise NotSplittable(
                f"The argument {argument.name!r} is a {argument.type}, which no host passes to one launch"
            )
        form: ImageForm | None = None
        if argument.is_sampler:
            places.append(SamplerPlace(argument.name, _sampler(argument, value)))
            continue
        if argument.is_image:
            value, form = _image(argument, value)  # its pixels are an array like another
        if argument.space == "local":
            places.append(LocalPlace(argument.name, local_bytes(argument, value)))
        elif argument.is_pointer:
            array = checked_array(argument, value)
            use = access.arguments[argument.index]
            region, here = memory.place(argument.index, array)
            if use.writes and not array.flags.writeable:
                raise InvalidSetting(
                    f"The kernel writes the argument {argument.name!r}; give it a writeable array"
                )
            shared[argument.name], given[argument.name] = here, array
            places.append(
                ArrayPlace(
                    argument.name, region.number, array.nbytes, array.dtype.str,
                    merges.get(argument.name, use.merge), use.read_reach, use.write_reach, use.settled,
                    image=form,
                )
            )  # fmt: skip
        else:
            data = scalar_bytes(argument, value)
            places.append(ValuePlace(argument.name, data))
            kind = argument.scalar_type
            if kind is not None and argument.components == 1 and np.dtype(kind).kind in "iu":
                scalars[argument.index] = int(np.frombuffer(data, kind)[0])
    binding = Binding(tuple(places), scalars, shared, given)
    _refuse_overlaps(binding)
    return binding


def _refuse_overlaps(binding: Binding) -> None:
    """Raise an error where what one argument writes is another argument's memory: copies would hide that."""
    for place in binding.written:
        for name, other in binding.given.items():
            if name != place.name and np.may_share_memory(binding.given[place.name], other):
                raise InvalidSetting(
                    f"The arguments {place.name!r} and {name!r} overlap in memory, and {place.name!r} "
                    "is written; "
                    "give one of them a copy"
                )


def checked_array(argument: KernelArgument, value: object) -> NDArray[Any]:
    """The array that an argument is, if the kernel takes such a one.

    Raises:
        InvalidSetting: it does not.
    """
    if not isinstance(value, np.ndarray) or not value.nbytes:
        given = "one without elements" if isinstance(value, np.ndarray) else type(value).__name__
        raise InvalidSetting(
            f"The argument {argument.name!r} is {argument.type} in {argument.space} memory: give it an array "
            f"that is not empty, not {given}"
        )
    if not value.dtype.isnative:
        raise InvalidSetting(
            f"The argument {argument.name!r} has its bytes in the order of another machine ({value.dtype}): "
            "give array.astype(array.dtype.newbyteorder('='))"
        )
    wanted = argument.scalar_type
    same = wanted is None or value.dtype.names is not None or value.dtype == np.dtype(wanted)
    if not same and not (wanted is not None and value.dtype.kind in "iu" and np.dtype(wanted).kind in "iu"
                         and value.dtype.itemsize == np.dtype(wanted).itemsize):  # fmt: skip
        raise InvalidSetting(
            f"The argument {argument.name!r} is {argument.type}: give {wanted}, not {value.dtype}"
        )
    return value


def _image(argument: KernelArgument, value: Argument) -> tuple[NDArray[Any], ImageForm]:
    wanted = argument.bare_type.removesuffix("_t")
    if not isinstance(value, Image) or value.kind != wanted:
        given = value.kind if isinstance(value, Image) else type(value).__name__
        raise InvalidSetting(
            f"The argument {argument.name!r} is {argument.type}: give it an Image of kind {wanted!r}, not "
            f"{given}"
        )
    return value.pixels, value.form


def _sampler(argument: KernelArgument, value: Argument) -> Sampler:
    if not isinstance(value, Sampler):
        raise InvalidSetting(
            f"The argument {argument.name!r} is a sampler: give it a Sampler, not {type(value).__name__}"
        )
    return value


def local_bytes(argument: KernelArgument, value: object) -> int:
    """The size of local memory that an argument is."""
    if not isinstance(value, LocalMemory):
        raise InvalidSetting(
            f"The argument {argument.name!r} is local memory: give LocalMemory(bytes), not "
            f"{type(value).__name__}"
        )
    return value.nbytes


def _refuse_loss(argument: KernelArgument, value: Argument) -> None:
    """Raise an error where whole numbers are not what was given: 1.5, or more than fits."""
    given, wanted = np.asarray(value), np.dtype(argument.scalar_type)
    longer = given.dtype.kind in "iu" and given.dtype.itemsize > wanted.itemsize
    if (given.dtype.kind == "f" or longer) and not np.array_equal(given, given.astype(wanted)):
        raise InvalidSetting(f"The argument {argument.name!r} is {argument.type}, not {value!r}")


def scalar_bytes(argument: KernelArgument, value: Argument) -> bytes:
    """The bytes of an argument that is passed by value."""
    if isinstance(value, bytes):
        data = value
    elif isinstance(value, LocalMemory | Image | Sampler):
        raise InvalidSetting(
            f"The argument {argument.name!r} is passed by value, and not {type(value).__name__}"
        )
    elif argument.scalar_type is not None:
        try:
            numbers = np.asarray(value, argument.scalar_type)
            if numbers.size == 3 and argument.components == 4:  # a vector of three takes the place of four
                numbers = np.append(numbers.reshape(-1), numbers.dtype.type(0))
            data = numbers.tobytes()
        except (OverflowError, ValueError, TypeError) as error:
            raise InvalidSetting(
                f"The argument {argument.name!r} is {argument.type}, not {value!r}: {error}"
            ) from error
        if type(value) is not int and np.dtype(argument.scalar_type).kind in "iu":
            _refuse_loss(argument, value)
    else:
        data = np.asarray(value).tobytes()
    if argument.element_bytes and len(data) != argument.element_bytes:
        raise InvalidSetting(
            f"The argument {argument.name!r} is {argument.type} of {argument.element_bytes} bytes, not "
            f"{len(data)}"
        )
    return data
