"""The devices of this machine as they were found last, so that a prediction needs to start no driver."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from apportion.errors import ApportionError, UnreadableFile
from apportion.runtime.base import DeviceInfo, info_from
from apportion.settings import cache_folder, read_json, replace_file


@dataclass(frozen=True)
class KnownDevices:
    """What was found, and when."""

    found: date
    devices: tuple[DeviceInfo, ...]

    @property
    def calibrated(self) -> tuple[DeviceInfo, ...]:
        """Those whose speeds were measured."""
        return tuple(device for device in self.devices if device.calibration is not None)


def keep_devices(devices: Sequence[DeviceInfo]) -> None:
    """Keep what was found on this machine; where the cache cannot be written, nothing is kept."""
    told = {"found": date.today().isoformat(), "devices": [asdict(device) for device in devices]}
    text = json.dumps(told)
    path = _file()
    with suppress(OSError, UnicodeDecodeError, UnreadableFile):
        if not path.exists() or path.read_text("utf-8") != text:
            replace_file(path, text)


def known_devices() -> KnownDevices | None:
    """The devices that were found last; None where nobody looked, or what was kept is damaged."""
    path = _file()
    if not path.exists():
        return None
    try:
        told = read_json(path)
        return KnownDevices(date.fromisoformat(told["found"]), tuple(map(info_from, told["devices"])))
    except (ApportionError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _file() -> Path:
    # Machines of a cluster may share a home folder: each has a file of its own.
    node = "".join(letter if letter.isalnum() else "-" for letter in platform.node()) or "machine"
    return cache_folder("devices") / f"{node}.json"
