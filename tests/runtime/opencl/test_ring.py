"""A ring of commands between two ends, without a worker."""

from __future__ import annotations

import fcntl
import resource
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from apportion.runtime.opencl.commands import FENCE, LAUNCH
from apportion.runtime.opencl.ring import _WRITER_SLEEPS, SIZE, SLOTS, Ring


@pytest.fixture
def ends() -> Iterator[tuple[Ring, Ring]]:
    """The writer's and the reader's."""
    memory = np.zeros(SIZE, np.uint8)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Ring(memory, ours), Ring(memory, theirs)


def test_commands_arrive_in_order_also_when_the_ring_is_full(ends: tuple[Ring, Ring]) -> None:
    writer, reader = ends
    count = 3 * SLOTS
    taken: list[tuple[int, int, int, int] | None] = []
    thread = threading.Thread(target=lambda: taken.extend(reader.take() for _ in range(count)))
    thread.start()
    for number in range(count):
        writer.push(LAUNCH, number, -number)
    thread.join(30)
    assert taken == [(LAUNCH, number, -number, 0) for number in range(count)]


def test_a_writer_that_looks_does_not_sleep_before_the_end(ends: tuple[Ring, Ring]) -> None:
    writer, reader = ends
    slept = []

    def end() -> None:
        command = reader.take()
        assert command is not None
        time.sleep(0.02)
        slept.append(bool(writer._words[_WRITER_SLEEPS]))
        reader.tell_ended(command[1])

    for look, sleeps in ((5.0, False), (0.0, True)):
        thread, fence = threading.Thread(target=end), 1 + len(slept)
        thread.start()
        writer.push(FENCE, fence)
        assert writer.ended(fence, 10.0, look)
        thread.join(10)
        assert slept[-1] is sleeps


def test_what_does_not_end_is_told_in_time(ends: tuple[Ring, Ring]) -> None:
    writer, _ = ends
    began = time.monotonic()
    assert not writer.ended(1, 0.05, look=0.01)
    assert time.monotonic() - began >= 0.05


def test_a_ring_waits_on_any_descriptor() -> None:
    """`select` takes none beyond 1,023, and each array of a program may have two."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 2048:
        pytest.skip("no such descriptors are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2048), before[1]))
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket(fileno=fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 1100)) as far:
        memory = np.zeros(SIZE, np.uint8)
        writer, reader = Ring(memory, far), Ring(memory, theirs)
        writer.push(FENCE, 1)
        assert reader.take() == (FENCE, 1, 0, 0)
        assert not writer.ended(1, 0.001)
        reader.tell_ended(1)
        assert writer.ended(1, 5.0)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
