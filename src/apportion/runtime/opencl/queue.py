"""One OpenCL device inside a worker process: its context, its programs, its buffers, its thread."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from apportion.errors import CompileError, LaunchFailed
from apportion.program.kernel.bounds import Interval
from apportion.program.kernel.others import without_other_kernels
from apportion.runtime import memory
from apportion.runtime.base import DeviceInfo
from apportion.runtime.images import ImageForm, Sampler
from apportion.runtime.opencl.imaging import image_for, pixels_in, pixels_out, sampler_for
from apportion.runtime.opencl.staging import WORTH_IT, Staging
from apportion.runtime.plan import ArrayPlace, Build

Bytes = NDArray[np.uint8]
POCL = "Portable Computing Language"
"What PoCL calls its platform."
_OF_PYOPENCL = re.compile(r"clBuildProgram failed|Build on <|\(options: |\(source saved as")
_INLINE = re.compile(r"\b(?:inline|__inline)\b")
_WITHOUT_INLINE = "-Dinline= -D__inline="
_NEWER = ("-cl-std=CL2.0", "-cl-std=CL3.0")
"Versions of the language, for code of those: drivers take 1.2 where nobody says which."
_TEMPORARY = re.compile(r"\S*/tempfile_\w+\.cl")
_MOST_LOG_LINES = 40
"Of what a driver's compiler says; what comes later follows from the first."
_READ_WRITE = cl.mem_flags.READ_WRITE


def _other_ways(build: Build, text: str) -> Iterator[tuple[str, str]]:
    """Texts and options that mean the same for one kernel."""
    # C99 leaves functions out that are `inline` alone, so some drivers do not find them.
    inline = _INLINE.search(text) is not None
    if inline:
        yield text, f"{build.options} {_WITHOUT_INLINE}"
    if "-cl-std" not in build.options:
        yield from ((text, f"{build.options} {each}") for each in _NEWER)
    # Another kernel of the file may need what the device lacks, such as half or double precision.
    alone = without_other_kernels(text, build.kernel)
    if alone != text:
        yield alone, build.options
        if inline:
            yield alone, f"{build.options} {_WITHOUT_INLINE}"


class Queue:
    """One device: its context, its programs, its buffers and the thread that talks to it.

    A thread of its own, since waiting for one device must not keep another from being fed; and Intel's
    runtime with one worker computes in the thread that waits. What begins at once needs none.
    """

    def __init__(self, device: cl.Device, info: DeviceInfo) -> None:
        self.info = info
        self.device = device
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=info.id)
        self.staging = Staging(self.context, self.queue)
        self._kernels: dict[Build, cl.Kernel] = {}
        self.holds: dict[Build, object] = {}
        "Kernel → whose arguments it has, where they are the same at every launch."
        self._warm: set[tuple[Build, tuple[int, ...]]] = set()
        self.shared: dict[tuple[int, int], cl.Buffer] = {}
        self.own: dict[int, OwnBuffer] = {}
        self.private: dict[int, Bytes] = {}
        self._images: dict[int, tuple[ImageForm, cl.Image, cl.Buffer, int]] = {}
        self._samplers: dict[Sampler, cl.Sampler] = {}

    def kernel(self, build: Build) -> cl.Kernel:
        """The compiled kernel; compiled at most once."""
        if build not in self._kernels:
            try:
                # Bytes that are no UTF-8, in comments mostly, are lone surrogates here.
                text = build.source.encode("utf-8", "replace").decode()
                self._kernels[build] = cl.Kernel(self._built(build, text), build.kernel)
            except cl.RuntimeError as error:
                log = build_log(str(error))
                raise CompileError(
                    f"The compiler of {self.info.id} ({self.info.platform}) refuses the kernel "
                    f"{build.kernel!r}:\n{log}",
                    file="",  # what the driver was given is no file
                    diagnostics=log,
                ) from error
            except cl.LogicError as error:
                raise LaunchFailed(
                    f"There is no kernel {build.kernel!r} on {self.info.id}: {error}"
                ) from error
        return self._kernels[build]

    def _built(self, build: Build, text: str) -> cl.Program:
        """The compiled program; where the driver refuses it, one that it takes for the same kernel."""
        try:
            return cl.Program(self.context, text).build(options=build.options)
        except cl.RuntimeError:
            for other, options in _other_ways(build, text):
                with suppress(cl.RuntimeError):
                    return cl.Program(self.context, other).build(options=options)
            raise

    def first_launch(self, build: Build, local_size: tuple[int, ...]) -> bool:
        """Whether this kernel is launched in work-groups of this size for the first time here."""
        first = (build, local_size) not in self._warm
        self._warm.add((build, local_size))
        return first

    def begins_at_once(self, build: Build, local_size: tuple[int, ...]) -> bool:
        """Whether a launch computes on the host's own arrays from when it is enqueued, with nobody waiting.

        PoCL's threads do; not in a first launch, in which a driver may compile before it comes back.
        """
        own_threads = POCL in self.info.platform and self.info.shares_memory
        return own_threads and (build, local_size) in self._warm

    def adopt(self, build: Build, binary: bytes) -> None:
        """Take a kernel from a binary that this device's compiler made before."""
        if build not in self._kernels:
            program = cl.Program(self.context, [self.device], [binary]).build()
            self._kernels[build] = cl.Kernel(program, build.kernel)

    def largest_group(self, build: Build) -> int:
        """The most work-items that a work-group of this kernel may have here."""
        return int(
            self.kernel(build).get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, self.device)
        )

    def shared_buffer(self, region: int, whole: Bytes, nbytes: int) -> cl.Buffer:
        """A buffer over memory of the host: no copy."""
        key = (region, whole.ctypes.data)
        if key not in self.shared:
            flags = _READ_WRITE | cl.mem_flags.USE_HOST_PTR
            self.shared[key] = cl.Buffer(self.context, flags, hostbuf=memory.data_of(whole, nbytes))
        return self.shared[key]

    def private_copy(self, region: int, home: Bytes, nbytes: int) -> Bytes:
        """This device's own copy of an array in host memory, holding what the array holds now."""
        if region not in self.private:
            self.private[region] = memory.guarded(nbytes)
        whole = self.private[region]
        memory.data_of(whole, nbytes)[:] = memory.data_of(home, nbytes)
        return whole

    def own_buffer(self, region: int, nbytes: int) -> OwnBuffer:
        """A buffer in the device's memory, with guards."""
        if region not in self.own:
            self.own[region] = OwnBuffer(self, nbytes)
        return self.own[region]

    def image(self, region: int, form: ImageForm, buffer: cl.Buffer, offset: int) -> cl.Image:
        """The image of a region, whose pixels go through a buffer, from a place in it on."""
        kept = self._images.get(region)
        if kept is None or kept[0] != form or kept[2] is not buffer:
            self._images[region] = (form, image_for(self.context, form, buffer), buffer, offset)
        return self._images[region][1]

    def fill_images(self, places: Iterable[ArrayPlace]) -> None:
        """Copy pixels from their buffers to their images."""
        for place in places:
            form, image, buffer, offset = self._images[place.region]
            if form.kind != "image1d_buffer":
                pixels_in(self.queue, image, buffer, offset, form)
        self.queue.finish()

    def empty_images(self, places: Iterable[ArrayPlace]) -> None:
        """Copy pixels from images back to their buffers."""
        for place in places:
            form, image, buffer, offset = self._images[place.region]
            if form.kind != "image1d_buffer":
                pixels_out(self.queue, buffer, image, offset, form)
        self.queue.finish()

    def sampler(self, sampler: Sampler) -> cl.Sampler:
        """How images are read, made once."""
        if sampler not in self._samplers:
            self._samplers[sampler] = sampler_for(self.context, sampler)
        return self._samplers[sampler]

    def forget(self, region: int) -> None:
        """Let go of what was made for a region."""
        self.holds.clear()
        self.own.pop(region, None)
        self.private.pop(region, None)
        self._images.pop(region, None)
        for key in [key for key in self.shared if key[0] == region]:
            del self.shared[key]


