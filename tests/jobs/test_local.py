"""Processes on this machine: deadlines, memory, crashes, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from apportion.errors import DeadlineExceeded, InvalidSetting, JobError, LimitExceeded, WorkerCrashed
from apportion.jobs import LocalRunner, Runner, runners
from apportion.testing.runner_checks import RunnerChecks, by_index, close, double, values

# Functions of these tests travel to the workers by name, so they must be in a module that workers can import.
WORK = """
import ctypes, os, subprocess, sys, time
from pathlib import Path

def nap(seconds):
    time.sleep(seconds)
    return seconds

def pid_then_nap(folder):
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(60)

def start_a_child_then_nap(folder):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (Path(folder) / str(child.pid)).touch()
    time.sleep(60)

def fork_then_die(item):
    if item == 0:
        if os.fork() == 0:
            time.sleep(60)
        os._exit(7)
    return item

def allocate(count):
    return len(bytearray(count))

def fill(count):
    return len([str(number) for number in range(count)])

def say(text):
    print(text, flush=True)

def leave(item):
    os._exit(3)

def touch_address_zero(item):
    if item == 1:
        ctypes.string_at(0)
    return item

def pid(item):
    return os.getpid()

def pid_after(seconds):
    time.sleep(seconds)
    return os.getpid()
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[..., object]]:
    """A function of WORK by its name."""
    folder = tmp_path / "importable"
    folder.mkdir()
    (folder / "work_of_this_test.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "work_of_this_test", raising=False)
    module = __import__("work_of_this_test")
    return lambda name: getattr(module, name)


class TestLocalRunner(RunnerChecks):
    look_ahead = 2

    def runner(self) -> Runner:
        return LocalRunner(workers=2)


def test_the_registry_knows_the_local_runner():
    assert runners.load("local") is LocalRunner


def test_an_item_past_its_deadline_is_killed_and_the_others_go_on(work):
    start = time.monotonic()
    outcomes = by_index(LocalRunner(workers=2, deadline_seconds=0.5).map(work("nap"), [0, 60, 0.01, 0]))
    assert time.monotonic() - start < 20
    assert isinstance(outcomes[1].error, DeadlineExceeded)
    assert isinstance(outcomes[1].error, TimeoutError)
    assert str(outcomes[1].error) == "It took longer than the 0.5 s it was given"
    assert outcomes[1].seconds >= 0.5
    assert {index: outcomes[index].value for index in (0, 2, 3)} == {0: 0, 2: 0.01, 3: 0}


def test_outcomes_come_as_they_finish(work):
    outcomes = list(LocalRunner(workers=2).map(work("nap"), [1.5, 0]))
    assert [outcome.item_index for outcome in outcomes] == [1, 0]
    assert outcomes[1].seconds == pytest.approx(1.5, abs=0.5)


def test_an_item_that_wants_too_much_memory_is_told_so(work):
    outcomes = by_index(
        LocalRunner(workers=1, memory_bytes=100_000_000).map(work("allocate"), [10, 10**9, 20])
    )
    assert isinstance(outcomes[1].error, LimitExceeded)
    assert str(outcomes[1].error) == (
        "It wanted more memory than the 100,000,000 bytes it was given. Raise memory_bytes."
    )
    assert (outcomes[0].value, outcomes[2].value) == (10, 20)


def test_memory_filled_bit_by_bit_is_told_so_too(work):
    outcomes = by_index(LocalRunner(workers=1, memory_bytes=50_000_000).map(work("fill"), [10**8, 5]))
    assert isinstance(outcomes[0].error, LimitExceeded)
    assert outcomes[1].value == 5


def test_a_segmentation_fault_costs_one_item(work):
    outcomes = by_index(LocalRunner(workers=2).map(work("touch_address_zero"), range(4)))
    assert isinstance(outcomes[1].error, WorkerCrashed)
    assert str(outcomes[1].error) == "The worker was killed by SIGSEGV"
    assert [outcomes[index].value for index in (0, 2, 3)] == [0, 2, 3]


def test_leaving_in_the_middle_is_a_crash_with_its_exit_status(work):
    (outcome,) = LocalRunner(workers=1).map(work("leave"), [0])
    assert str(outcome.error) == "The worker left with exit status 3 in the middle"


def test_a_worker_whose_child_holds_the_pipe_open_is_still_missed(work):
    outcomes = by_index(LocalRunner(workers=1).map(work("fork_then_die"), [0, 1]))
    assert str(outcomes[0].error) == "The worker left with exit status 7 in the middle"
    assert outcomes[1].value == 1


def test_workers_are_reused(work):
    pids = values(LocalRunner(workers=1).map(work("pid"), range(5))).values()
    assert len(set(pids)) == 1
    assert os.getpid() not in pids


def test_fresh_workers_do_one_item_each_and_none_is_left(work):
    pids = values(LocalRunner(workers=2, fresh=True).map(work("pid"), range(5))).values()
    assert len(set(pids)) == 5
    assert not any(_runs(pid) for pid in pids)


def test_no_more_workers_are_started_than_there_are_items(work):
    pids = values(LocalRunner(workers=8).map(work("pid"), [0])).values()
    assert len(pids) == 1


def test_what_an_item_prints_goes_to_stderr(work, capfd):
    list(LocalRunner(workers=1).map(work("say"), ["from the worker"]))
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == "from the worker\n"


def test_closing_the_iterator_early_stops_the_workers_even_in_the_middle_of_an_item(work):
    outcomes = LocalRunner(workers=2).map(work("pid_after"), [0, 0.5, 60, 60])
    pids = {next(outcomes).value, next(outcomes).value}  # meanwhile one of them has begun its long nap
    assert all(_runs(pid) for pid in pids)
    start = time.monotonic()
    close(outcomes)
    assert time.monotonic() - start < 10
    assert not any(_runs(pid) for pid in pids)


def test_a_deadline_ends_the_processes_that_the_item_started(work, tmp_path):
    (outcome,) = LocalRunner(workers=1, deadline_seconds=2).map(
        work("start_a_child_then_nap"), [str(tmp_path)]
    )
    assert isinstance(outcome.error, DeadlineExceeded)
    (pid,) = _named_pids(tmp_path)
    assert _soon(lambda: not _runs(pid))


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_an_interrupted_or_killed_program(end, tmp_path):
    (tmp_path / "work_of_this_test.py").write_text(WORK)
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import sys
        from apportion.jobs import LocalRunner
        from work_of_this_test import pid_then_nap

        if __name__ == "__main__":
            for outcome in LocalRunner(workers=2).map(pid_then_nap, [sys.argv[1]] * 100):
                print(outcome)
        """)
    )
    pids = tmp_path / "pids"
    pids.mkdir()
    process = subprocess.Popen(
        [sys.executable, program, pids], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    try:
        assert _soon(lambda: len(_named_pids(pids)) == 2)
        os.kill(process.pid, end)
        _, complaints = process.communicate(timeout=20)
        assert process.returncode == -end
        assert _soon(lambda: not any(_runs(pid) for pid in _named_pids(pids)))
        if end == signal.SIGINT:
            assert complaints.rstrip().endswith("KeyboardInterrupt")
            assert complaints.count("Traceback") == 1, "the workers say nothing"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("delay", [0, 0.03, 0.06, 0.12, 0.25])
def test_ctrl_c_while_workers_start_ends_everyone_with_one_traceback(delay, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import itertools
        from apportion.jobs import LocalRunner
        from apportion.testing.runner_checks import double

        if __name__ == "__main__":
            print("begun", flush=True)
            for outcome in LocalRunner(workers=3).map(double, itertools.count()):
                pass
        """)
    )
    process = subprocess.Popen(
        [sys.executable, program],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        process.stdout.readline()
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        # Workers hold this end of the pipe too, so its end is theirs.
        _, complaints = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGINT
    assert complaints.count("Traceback") == 1
    assert complaints.rstrip().endswith("KeyboardInterrupt")


def test_a_function_that_a_worker_cannot_load_is_an_error_of_the_map(tmp_path, monkeypatch):
    folder = tmp_path / "importable"
    folder.mkdir()
    module = folder / "loads_only_once.py"
    module.write_text("def function(item):\n    return item\n")
    monkeypatch.syspath_prepend(str(folder))
    function = __import__("loads_only_once").function
    module.write_text("raise OSError('this module is gone')\n")
    with pytest.raises(JobError, match=r"^A worker cannot load the function\. OSError: this module is gone$"):
        list(LocalRunner(workers=1).map(function, [1]))


def test_workers_that_die_while_they_load_the_function_are_given_up(tmp_path, monkeypatch):
    folder = tmp_path / "importable"
    folder.mkdir()
    module = folder / "dies_when_loaded.py"
    module.write_text("def function(item):\n    return item\n")
    monkeypatch.syspath_prepend(str(folder))
    function = __import__("dies_when_loaded").function
    module.write_text("import os\nos._exit(9)\n")
    with pytest.raises(WorkerCrashed, match=r"^3 workers in a row were lost .* exit status 9"):
        list(LocalRunner(workers=1).map(function, [1]))


def test_a_million_items_are_not_held():
    taken = 0

    def items():
        nonlocal taken
        for number in range(1_000_000):
            taken += 1
            yield number

    outcomes = LocalRunner(workers=2).map(double, items())
    for _ in range(100):
        next(outcomes)
    close(outcomes)
    assert taken <= 102


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"deadline_seconds": 0}, "deadline_seconds must be positive, not 0"),
        ({"deadline_seconds": float("nan")}, "deadline_seconds must be positive, not nan"),
        ({"memory_bytes": -5}, "memory_bytes must be positive, not -5"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(InvalidSetting) as caught:
        LocalRunner(**settings)
    assert str(caught.value) == message


def _named_pids(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _soon(true: Callable[[], bool]) -> bool:
    patience = time.monotonic() + 20
    while time.monotonic() < patience:
        if true():
            return True
        time.sleep(0.02)
    return False
