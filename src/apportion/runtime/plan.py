"""What is asked of a worker process and what it answers: plain values that travel over a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from apportion.program.kernel.bounds import IndexProgram, Interval, NDRange, Reach, bytes_touched
from apportion.runtime.images import ImageForm, Sampler
from apportion.runtime.split import Part

NO_INDICES = IndexProgram(())


@dataclass(frozen=True)
class Build:
    """A kernel to be compiled."""

    source: str
    kernel: str
    options: str = ""


@dataclass(frozen=True)
class ArrayPlace:
    """An array argument: where it lies, how the kernel uses it, how copies of it are merged."""

    name: str
    region: int
    nbytes: int
    dtype: str
    merge: str = "none"
    read_reach: tuple[Reach, ...] | None = None
    write_reach: tuple[Reach, ...] | None = None
    settled: bool = False
    "Which places are written does not depend on data."
    covered: bool = False
    "Every place of a slice is written, so that it need not go to a device before it comes back."
    image: ImageForm | None = None
    "Where it holds the pixels of an image."

    @property
    def written(self) -> bool:
        """Whether the kernel writes it."""
        return self.merge != "none"


@dataclass(frozen=True)
class ValuePlace:
    """An argument passed by value: its bytes."""

    name: str
    data: bytes


@dataclass(frozen=True)
class SamplerPlace:
    """How images are read."""

    name: str
    sampler: Sampler


@dataclass(frozen=True)
class LocalPlace:
    """Memory of each work-group."""

    name: str
    nbytes: int


Place = ArrayPlace | ValuePlace | SamplerPlace | LocalPlace
"Where one argument of a launch is."


@dataclass(frozen=True)
class Chunks:
    """Parts handed out while the devices work: the first eats from the left, the others from the right."""

    shares: Mapping[str, float]
    "How much of the work each device is expected to take."
    first: float = 0.5
    "The part of its share that a device gets at once; the surer the shares, the larger."
    least_groups: int = 1


@dataclass(frozen=True)
class Plan:
    """One launch over one or more devices."""

    build: Build
    span: NDRange
    dimension: int
    arguments: tuple[Place, ...]
    parts: tuple[Part, ...] = ()
    chunks: Chunks | None = None
    program: IndexProgram = NO_INDICES
    scalars: Mapping[int, int] = field(default_factory=dict)
    checked: bool = False
    "Every device works on copies of what it writes, so that conflicts and stray writes are seen."
    undo: bool = False
    "Where devices wrote different values to one place, merged arrays are left as they were before."
    probe: int = 0
    """Not 0: a checked launch that only finds out what is written. Copies of arrays that are only written
    start as their bytes exclusive-or this one, and nothing is merged."""

    def touched(self, place: ArrayPlace, first: int, last: int, *, write: bool) -> Interval | None:
        """The bytes of an array that work-groups [first, last) can read or write, where known."""
        reach = place.write_reach if write else place.read_reach
        return bytes_touched(
            self.program, reach, self.span, self.dimension, (first, last), self.scalars, place.nbytes
        )

    def sliced(self, place: ArrayPlace, ranges: Iterable[tuple[int, int]]) -> bool:
        """Whether ranges of work-groups write known bytes of an array that do not overlap."""
        written = [self.touched(place, first, last, write=True) for first, last in ranges]
        known = sorted(interval for interval in written if interval is not None)
        apart = all(before[1] <= after[0] for before, after in pairwise(known))
        return len(known) == len(written) and apart


@dataclass(frozen=True)
class DeviceTime:
    """What one device did in one launch; times in seconds."""

    device: str
    ranges: tuple[tuple[int, int], ...]
    upload: float
    kernel: float
    download: float
    seconds: float
    "From the start of the launch until this device was done."
    began: float = 0.0
    "From the start of the launch until its arguments were set: by its own thread, or by the one that serves."
    busy: float = 0.0
    "What the device itself says its kernels took: without a driver's compiling at a first launch."
    cold: bool = False
    "The first launch of this kernel in work-groups of this size here: drivers compile and allocate in it."

    @property
    def groups(self) -> int:
        """Work-groups along the split dimension."""
        return sum(last - first for first, last in self.ranges)


@dataclass(frozen=True)
class LaunchOutcome:
    """What became of a plan."""

    devices: tuple[DeviceTime, ...]
    seconds: float
    "Wall clock from the first transfer to the last merge."
    merge_seconds: float = 0.0
    conflicts: Mapping[str, int] = field(default_factory=dict)
    "Argument → elements that two devices changed to different values."
    strays: Mapping[str, int] = field(default_factory=dict)
    "Argument → elements written outside the slice that the analysis promised."
    covered: frozenset[str] = frozenset()
    "Arguments whose slices a probe found to be written without a gap."