def build_log(said: str) -> str:
    """What a driver's compiler wrote, out of pyopencl's message."""
    lines = [line for line in said.splitlines() if line.strip() and not _OF_PYOPENCL.match(line)]
    return _TEMPORARY.sub("<source>", "\n".join(lines[:_MOST_LOG_LINES])) or "it gave no reason"


class OwnBuffer:
    """Memory of a device for one array: a guard, the array, a guard."""

    def __init__(self, queue: Queue, nbytes: int) -> None:
        # A sub-buffer must start at a multiple of the device's alignment, which is given in bits.
        self.front = max(memory.PAGE, queue.device.mem_base_addr_align // 8)
        self.nbytes = nbytes
        self.whole = cl.Buffer(queue.context, _READ_WRITE, self.front + nbytes + memory.PAGE)
        for guard, place in (
            (memory.BEFORE, self.front - memory.PAGE),
            (memory.AFTER[: memory.PAGE], self.front + nbytes),
        ):
            cl.enqueue_copy(queue.queue, self.whole, guard, dst_offset=place, is_blocking=True)
        self.data = self.whole.get_sub_region(self.front, nbytes, _READ_WRITE)

    def upload(
        self, queue: Queue, home: Bytes, part: Interval, commands: cl.CommandQueue | None = None
    ) -> cl.Event | None:
        """Copy bytes of the host's array to the same place here; the event of it, where it is one copy.

        Args:
            commands: what small copies are queued on, if not on the device's usual queue.
        """
        start, end = part
        offset = self.front + start
        if end - start >= WORTH_IT:
            queue.staging.upload(self.whole, offset, home[start:end])
        elif end > start:
            return cl.enqueue_copy(
                commands or queue.queue, self.whole, home[start:end], dst_offset=offset, is_blocking=False
            )
        return None

    def download(
        self, queue: Queue, home: Bytes, part: Interval, commands: cl.CommandQueue | None = None
    ) -> cl.Event | None:
        """Copy bytes from here to the same place of the array, as `upload`."""
        start, end = part
        offset = self.front + start
        if end - start >= WORTH_IT:
            queue.staging.download(home[start:end], self.whole, offset)
        elif end > start:
            return cl.enqueue_copy(
                commands or queue.queue, home[start:end], self.whole, src_offset=offset, is_blocking=False
            )
        return None

    def overrun(self, queue: Queue) -> str | None:
        """Where the guards were broken."""
        before, after = np.empty(memory.PAGE, np.uint8), np.empty(memory.PAGE, np.uint8)
        cl.enqueue_copy(
            queue.queue, before, self.whole, src_offset=self.front - memory.PAGE, is_blocking=True
        )
        cl.enqueue_copy(queue.queue, after, self.whole, src_offset=self.front + self.nbytes, is_blocking=True)
        return memory.broken(before, after, self.nbytes)
