"""What launches taught, kept on disk: the next process begins where this one ended.

Kept under the kernel's code, its range and arguments, and the devices with their drivers: another version of
any of them is another launch. What was verified counts as verified, as it does within one process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import apportion
from apportion.coexecution.cuts import CostModel
from apportion.coexecution.expected_times import Belief
from apportion.coexecution.forecast import Forecast
from apportion.coexecution.launching import LaunchState
from apportion.coexecution.observations import PastLaunch
from apportion.errors import UnreadableFile
from apportion.runtime.base import DeviceInfo
from apportion.settings import cache_folder, replace_file

_KEPT_AS = 1
"Changes when what is kept changes its meaning."
_MOST_FILES = 2000
"Launches that are kept; with more, the oldest go, and a tenth besides. Each takes about a kilobyte. Chosen."
_MOST_NOTED = 8
"Launches that count as noted at the begin of a process: fewer than `FeedbackSettings.later`."
_DAMAGED = (OSError, ValueError, TypeError, KeyError, AttributeError)
"What reading a file raises that is not there, is damaged, or is of another time."
_FACTS = ("verified", "shareable", "conflicts", "obstacle", "probed")
_SETS = ("covered", "trusted")


@dataclass(frozen=True)
class LaunchMemory:
    """A folder of what launches taught."""

    place: Path | None = None
    "None: in the cache folder."

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self.place or cache_folder("launches")

    def recall(self, identity: Sequence[object], state: LaunchState) -> None:
        """Have a launch begin with what earlier ones taught; nothing where there were none.

        Args:
            identity: what makes the launch the one it is (`identity_of`).
        """
        with suppress(*_DAMAGED):
            kept = json.loads(self._file(identity).read_bytes())
            launches = [_launch(each) for each in kept["launches"]]
            forecast = _forecast(kept["forecast"]) if kept["forecast"] else None
            facts = {name: type(getattr(state, name))(kept[name]) for name in (*_FACTS, *_SETS)}
            if kept["merges"].keys() != state.merges.keys():
                return
            for name, value in facts.items():
                setattr(state, name, value)
            state.merges.update(kept["merges"])
            state.seen.launches = launches
            state.forecast = forecast
            # What counts little in a long run is tried anew: the machine may be another one than it was.
            state.seen.noted = min(int(kept["noted"]), _MOST_NOTED)

    def keep(self, identity: Sequence[object], state: LaunchState) -> None:
        """Write down what launches taught; nothing where there were none, or nothing can be written."""
        seen = state.seen
        if not seen.launches:
            return
        kept: dict[str, Any] = {name: getattr(state, name) for name in _FACTS}
        kept |= {name: sorted(getattr(state, name)) for name in _SETS}
        kept |= {"merges": state.merges, "noted": seen.noted}
        kept["launches"] = [_plain(launch) for launch in seen.launches]
        kept["forecast"] = asdict(state.forecast) if state.forecast is not None else None
        self._write(identity, kept)

    def recall_times(self, identity: Sequence[object], belief: Belief) -> list[str]:
        """Have what is believed of a kernel's times begin with what earlier launches of a session taught.

        Returns:
            The devices on which it was measured.
        """
        with suppress(*_DAMAGED):
            kept = json.loads(self._file(identity).read_bytes())
            mean, covariance = np.array(kept["mean"], float), np.array(kept["covariance"], float)
            measured = [str(name) for name in kept["measured"]]
            whole = mean.shape == belief.mean.shape and covariance.shape == belief.covariance.shape
            if kept["names"] == belief.names and whole and np.isfinite([*mean, *covariance.flat]).all():
                belief.mean = mean
                belief.covariance = covariance + belief.settings.noise**2 * np.eye(len(mean))
                return measured
        return []

    def keep_times(self, identity: Sequence[object], belief: Belief, measured: Sequence[str]) -> None:
        """Write down what is believed of a kernel's times, where it was measured anywhere."""
        if measured:
            found = {"mean": belief.mean.tolist(), "covariance": belief.covariance.tolist()}
            self._write(identity, {"names": belief.names, "measured": list(measured), **found})

    def forget(self, identity: Sequence[object]) -> None:
        """Forget what launches taught."""
        with suppress(OSError):
            self._file(identity).unlink(missing_ok=True)

    def _file(self, identity: Sequence[object]) -> Path:
        whole = (_KEPT_AS, apportion.__version__, *identity)
        return self.folder / f"{hashlib.sha256(repr(whole).encode()).hexdigest()[:24]}.json"

    def _write(self, identity: Sequence[object], kept: Mapping[str, Any]) -> None:
        with suppress(UnreadableFile, OSError):
            replace_file(self._file(identity), json.dumps(kept))

    def prune(self) -> None:
        """Remove the oldest, where there are too many; after everything was written, as it looks at all."""
        with suppress(UnreadableFile, OSError):
            files = list(self.folder.glob("*.json"))
            if len(files) > _MOST_FILES:
                oldest = sorted(files, key=lambda file: file.stat().st_mtime)
                for file in oldest[: len(files) - _MOST_FILES + _MOST_FILES // 10]:
                    file.unlink(missing_ok=True)


IN_CACHE = LaunchMemory()
"What a user's programs share."


def identity_of(devices: Sequence[DeviceInfo]) -> list[tuple[object, ...]]:
    """What of devices decides what a launch takes on them."""
    return [
        (info.id, info.name, info.platform, info.driver, info.version, info.compute_units, info.shares_memory)
        for info in devices
    ]


def _forecast(kept: Mapping[str, Any]) -> Forecast:
    models = {str(name): CostModel(**model) for name, model in kept["models"].items()}
    return Forecast(**{**kept, "models": models})


def _launch(kept: Mapping[str, Any]) -> PastLaunch:
    return PastLaunch(
        {str(name): float(share) for name, share in kept["shares"].items()}, float(kept["seconds"]),
        {str(name): float(seconds) for name, seconds in kept["devices"].items()},
        float(kept["merge_seconds"]), bool(kept["cold"]), bool(kept["switched"]),
    )  # fmt: skip


def _plain(launch: PastLaunch) -> Mapping[str, object]:
    return {
        "shares": dict(launch.shares), "seconds": launch.seconds, "devices": dict(launch.devices),
        "merge_seconds": launch.merge_seconds, "cold": launch.cold, "switched": launch.switched,
    }  # fmt: skip
