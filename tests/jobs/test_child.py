"""Child processes with limits: real processes, the real kernel."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from apportion.errors import DeadlineExceeded, InvalidSetting, JobError, LimitExceeded, WorkerCrashed
from apportion.jobs import child, landlock
from apportion.jobs.child import ChildLimits

MACHINE = [Path(path) for path in ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", sys.base_prefix)]
"What a shell and a Python need in order to start."

needs_landlock = pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")


def shell(script: str, **settings: object) -> child.Finished:
    return child.run(["/bin/sh", "-c", script], programs=MACHINE, **settings)  # type: ignore[arg-type]


def python(script: str, **settings: object) -> child.Finished:
    command = [os.path.realpath(sys.executable), "-I", "-S", "-c", script]
    return child.run(command, programs=MACHINE, **settings)  # type: ignore[arg-type]


def gone(argument: str) -> bool:
    """Whether, within two seconds, no process is left with this argument on its command line."""
    for _ in range(200):
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                lines.append(path.read_bytes().split(b"\0"))
        if not any(argument.encode() in line for line in lines):
            return True
        time.sleep(0.01)
    return False


def test_a_command_gives_back_its_status_and_what_it_wrote() -> None:
    done = shell("cat; echo wrong >&2; exit 7", stdin=b"in and out")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"in and out", b"wrong\n")
    assert 0 < done.seconds < 10


def test_megabytes_go_in_and_out_without_getting_stuck() -> None:
    data = os.urandom(5 << 20)
    assert shell("cat", stdin=data).stdout == data


def test_a_command_need_not_read_its_input() -> None:
    assert shell("exit 3", stdin=b"x" * (5 << 20)).returncode == 3


def test_the_environment_is_empty_and_the_folder_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    first, second = shell("env; pwd; ls -A; echo kept > here"), shell("pwd")
    assert b"hunter2" not in first.stdout
    assert first.stdout.splitlines()[-1] != second.stdout.strip()
    folder = Path(second.stdout.decode().strip())
    assert folder != Path.cwd()
    assert not folder.exists()


def test_variables_that_are_given_are_seen() -> None:
    assert shell('printf %s "$COLOUR"', environment={"COLOUR": "blue"}).stdout == b"blue"


def test_a_deadline_ends_the_command_and_everything_it_started() -> None:
    start = time.monotonic()
    nap = f"61.{os.getpid()}"  # nobody else sleeps as long
    with pytest.raises(DeadlineExceeded, match=r"^sh took longer than 0\.5 seconds and was stopped$"):
        shell(f"sleep {nap} & sleep {nap}", limits=ChildLimits(seconds=0.5))
    assert time.monotonic() - start < 10
    assert gone(nap)


def test_a_deadline_counts_also_while_the_command_can_be_fed() -> None:
    for _ in range(20):
        with pytest.raises(DeadlineExceeded):
            shell("cat", stdin=b"1", limits=ChildLimits(seconds=1e-6))


def test_what_a_command_leaves_running_is_ended_with_it() -> None:
    start = time.monotonic()
    nap = f"62.{os.getpid()}"
    assert shell(f"sleep {nap} & echo started").stdout == b"started\n"
    assert time.monotonic() - start < 10
    assert gone(nap)


def test_processor_time_is_limited_too() -> None:
    assert shell("read line; ulimit -t", stdin=b"x", limits=ChildLimits(seconds=6.5)).stdout.strip() == b"7"


def test_output_is_limited() -> None:
    with pytest.raises(LimitExceeded, match=r"^sh wrote more than 100,000 bytes and was stopped$"):
        shell("while :; do echo yes yes yes; done", limits=ChildLimits(output_bytes=100_000))


def test_errors_count_as_output() -> None:
    with pytest.raises(LimitExceeded, match="wrote more than"):
        shell("while :; do echo no >&2; done", limits=ChildLimits(output_bytes=100_000))


def test_files_are_limited_like_output() -> None:
    script = "open('big', 'wb').write(bytes(len(input()) * 200_000))"
    done = python(script, stdin=b"x", limits=ChildLimits(output_bytes=100_000))
    assert b"OSError: [Errno 27] File too large" in done.stderr


def test_memory_is_limited() -> None:
    script = "data = bytearray(len(input()) * (400 << 20))"
    assert python(script, stdin=b"x").returncode == 0
    assert b"MemoryError" in python(script, stdin=b"x", limits=ChildLimits(memory_bytes=300 << 20)).stderr


def test_dying_for_want_of_memory_is_told_from_other_deaths() -> None:
    with pytest.raises(LimitExceeded, match="needed more than 2,147,483,648 bytes of memory"):
        shell("echo 'LLVM ERROR: out of memory' >&2; kill -ABRT $$")
    with pytest.raises(WorkerCrashed, match=r"^sh crashed \(Aborted\)$"):
        shell("kill -ABRT $$")


def test_a_crash_is_named_also_when_it_is_reported_by_a_status() -> None:
    with pytest.raises(WorkerCrashed, match=r"^sh crashed \(Segmentation fault\)$"):
        shell("kill -SEGV $$")
    with pytest.raises(WorkerCrashed, match=r"^sh crashed \(Segmentation fault\)$"):
        shell("exit 139")


def test_a_crash_leaves_no_core_file() -> None:
    assert shell("read line; ulimit -c", stdin=b"x").stdout.strip() == b"0"


def test_a_command_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"Cannot start .*absent"):
        child.run([str(tmp_path / "absent")])


def test_limits_must_be_positive() -> None:
    with pytest.raises(InvalidSetting, match="seconds must be more than 0, not 0"):
        ChildLimits(seconds=0)


@needs_landlock
def test_only_given_files_can_be_read(tmp_path: Path) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    other.mkdir()
    (allowed / "file").write_text("for you")
    (other / "file").write_text("not for you")
    (allowed / "link").symlink_to(other / "file")
    done = shell(
        f"cat {allowed}/file; ls {other}; "
        f"cat {other}/file {allowed}/link {allowed}/../other/file /etc/passwd",
        readable=[allowed],
    )
    assert done.file_access_restricted
    assert done.stdout == b"for you"
    assert done.stderr.count(b"Permission denied") == 5


@needs_landlock
def test_given_files_can_be_neither_written_nor_executed(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    done = shell(f"echo more >> {program}; rm {program}; {program}", readable=[tmp_path])
    assert done.stdout == b""
    assert program.read_text() == "#!/bin/sh\necho ran\n"


@needs_landlock
def test_there_is_no_network() -> None:
    if landlock.version() < 4:
        pytest.skip("Landlock restricts TCP from version 4 on")
    done = python("import socket; socket.socket().bind(('127.0.0.1', 0))")
    assert b"PermissionError" in done.stderr


@needs_landlock
def test_the_caller_keeps_its_rights(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    shell("true")
    assert secret.read_text() == "mine"


def test_many_threads_may_run_commands_at_once() -> None:
    results: list[bytes] = []

    def work(number: int) -> None:
        results.append(shell(f"echo {number}").stdout)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [f"{number}\n".encode() for number in range(8)]


def test_a_kernel_without_landlock_is_admitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("open")
    monkeypatch.setattr(landlock, "version", lambda: 0)
    done = shell(f"cat {tmp_path}/file")
    assert done.stdout == b"open"
    assert not done.file_access_restricted
