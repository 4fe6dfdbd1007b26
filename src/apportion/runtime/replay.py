"""Replaying measurements: for tests, for demonstrations, and for machines without the device."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from apportion.errors import MalformedInput, UnknownName, UnreadableFile
from apportion.runtime.base import Device, DeviceInfo, Launch, Timing, info_from


def key_of(launch: Launch) -> str:
    """What a recording is found by: the source, its options, the kernel and the range; not the arguments."""
    digest = hashlib.sha256(f"{launch.options}\0{launch.source}".encode()).hexdigest()[:16]
    sizes = launch.span.in_words
    return f"{launch.kernel} {sizes[0]}/{sizes[1]} {digest}"


class RecordedDevice(Device):
    """A device that answers with the timings another one had; it computes nothing."""

    def __init__(self, info: DeviceInfo, timings: Mapping[str, Timing]) -> None:
        self.info = info
        self.timings = dict(timings)

    def run(self, launch: Launch) -> Timing:
        """The recorded timing of this launch; its arrays stay as they are.

        Raises:
            UnknownName: no such launch was recorded.
        """
        key = key_of(launch)
        if key not in self.timings:
            raise UnknownName("recorded launch", key, self.timings)
        return self.timings[key]

    def close(self) -> None:
        """There is nothing to let go of."""

    @classmethod
    def load(cls, path: Path) -> RecordedDevice:
        """A device from a file that a `Recorder` wrote.

        Raises:
            UnreadableFile: the file is not there.
            MalformedInput: it is no recording.
        """
        try:
            text = path.read_text()
        except OSError as error:
            raise UnreadableFile(f"Cannot read the recording {path}: {error.strerror}") from error
        try:
            values = json.loads(text)
            timings = {key: Timing(**timing) for key, timing in values["timings"].items()}
            return cls(info_from(values["device"]), timings)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedInput(f"not a recording of a device ({error})", file=str(path)) from error


class Recorder(Device):
    """A device that remembers the timings of what it runs."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.info = device.info
        self.timings: dict[str, Timing] = {}

    def run(self, launch: Launch) -> Timing:
        """Run on the device, and remember how long it took."""
        timing = self.device.run(launch)
        self.timings[key_of(launch)] = timing
        return timing

    def save(self, path: Path) -> None:
        """Write what was recorded as JSON."""
        values = {
            "device": dataclasses.asdict(self.info),
            "timings": {key: dataclasses.asdict(timing) for key, timing in self.timings.items()},
        }
        try:
            path.write_text(json.dumps(values, indent=1))
        except OSError as error:
            raise UnreadableFile(f"Cannot write the recording {path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the device."""
        self.device.close()
