"""What travels between a process and its worker, and what must not."""

import os
import pickle
import socket
import struct

import pytest

from apportion.errors import WorkerCrashed
from apportion.runtime.opencl.pipe import receive, send
from apportion.runtime.plan import Build


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_our_own_values_arrive_as_they_were(pair):
    value = (True, {"build": Build("kernel void f() {}", "f"), "times": [1.5, None], "data": b"\0\xff"})
    send(pair[0], value)
    assert receive(pair[1]) == value


class Mischief:
    def __reduce__(self):
        return os.system, ("touch mischief",)


def test_a_pickle_that_would_run_something_is_refused(pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(Mischief())
    pair[0].sendall(struct.pack("<Q", len(data)) + data)
    with pytest.raises(
        WorkerCrashed, match=r"The worker sent what is no answer\. A worker sent a posix\.system\."
    ):
        receive(pair[1])
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_hung_up_says_nothing(pair):
    pair[0].close()
    assert receive(pair[1]) is None
