"""An array of a session: it knows where its valid bytes are, and comes home when Python looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from apportion.runtime.memory import Region
from apportion.runtime.residency import Residency

if TYPE_CHECKING:
    from apportion.coexecution.session import Session, SessionKernel


class ArrayMemory:
    """Memory that an array of a session has, and where its valid bytes are.

    When nobody refers to the array any more, the memory is kept for the next one of the same form: a program
    that makes its arrays anew in every round launches what is prepared already.
    """

    def __init__(self, region: Region, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
        self.region, self.number, self.nbytes = region, region.number, region.nbytes
        self.shape, self.dtype = shape, dtype
        self.home: NDArray[Any] = region.array(dtype, shape)
        self.held = 0
        "Bits of the places of devices that have memory for it."
        self.used = 0
        "When something was queued that uses it."
        self.forgotten = False
        "No other array gets it."
        self.kernels: WeakSet[SessionKernel] = WeakSet()
        "Kernels that keep launches over it."
        self.begin(name)

    def begin(self, name: str) -> None:
        """Hold another array, whose bytes are all at home."""
        self.name = name
        self.residency = Residency(self.nbytes)
        self.zero = True
        "Nothing was written to it since it was made, so that a device need not be sent its zeros."
        self.lent = False
        "Another library may write its memory at any time."
        self.idle = False
        "Nobody refers to it."

    def clear(self) -> None:
        """Make everything at home zero."""
        self.region.array(np.uint8, self.nbytes)[:] = 0


class SessionArray:
    """An array that lives wherever its valid bytes are. `Session.array` makes one."""

    def __init__(self, session: Session, memory: ArrayMemory) -> None:
        self.session, self.memory = session, memory
        self.shape, self.dtype, self.nbytes = memory.shape, memory.dtype, memory.nbytes
        self.name = memory.name

    def __del__(self) -> None:
        if (memory := self.__dict__.get("memory")) is not None:
            self.session.gone.append(memory)

    @property
    def home(self) -> NDArray[Any]:
        """The host's memory of it, whatever is valid there."""
        # What looks at the memory refers to this array: else another array might get the memory.
        return np.asarray(_Bytes(self)).view(self.dtype).reshape(self.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __bool__(self) -> bool:
        """As NumPy has it: what the one element is, not whether there are elements."""
        return bool(self.view())

    def numpy(self) -> NDArray[Any]:
        """A copy of what it holds now, after everything launched so far."""
        return self.view().copy()

    def view(self) -> NDArray[Any]:
        """What it holds now, without a copy and read-only; later launches may change it."""
        self.session.bring_home(self)
        found = self.home
        found.flags.writeable = False
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        values = self.view()
        if dtype is not None and np.dtype(dtype) != self.dtype:
            if copy is False:
                raise ValueError(f"An array of {self.dtype} has no view as {np.dtype(dtype)}")
            return values.astype(dtype)
        return values if copy is False else values.copy()

    def __getitem__(self, place: Any) -> Any:
        found = self.view()[place]
        return found.copy() if isinstance(found, np.ndarray) else found

    def __setitem__(self, place: Any, values: Any) -> None:
        everything = (isinstance(place, slice) and place == slice(None)) or place is Ellipsis
        self.session.about_to_write(self, whole=bool(everything))
        self.home[place] = values

    def __dlpack__(self, **options: Any) -> Any:
        """The host's memory for another library, without a copy. From now on it may change at any time, so
        every launch sends it anew, and `Session.wait` brings results home."""
        self.session.lend(self)
        return self.home.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __repr__(self) -> str:
        where = ", ".join(self.session.locations_of(self)) or "nowhere"
        return f"<{self.name}: {self.dtype} {self.shape}, valid on {where}>"


class _Bytes:
    """The bytes of an array at home, for NumPy, which keeps a reference to this."""

    def __init__(self, array: SessionArray) -> None:
        self._array = array
        place = array.memory.home.__array_interface__["data"]
        self.__array_interface__ = {
            "version": 3, "shape": (array.nbytes,), "typestr": "|u1", "data": place,
        }  # fmt: skip
