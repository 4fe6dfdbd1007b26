"""An array of a session: it knows where its valid bytes are, and comes home when Python looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apportion.runtime.memory import Region
from apportion.runtime.residency import Residency

if TYPE_CHECKING:
    from apportion.coexecution.session import Session


class SessionArray:
    """An array that lives wherever its valid bytes are. `Session.array` makes one."""

    def __init__(
        self, session: Session, region: Region, shape: tuple[int, ...], dtype: np.dtype[Any], name: str
    ) -> None:
        self.session, self.region, self.name = session, region, name
        self.shape, self.dtype = shape, dtype
        self.nbytes = region.nbytes
        self.home: NDArray[Any] = region.array(dtype, shape)
        self.residency = Residency(region.nbytes)
        self.zero = True
        "Nothing was written to it since it was made, so that a device need not be sent its zeros."
        self.lent = False
        "Another library may write its memory at any time."
        self.held = 0
        "Bits of the places of devices that have memory for it."
        self.used = 0
        "When a launch used it last, for eviction."

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
        found = self.home.view()
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
