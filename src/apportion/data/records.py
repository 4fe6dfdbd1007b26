"""Example: what one row of a table of measured kernels means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from apportion.errors import InvalidSetting

CLASSES = (0, 25, 50, 75, 100)
"The five shares, in percent, that the classification form of load balancing chooses among (thesis, Eq. 5.9)."


@dataclass(frozen=True)
class Example:
    """One kernel with one input, run on a CPU and on a GPU."""

    name: str
    "Unique within its dataset."
    suite: str
    application: str
    "Unique over suites: two suites have a bfs of their own."
    kernel: str
    source: str
    "The OpenCL C, as published."
    ir: str
    "The LLVM IR that graphs are built from."
    bytes_moved: int
    "Between host and device, for one launch."
    work_group: int
    cpu_time: float
    gpu_time: float
    "Both in the dataset's unit: only their ratio and differences are used. The GPU's holds its transfers."
    counts: Mapping[str, float] = field(default_factory=dict)
    "Static counts that the dataset publishes (Grewe et al.), where it does."

    def __post_init__(self) -> None:
        if self.cpu_time <= 0 or self.gpu_time <= 0:
            raise InvalidSetting(
                f"{self.name}: times must be positive, not {self.cpu_time} and {self.gpu_time}"
            )
        if self.bytes_moved < 0 or self.work_group < 0:
            raise InvalidSetting(f"{self.name}: bytes and work-group size must not be negative")
        object.__setattr__(self, "counts", MappingProxyType(dict(self.counts)))

    @property
    def device(self) -> str:
        """The faster one, `cpu` or `gpu`; the CPU when they are equally fast."""
        return "gpu" if self.gpu_time < self.cpu_time else "cpu"

    @property
    def cpu_share(self) -> float:
        """The CPU's share of the work, in percent, with which both end together (thesis, Eq. 5.1 to 5.8).

        Rounded to whole percents, as the published labels are.
        """
        ratio = self.gpu_time / self.cpu_time
        return round(round(ratio / (1 + ratio), 2) * 100, 6)

    @property
    def share_class(self) -> int:
        """The nearest of `CLASSES`."""
        return nearest_class(self.cpu_share)

    def time(self, device: str) -> float:
        """What the launch takes on one device alone."""
        if device not in ("cpu", "gpu"):
            raise InvalidSetting(f"A device is 'cpu' or 'gpu', not {device!r}")
        return self.gpu_time if device == "gpu" else self.cpu_time


def nearest_class(share: float) -> int:
    """The class nearest to a share in percent; the lower of two equally near."""
    return min(CLASSES, key=lambda value: (abs(value - share), value))
