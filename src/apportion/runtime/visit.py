"""Visit: one case of a workload on several devices in turn, as it is asked of a worker and answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from apportion.errors import InvalidSetting
from apportion.program.kernel.access import KernelAccess
from apportion.program.kernel.signature import Signature
from apportion.runtime.images import Sampler
from apportion.runtime.plan import ArrayPlace, Build, LocalPlace, Place, Plan, SamplerPlace, ValuePlace
from apportion.runtime.sampling import Repeats
from apportion.runtime.split import virtualised
from apportion.runtime.words import ArrayWord, ImageWord
from apportion.runtime.workload import Case, Workload

SHARES = (1.0, 0.5, 0.25)
"""Shares of the range that are launched: a device's fixed cost shows where time does not shrink with the
share."""


@dataclass(frozen=True)
class Visit:
    """What a worker is asked: warm up, then launch shares of the range on every device, in turn."""

    plan: Plan
    "Its arrays' regions are numbers of `arrays`; it has no parts yet."
    arrays: Mapping[int, ArrayWord]
    devices: tuple[str, ...]
    repeats: Repeats | None
    "None: warm up and compare results, no more."
    shares: tuple[float, ...] = SHARES
    most_seconds: float = 0.5
    "A device whose first launch after warm-up is longer than this is not asked again."
    compare: int = 1 << 14
    "Elements of each written array that are compared between devices; 0 for all."
    binaries: str = ""
    "A folder where programs of devices with their own compiler are kept."
    known: Mapping[str, tuple[Launched, ...]] = field(default_factory=dict)
    "Device → launches of this visit that were measured before it was interrupted."


@dataclass(frozen=True)
class Launched:
    """One launch of a share; times in seconds."""

    share: float
    upload: float
    kernel: float
    download: float
    seconds: float


@dataclass(frozen=True)
class Seen:
    """What one device did in a visit."""

    device: str
    launches: tuple[Launched, ...] = ()
    first_seconds: float = 0.0
    "The launch that warms up, in which some drivers compile."
    agrees: bool | None = None
    "Whether the results are those of the first device; None where there is nothing to compare."
    said: str = ""
    "What differs."
    failure: str = ""
    "Why there are no launches, or no more of them."
    joules: float | None = None
    "Energy of all launches together, where meters of it are read."
    counters: Mapping[str, float] = field(default_factory=dict)
    "Counter → how much it grew in all launches together, where counters are read."


def plan_of(workload: Workload, case: Case, signature: Signature, access: KernelAccess) -> Plan:
    """A launch of a case that is not yet given to a device; arrays are numbered as the arguments are.

    Raises:
        InvalidSetting: the case does not give the arguments that the kernel takes.
    """
    words = case.words()
    if len(words) != len(signature.arguments):
        raise InvalidSetting(
            f"{workload.name}: {signature.name!r} takes {len(signature.arguments)} arguments, "
            f"not {len(words)}"
        )
    places: list[Place] = []
    scalars: dict[int, int] = {}
    for argument, word in zip(signature.arguments, words, strict=True):
        use = access.arguments[argument.index]
        if isinstance(word, ArrayWord):
            written_whole = use.settled and use.merge == "slice" and use.read_reach == ()
            places.append(
                ArrayPlace(
                    argument.name, argument.index, word.nbytes, word.cell.str,
                    "diff" if use.merge == "refuse" else use.merge, use.read_reach, use.write_reach,
                    use.settled, covered=written_whole,
                )
            )  # fmt: skip
        elif isinstance(word, ImageWord):
            places.append(
                ArrayPlace(
                    argument.name, argument.index, word.nbytes, word.pixels.cell.str, use.merge,
                    use.read_reach, use.write_reach, image=word.form,
                )
            )  # fmt: skip
        elif isinstance(word, Sampler):
            places.append(SamplerPlace(argument.name, word))
        elif isinstance(word, int):
            places.append(LocalPlace(argument.name, word))
        elif isinstance(word, bytes):
            places.append(ValuePlace(argument.name, word))
        else:
            places.append(ValuePlace(argument.name, word.tobytes() * argument.components))
            if word.dtype.kind in "iu":
                scalars[argument.index] = int(word)
    build = Build(workload.source, workload.kernel, workload.options)
    if _asks_for_the_whole(workload.source):
        build = Build(*_swapped(virtualised(workload.source, workload.options, case.span), workload.kernel))
    # The slowest dimension that has several groups: its parts are long ranges of memory.
    dimension = max(range(case.span.dimensions), key=lambda d: (case.span.groups[d] > 1, d))
    return Plan(build, case.span, dimension, tuple(places), program=access.program, scalars=scalars)


def _asks_for_the_whole(source: str) -> bool:
    """Whether a part that begins where the range begins would see another range than the whole.

    Group ids would not change: a part of a visit always begins at the first group.
    """
    return any(name in source for name in ("get_global_size", "get_num_groups", "get_global_linear_id"))


def _swapped(virtual: tuple[str, str], kernel: str) -> tuple[str, str, str]:
    source, options = virtual
    return source, kernel, options
