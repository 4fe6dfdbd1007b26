"""One kernel on several devices at once: split, run, merged and checked.

with together(source, "saxpy") as kernel:
    kernel(x, y, 2.0, n, global_size=n)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.coexecution.bound import BoundKernel, Execution
from apportion.coexecution.forecast import Predictor, from_speeds
from apportion.coexecution.launch_memory import LaunchMemory, identity_of
from apportion.coexecution.launching import LaunchState
from apportion.coexecution.policies import policy_of
from apportion.coexecution.policies.base import Policy
from apportion.errors import InvalidSetting, UnknownName
from apportion.program.compile import CompileOptions, driver_options, driver_text, ir_of
from apportion.program.kernel.access import MERGES, KernelAccess, accesses_of
from apportion.program.kernel.bounds import NDRange
from apportion.program.kernel.signature import Signature, signature_of
from apportion.program.source import Source
from apportion.program.untrusted import check_runnable
from apportion.runtime.backend import Backend, info_of, open_backend
from apportion.runtime.base import DeviceInfo, Limits
from apportion.runtime.binding import Binding, SharedMemory, bind
from apportion.runtime.drivers import DEFAULT_DRIVERS, DriverOptions
from apportion.runtime.images import Argument
from apportion.runtime.plan import ArrayPlace, Build, Plan
from apportion.runtime.split import virtualised

Size = int | Sequence[int]
_DEFAULT_LOCAL = {1: (64,), 2: (16, 4), 3: (8, 4, 2)}
_COMPILE = CompileOptions()


class Together:
    """A kernel that several devices share. It holds a backend: close it, or use it in a `with`.

    Args:
        source: OpenCL C, or the path of a file of it.
        kernel: its name; not needed where there is only one.
        devices: ids of the devices that share, in the order of their parts; None: all.
        policy: who gets how much: a name of `apportion.coexecution.policies`, a device, a share, or a
            `Policy`.
        predictor: what predicts the first launch of a size; `apportion.share` has the learned models.
        merges: argument → merge, where you know better than the analysis.
        backend: what runs launches: one that is open, or the name of one, such as `replay:FOLDER`.
        memory: where what launches teach is kept for later processes; None: nowhere.
        fresh: forget what was kept there of the launches that are made.
        trust: do not compare the first launch of a size with one device's.
        trust_source: run a source that has inline assembly, or code for some compilers only.
    """

    def __init__(
        self,
        source: str | Path | Source,
        kernel: str | None = None,
        devices: Sequence[str] | None = None,
        *,
        policy: str | float | Policy = "learned+feedback",
        predictor: Predictor = from_speeds,
        merges: Mapping[str, str] | None = None,
        trust: bool = False,
        trust_source: bool = False,
        compile: CompileOptions = _COMPILE,
        limits: Limits | None = None,
        backend: Backend | str = "opencl",
        drivers: DriverOptions = DEFAULT_DRIVERS,
        memory: LaunchMemory | None = None,
        fresh: bool = False,
    ) -> None:
        self._owned = isinstance(backend, str)
        self.backend = open_backend(backend, drivers, limits) if isinstance(backend, str) else backend
        self.backend.begin()  # it starts while the source is compiled and read
        self._launches, self._fresh = memory, fresh
        try:
            self._read(source, kernel, compile, merges, trust_source=trust_source)
            self._meet(devices, policy, predictor, trust=trust)
        except BaseException:
            if self._owned:
                self.backend.close()
            raise

    def _read(
        self,
        source: str | Path | Source,
        kernel: str | None,
        compile: CompileOptions,
        merges: Mapping[str, str] | None,
        *,
        trust_source: bool,
    ) -> None:
        """Compile the source, and see what the kernel does with its arguments."""
        self.source = as_source(source)
        text = str(self.source.text)
        self.compile = compile
        ir = ir_of(self.source, compile)
        if not trust_source:
            check_runnable(text, ir, self.source.name)
        self.signature: Signature = signature_of(ir, kernel, text)
        self.access: KernelAccess = accesses_of(ir, text)[self.signature.name]
        self._code = hashlib.sha256(ir.encode()).hexdigest()
        self.merges = dict(merges or {})
        for name, merge in self.merges.items():
            self.signature.argument(name)
            if merge not in MERGES:
                raise UnknownName("merge", merge, MERGES)
        self._options = driver_options(self.source, compile)
        self._text = driver_text(self.source, compile)

    def _meet(
        self,
        devices: Sequence[str] | None,
        policy: str | float | Policy,
        predictor: Predictor,
        *,
        trust: bool,
    ) -> None:
        """Find the devices."""
        self.policy, self.predictor = policy, predictor
        self.trust = trust or not self.backend.computes  # a recording has no results to compare
        known = self.backend.devices()
        names = [info.id for info in known] if devices is None else list(devices)
        self.devices: list[DeviceInfo] = [info_of(name, known) for name in names] or [info_of("cpu", known)]
        policy_of(policy, self.devices)  # a policy that there is not is told now, not at the first launch
        self._memory = SharedMemory(self.backend)
        self._cases: dict[Any, LaunchState] = {}

    def array(self, shape: int | tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array of zeros that devices use without copying it from and to this process."""
        return self._memory.empty(shape, dtype)

    def bind(
        self,
        *arguments: Argument,
        global_size: Size,
        local_size: Size | None = None,
        offset: Size = (),
    ) -> BoundKernel:
        """The kernel with its arguments and range, ready to be launched any number of times."""
        shape = sizes_of(global_size)
        local = sizes_of(local_size) if local_size is not None else self.local_size(shape)
        span = NDRange(shape, local, sizes_of(offset))
        for info in self.devices:
            if int(np.prod(local)) > info.max_work_group_size:
                raise InvalidSetting(
                    f"A work-group of {local} is more than the {info.max_work_group_size} work-items "
                    f"{info.id} allows"
                )
        binding = bind(self.signature, self.access, arguments, self._memory, self.merges)
        sizes = tuple(
            (place.nbytes, place.dtype) for place in binding.places if isinstance(place, ArrayPlace)
        )
        key = (span, sizes, tuple(binding.scalars.items()))
        if key not in self._cases:
            self._cases[key] = case = self._case(span, binding)
            if self._launches is not None and self._fresh:
                self._launches.forget(self._identity(key))
            elif self._launches is not None:
                self._launches.recall(self._identity(key), case)
        return BoundKernel(self, binding, span, self._cases[key])

    def __call__(
        self,
        *arguments: Argument,
        global_size: Size,
        local_size: Size | None = None,
        offset: Size = (),
        policy: str | float | Policy | None = None,
    ) -> Execution:
        """Launch: arrays that the kernel writes hold the results afterwards.

        Raises:
            VerificationFailed: devices disagree about the results; nothing is written.
            NotSplittable: a split was asked for by number, and the kernel's work cannot be shared.
            DeadlineExceeded, LimitExceeded, WorkerCrashed, LaunchFailed: the launch came to a bad end.
        """
        bound = self.bind(*arguments, global_size=global_size, local_size=local_size, offset=offset)
        execution = bound.run(self.policy if policy is None else policy)
        bound.binding.give_back()
        return execution

    @property
    def strangers(self) -> list[str]:
        """Devices that were never calibrated."""
        return [info.id for info in self.devices if info.calibration is None]

    def calibrate(self) -> None:
        """Measure the devices whose speed is not known; the results are kept for all kernels to come."""
        for _ in self.calibrate_each():
            pass

    def calibrate_each(self) -> Iterator[str]:
        """The same, one device after the other; each is named when it is done."""
        for stranger in self.strangers:
            measured = {info.id: info for info in self.backend.calibrate([stranger])}
            self.devices = [measured.get(info.id, info) for info in self.devices]
            yield stranger

    def close(self) -> None:
        """Keep what launches taught; close the backend, if it is this kernel's own. Twice does nothing."""
        if self._launches is not None:
            for key, case in self._cases.items():
                self._launches.keep(self._identity(key), case)
            self._launches.prune()
        self._memory.clear()
        self._cases.clear()
        if self._owned:
            self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def build_for(self, span: NDRange) -> Build:
        """What is compiled for a range: with virtual indices where the kernel needs them."""
        text = self._text
        if not self.access.virtual_indices:
            return Build(text, self.signature.name, self._options)
        source, options = virtualised(text, self._options, span)
        return Build(source, self.signature.name, options)

    def local_size(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The work-group size where none is asked for: the kernel's own, else a small one that fits."""
        if self.signature.required_local_size is not None:
            return self.signature.required_local_size[: len(shape)]
        most = min(info.max_work_group_size for info in self.devices)
        local = tuple(
            np.gcd(size, wanted) for size, wanted in zip(shape, _DEFAULT_LOCAL[len(shape)], strict=True)
        )
        return tuple(int(size) for size in local) if np.prod(local) <= most else (1,) * len(shape)

    def _identity(self, key: Any) -> tuple[object, ...]:
        """What a launch is kept under."""
        merges = tuple(sorted(self.merges.items()))
        asked = getattr(self.predictor, "__module__", ""), getattr(self.predictor, "__qualname__", "")
        return self._code, self.signature.name, self._options, merges, key, asked, identity_of(self.devices)

    def _case(self, span: NDRange, binding: Binding) -> LaunchState:
        """The best dimension to cut, and the merges that hold along it."""
        merges = {place.name: place.merge for place in binding.written}
        refused = [name for name, merge in merges.items() if merge == "refuse"]
        obstacles = [
            f"{a.name}: {a.reason}" for a in self.access.arguments if a.name in refused
        ]  # fmt: skip
        if self.access.untraced and not self.merges:
            obstacles.append(self.access.untraced)
        if max(span.groups) == 1:
            obstacles.append("there is only one work-group")
        choices = []
        for dimension, groups in enumerate(span.groups):
            along = {
                name: "diff"
                if merge == "slice" and not self._sliced(name, span, dimension, binding)
                else merge
                for name, merge in merges.items()
            }
            slices = sum(merge == "slice" for merge in along.values())
            # Slices spare copies and merging; many groups allow fine cuts; the slowest dimension gives long
            # rows.
            choices.append(((groups > 1, slices, min(groups, 64), dimension), dimension, along))
        _, dimension, along = max(choices)
        return LaunchState(dimension, along, obstacle="; ".join(obstacles))

    def _sliced(self, name: str, span: NDRange, dimension: int, binding: Binding) -> bool:
        """Whether cuts along a dimension cut the writes to an argument into ranges that do not overlap."""
        place = next(place for place in binding.written if place.name == name)
        plan = Plan(
            Build("", ""),
            span,
            dimension,
            binding.places,
            program=self.access.program,
            scalars=binding.scalars,
        )
        groups = span.groups[dimension]
        cuts = {1, groups // 4, groups // 2, 3 * groups // 4, groups - 1} - {0, groups}
        return all(plan.sliced(place, [(0, cut), (cut, groups)]) for cut in cuts)


def as_source(source: str | Path | Source) -> Source:
    if isinstance(source, Source):
        return source
    if isinstance(source, Path) or ("\n" not in source and source.endswith((".cl", ".ocl"))):
        return Source.read(Path(source), "opencl")
    return Source(source, "opencl", "<kernel>")


def sizes_of(size: Size) -> tuple[int, ...]:
    """A size as one number per dimension.

    Raises:
        InvalidSetting: it is not one to three whole numbers.
    """
    try:
        found = tuple(map(index, (size,) if isinstance(size, int | np.integer) else size))
    except TypeError:
        found = None
    if found is None or len(found) > 3:
        raise InvalidSetting(f"A range or a work-group is one to three whole numbers, not {size!r}")
    return found
