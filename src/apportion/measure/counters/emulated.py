"""QEMU's user mode as a source: instructions and their mix, exact, at a few times the command's own time."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

import apportion
from apportion.errors import InvalidSetting, JobError
from apportion.measure.counters.command import Command, execute
from apportion.measure.counters.counter_source import CounterSource, Reading, reading_of_mix
from apportion.measure.counters.mix import MIX_COUNTERS, MixCounter

PLUGIN = "_qemu_blocks.so"


class QemuSource(CounterSource):
    """The command translated by QEMU, with our plugin counting the blocks that are executed."""

    name = "qemu"
    counts = dict.fromkeys(MIX_COUNTERS, "exact")
    slow = True
    slowdown = 8.0

    def measure(self, command: Command) -> Reading:
        emulator = f"qemu-{platform.machine()}"
        qemu = shutil.which(emulator)
        if qemu is None:
            raise InvalidSetting(
                f"{emulator} is not installed: apt install qemu-user, or conda install -c conda-forge qemu"
            )
        with tempfile.TemporaryDirectory(prefix="apportion-") as folder:
            out = Path(folder) / "blocks"
            words = [qemu, "-plugin", f"{_plugin()},out={out}", command.program, *command.words[1:]]
            ended = execute(command, words=words)
            if not out.exists():
                raise JobError(
                    f"{emulator} wrote no counts: it is built without plugins, or needs another version of "
                    "their interface than 1 (QEMU 4.2 to 8.2 have it)"
                )
            with out.open() as lines:
                mix = mix_of_blocks(lines)
        return reading_of_mix(mix.counters(), mix.unknown_share, ended.seconds)


def mix_of_blocks(lines: Iterable[str]) -> MixCounter:
    """The mix of the plugin's file: how often, and the bytes of each block."""
    mix = MixCounter()
    for line in lines:
        times, _, code = line.strip().partition(" ")
        if code:
            mix.add_block(bytes.fromhex(code), int(times))
    return mix


def _plugin() -> Path:
    """Our plugin: beside the native extension, wherever that is installed."""
    native = PathFinder.find_spec("apportion._native", apportion.__path__)
    folders = [Path(native.origin).parent] if native is not None and native.origin else []
    folders += [Path(folder) for folder in apportion.__path__]
    for folder in folders:
        if (folder / PLUGIN).exists():
            return folder / PLUGIN
    raise InvalidSetting(f"The plugin {PLUGIN} is not where apportion is installed; install it again")
