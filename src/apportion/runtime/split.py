"""Split: cuts of a range between whole work-groups, for any number of devices; what a kernel sees of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apportion.errors import InvalidSetting
from apportion.program.kernel.bounds import NDRange

PRELUDE = """\
static size_t apportion_offset(uint d) { return get_global_offset(d); }
static size_t apportion_group(uint d) { return get_group_id(d); }
static size_t apportion_id(uint d) { return get_global_id(d); }
#define apportion_of(d, a, b, c, e) ((size_t)((d) == 0 ? (a) : (d) == 1 ? (b) : (d) == 2 ? (c) : (e)))
#define apportion_base(d) apportion_of(d, APPORTION_O0, APPORTION_O1, APPORTION_O2, 0)
#define get_group_id(d) (apportion_group(d) + (apportion_offset(d) - apportion_base(d)) / get_local_size(d))
#define get_global_size(d) apportion_of(d, APPORTION_N0, APPORTION_N1, APPORTION_N2, 1)
#define get_num_groups(d) (get_global_size(d) / get_local_size(d))
#define get_global_offset(d) apportion_base(d)
#define get_global_linear_id() \\
    (((apportion_id(2) - APPORTION_O2) * APPORTION_N1 + apportion_id(1) - APPORTION_O1) * APPORTION_N0 \\
     + apportion_id(0) - APPORTION_O0)
#line 1
"""
"""Index virtualisation. A global offset shifts `get_global_id` alone: group ids restart at 0, and group
counts and global sizes shrink to the part. These macros answer for the whole range, whose sizes are constants
of the build, so that one build per problem size serves every cut and no argument is added."""


def virtualised(source: str, options: str, span: NDRange) -> tuple[str, str]:
    """Source and build options under which a kernel sees the whole range whatever part of it is launched."""
    sizes = (*span.global_size, 1, 1)[:3]
    offsets = (*span.offset, 0, 0)[:3]
    numbers = [f"-DAPPORTION_N{d}={n}" for d, n in enumerate(sizes)]
    numbers += [f"-DAPPORTION_O{d}={n}" for d, n in enumerate(offsets)]
    return PRELUDE + source, " ".join([options, *numbers]).strip()


@dataclass(frozen=True)
class Part:
    """The work-groups [first, last) along the split dimension, for one device."""

    device: str
    first: int
    last: int

    @property
    def groups(self) -> int:
        """How many work-groups along the split dimension."""
        return self.last - self.first


@dataclass(frozen=True)
class Split:
    """A division of a range: which share of the work-groups each device takes, in this order."""

    shares: Mapping[str, float]
    "Device → share, from 0 to 1; together they make 1."

    def __post_init__(self) -> None:
        if not self.shares:
            raise InvalidSetting("A split needs at least one device")
        for device, share in self.shares.items():
            if not -1e-9 <= share <= 1 + 1e-9:
                raise InvalidSetting(f"The share of {device} must lie between 0 and 1, not {share}")
        total = sum(self.shares.values())
        if abs(total - 1) > 1e-6:
            raise InvalidSetting(f"Shares must make 1 together, not {total:g}")

    @classmethod
    def alone(cls, device: str) -> Split:
        """Everything to one device."""
        return cls({device: 1.0})

    @classmethod
    def even(cls, devices: Sequence[str]) -> Split:
        """The same share to each."""
        return cls({device: 1 / len(devices) for device in devices})

    def parts(self, groups: int) -> list[Part]:
        """Where the cuts fall: each work-group belongs to one device, and devices with none are left out."""
        parts, reached, first = [], 0.0, 0
        names = list(self.shares)
        for name in names:
            reached += self.shares[name]
            last = groups if name == names[-1] else min(groups, max(first, round(reached * groups)))
            if last > first:
                parts.append(Part(name, first, last))
            first = last
        return parts
