"""Which measured launches a learner of shares learns from: CGO17's, or your own measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from apportion.data.catalogue import dataset_called
from apportion.data.published.cgo17 import PAIRS
from apportion.errors import InvalidSetting
from apportion.learn.shares.campaign_rows import read_campaign
from apportion.learn.shares.kernel_table import KernelTable, read_cgo17


@dataclass(frozen=True)
class ShareData:
    """Launches that a CPU and a GPU both ran."""

    pair: str = "cgo17-nvidia"
    "Of devices: cgo17-nvidia or cgo17-amd; with `measurements`, what to call your own."
    folder: Path | None = None
    "Where CGO17's files are; by default what `apportion data path cgo17` says."
    measurements: Path | None = None
    "Instead of CGO17: the folder, or the Parquet file, of `apportion measure`."
    sources: Path | None = None
    "With `measurements`: the folder of the kernels that were measured."
    cpu: str = "cpu"
    "With `measurements`: the device whose share is learned, by its id or a part of its name."
    gpu: str = "gpu"
    "With `measurements`: the other device."

    def __post_init__(self) -> None:
        if self.measurements is None and self.pair not in PAIRS:
            raise InvalidSetting(
                f"{self.pair} is no pair of devices of CGO17 ({', '.join(PAIRS)}). Name your own "
                "measurements, and the folder of their sources, in data.measurements and data.sources"
            )
        if self.measurements is not None and self.sources is None:
            raise InvalidSetting("Measurements need the folder of their kernels: data.sources")

    @property
    def vectorized(self) -> bool:
        """Whether a compiler made vectors of single values in the IR; CGO17's archived IR has none."""
        return self.measurements is not None

    def read(self, say: Callable[[str], None]) -> KernelTable:
        """The launches, with the features of their kernels.

        Raises:
            UnreadableFile, MalformedInput, UnknownName: they are not there, or not whole.
        """
        if self.measurements is None:
            return read_cgo17(self.folder or dataset_called("cgo17").folder, self.pair)
        assert self.sources is not None
        kernels = sorted(self.sources.rglob("*.cl"))
        return read_campaign(self.measurements, kernels, self.pair, cpu=self.cpu, gpu=self.gpu, report=say)


DEFAULT_DATA = ShareData()
