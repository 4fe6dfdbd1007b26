"""A whole Slurm on this machine for tests: Debian's packages unpacked into a folder, no privilege needed.

Packages come from `apt-get download` once and are kept in the cache folder.
"""

from __future__ import annotations

import getpass
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from apportion.errors import JobError
from apportion.settings import cache_folder

PACKAGES = (
    "libdbus-1-3", "libhwloc15", "libjson-c5", "liblua5.1-0", "libmunge2", "libnuma1", "libreadline8",
    "libyaml-0-2",     "munge", "slurm-wlm-basic-plugins", "slurm-client", "slurmctld", "slurmd",
)  # fmt: skip
READY_SECONDS = 30.0
CONFIGURATION = """\
ClusterName=toy
SlurmctldHost=localhost
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={top}/run/munge.sock
SlurmctldPort={port}
PluginDir={library}/slurm-wlm
StateSaveLocation={top}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={top}/run/ctld.pid
SlurmdPidFile={top}/run/%n.pid
SlurmctldLogFile={top}/log/ctld.log
SlurmdLogFile={top}/log/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0
JobSubmitPlugins=lua
ReturnToService=2
SlurmdParameters=config_overrides
"""
EMPTY_SCRIPT = """\
function slurm_job_submit(job_desc, part_list, uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


def unpacked_slurm() -> Path:
    """The folder with Slurm's programs, fetched when they are not there.

    Raises:
        JobError: they cannot be had on this machine; the message says why.
    """
    place = cache_folder("slurm-22.05")
    if (place / "usr/sbin/slurmctld-wlm").exists():
        return place
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None or platform.machine() != "x86_64":
        raise JobError(
            "Slurm for tests comes from Debian's packages for x86-64, and this machine has no apt-get"
        )
    debs = place / "debs"
    debs.mkdir(exist_ok=True)
    done = subprocess.run(
        ["apt-get", "download", "-q", *PACKAGES], cwd=debs, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise JobError(
            f"apt-get cannot fetch Slurm: {(done.stderr.strip().splitlines() or ['it says nothing'])[-1]}"
        )
    for package in sorted(debs.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(place)], check=True)
    shutil.rmtree(debs)
    return place


class SlurmCluster:
    """Partitions of one virtual node each; a context manager, which stops every daemon when it is left.

    Args:
        folder: of this cluster; its configuration is in `etc`.
        partitions: name → processors; the first is the default.
        limits: name → most minutes of a job.
    """

    def __init__(
        self, folder: Path, partitions: Mapping[str, int], *, limits: Mapping[str, int] | None = None
    ) -> None:
        self.folder, self.partitions, self.limits = folder, dict(partitions), dict(limits or {})
        # Slurm makes sockets there, whose paths may have 107 characters at most.
        self._spool = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.packages = unpacked_slurm()
        self.library = self.packages / "usr/lib/x86_64-linux-gnu"
        self.configuration = folder / "etc"
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def environment(self) -> dict[str, str]:
        """For programs that talk to this cluster."""
        programs = f"{self.packages}/usr/bin:{self.packages}/usr/sbin:{os.environ['PATH']}"
        libraries = f"{self.library}/slurm-wlm:{self.library}:{self.packages}/lib/x86_64-linux-gnu"
        return {**os.environ, "SLURM_CONF": str(self.configuration / "slurm.conf"), "PATH": programs,
                "LD_LIBRARY_PATH": libraries}  # fmt: skip

    def __enter__(self) -> SlurmCluster:
        try:
            self._write()
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def run(self, *command: str, check: bool = True) -> str:
        """What a command of this cluster prints.

        Raises:
            JobError: it failed.
        """
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            raise JobError(f"{command[0]}: {done.stderr.strip()}")
        return done.stdout

    def wait_until_idle(self, seconds: float = 120.0) -> None:
        """Wait until no job waits or runs.

        Raises:
            JobError: one still does after so long.
        """
        until = time.monotonic() + seconds
        while self.run("squeue", "-h", check=False).strip():
            if time.monotonic() > until:
                raise JobError(f"Jobs are still there after {seconds:g} s: {self.run('squeue')}")
            time.sleep(0.1)

    def start_controller(self) -> None:
        """Start the controller, and wait until it answers."""
        self._start("slurmctld-wlm", "-D")
        self._until(lambda: "UP" in self.run("scontrol", "ping", check=False))

    def stop_controller(self) -> None:
        """End the controller as an administrator would."""
        controller = next(one for one in self._daemons if "slurmctld-wlm" in str(one.args))
        controller.send_signal(signal.SIGTERM)
        controller.wait(READY_SECONDS)
        self._daemons.remove(controller)

    def stop(self) -> None:
        """End every daemon, and what jobs have left running."""
        for daemon in reversed(self._daemons):
            with suppress(ProcessLookupError):
                daemon.send_signal(signal.SIGTERM)
        for daemon in self._daemons:
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()
        shutil.rmtree(self._spool, ignore_errors=True)

    def _write(self) -> None:
        for name in ("etc", "state", "log", "run"):
            (self.folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = [
            CONFIGURATION.format(
                user=getpass.getuser(),
                top=self.folder,
                spool=self._spool,
                library=self.library,
                port=_free_port(),
            )
        ]
        for name, processors in self.partitions.items():
            (self._spool / f"{name}1").mkdir(exist_ok=True)
            lines.append(
                f"NodeName={name}1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={_free_port()} "
                f"CPUs={processors}\n"
            )
        for number, name in enumerate(self.partitions):
            default = "YES" if number == 0 else "NO"
            lines.append(
                f"PartitionName={name} Nodes={name}1 MaxTime={self.limits.get(name, 60)} State=UP "
                f"Default={default}\n"
            )
        (self.configuration / "slurm.conf").write_text("".join(lines))
        (self.configuration / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.configuration / "job_submit.lua").write_text(EMPTY_SCRIPT)
        key = self.configuration / "munge.key"
        key.write_bytes(os.urandom(256))
        key.chmod(0o600)

    def _start_all(self) -> None:
        run, log = self.folder / "run", self.folder / "log"
        self._start(
            "munged", "--foreground", "--force", f"--key-file={self.configuration / 'munge.key'}",
            f"--socket={run / 'munge.sock'}", f"--pid-file={run / 'munged.pid'}",
            f"--log-file={log / 'munged.log'}", f"--seed-file={self.folder / 'state' / 'munge.seed'}",
        )  # fmt: skip
        self._until((run / "munge.sock").exists)
        self.start_controller()
        for name in self.partitions:
            self._start(
                "slurmd-wlm", "-D", "-N", f"{name}1", "-d", f"{self.packages}/usr/sbin/slurmstepd-wlm"
            )
        self._until(
            lambda: (
                len(self.run("sinfo", "-h", "-N", "-t", "idle", check=False).split("\n"))
                > len(self.partitions)
            )
        )

    def _start(self, *command: str) -> None:
        with (self.folder / "log" / f"{Path(command[0]).name}.out").open("ab") as out:
            self._daemons.append(
                subprocess.Popen(
                    command, env=self.environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
                )
            )

    def _until(self, ready: object) -> None:
        assert callable(ready)
        until = time.monotonic() + READY_SECONDS
        while not ready():
            if time.monotonic() > until:
                raise JobError(
                    f"Slurm is not ready after {READY_SECONDS:g} s; its logs are in {self.folder / 'log'}"
                )
            if any(daemon.poll() is not None for daemon in self._daemons):
                dead = next(daemon for daemon in self._daemons if daemon.poll() is not None)
                raise JobError(f"{_words(dead.args)} ended; its logs are in {self.folder / 'log'}")
            time.sleep(0.05)


def _words(command: object) -> str:
    return str(command[0]) if isinstance(command, Sequence) else str(command)


def _free_port() -> int:
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        port: int = there.getsockname()[1]
    return port
