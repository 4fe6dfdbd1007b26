"""The datasets there are: where each comes from, its licence, its checksums, and where its files belong."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from apportion.errors import InvalidSetting, UnknownName, UnreadableFile
from apportion.settings import cache_folder

_CHUNK = 1 << 20
_NOTHING_LEFT = 416
"What a server answers to a range that begins at the end of the file."


@dataclass(frozen=True)
class File:
    """One file of a dataset."""

    name: str
    sha256: str
    url: str = ""
    "Where it can be downloaded; empty where only by hand."
    by_hand: str = ""
    "How to get it where there is no address."


@dataclass(frozen=True)
class Dataset:
    """A published dataset."""

    name: str
    what: str
    origin: str
    licence: str
    files: tuple[File, ...]

    @property
    def folder(self) -> Path:
        """Where its files belong: `$APPORTION_DATA/NAME`, else in the cache."""
        root = os.environ.get("APPORTION_DATA")
        return Path(root) / self.name if root else cache_folder("data", self.name)


@dataclass(frozen=True)
class Condition:
    """How a file of a dataset was found to be."""

    file: File
    path: Path
    state: str
    "`good`, `missing`, or `wrong checksum`."


_CUMMINS = (
    "https://raw.githubusercontent.com/ChrisCummins/phd/65643fa5ad6769ce4678535cd2f9f37b6a467c45/"
    "datasets/opencl/device_mapping/"
)

_AIWC = "export full_dat.Rda of the authors' artefact as docs/howto/relative-performance.md says"

_CHAI = "take {name}.ll of the kernels of the load balancer in the thesis' repository pyg_programl"
_CHAI_SUMS = {
    "cedd": "e150f23bc47f420be814975bc982f3574bf71b8c9fd3051b3b8f197003f8c042",
    "hsti": "b39cf27b4c183f9e9675f83362ec1c4c5a31b87e4a2aa548b3e793f5aedf9586",
    "hsto": "23ec6ee7941e353eb2547666fc3b8bde3d5b800b650ec4d2418a7b61dc432bbb",
    "pad": "a3b0627de853db596630a8dee267f5458a5044b2bad4da7bc86fc3a5c984810e",
    "rscd": "063c9f5a82094fb0696c4b468a391bd53d3e3c0424c35eee327b0cd31ffe75da",
    "sc": "9bb9d5b8876f1df870524d8c5e8540962977fcf845242c8c4392ab82fcaab678",
    "trns": "ff699777abfc65fbbfbdbcbb54f270df32a03c7af671479a9a193827df27c368",
}

CATALOGUE = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            "cgo17",
            "680 OpenCL kernels with inputs, timed on a CPU and on an AMD and an NVIDIA GPU; LLVM IR of each",
            "Cummins et al., End-to-end Deep Learning of Optimization Heuristics, PACT 2017; IR: IR2Vec",
            "tables GPL-3.0; IR Apache-2.0 with LLVM exceptions",
            (
                File(
                    "amd.csv",
                    "0076271192aa9a0a7c21aa9a637e34cd4460f8e21e756215dd23ffb2ae62dc62",
                    _CUMMINS + "amd.csv",
                ),
                File(
                    "nvidia.csv",
                    "095c1ccef333e0a65e0e70b3ebde0aef851b61528ec46496a5d1687905abd099",
                    _CUMMINS + "nvidia.csv",
                ),
                File(
                    "kernels_ir.tar.gz",
                    "206083ce85e5b8c3046530cc2288894a2133d0de986c476f42ab71341bf98e51",
                    by_hand="take the archive kernels_ir of the device-mapping experiment at "
                    "https://github.com/IITH-Compilers/IR2Vec",
                ),
            ),
        ),
        Dataset(
            "chai",
            "LLVM IR of seven of the eight kernels whose shares the thesis measured (its Table 5.3)",
            "CHAI, OpenCL-D, compiled by clang 10 for the thesis; shares: experiments/unseen-chai.csv",
            "kernels University of Illinois/NCSA; compiled files Apache-2.0",
            tuple(
                File(f"{name}.ll", sha256, by_hand=_CHAI.format(name=name))
                for name, sha256 in _CHAI_SUMS.items()
            ),
        ),
        Dataset(
            "aiwc",
            "100 OpenCL kernels with inputs, 31 architecture-independent counters each, timed on 15 devices",
            "Johnston et al., OpenCL Performance Prediction using Architecture-Independent Features, 2018",
            "MIT",
            tuple(
                File(name, sha256, by_hand=_AIWC)
                for name, sha256 in (
                    ("aiwc_tidy.parquet", "2638480fed129559a7f089fba81db9930c1722a7dbe0c8eb3b33207952e0f16f"),
                    ("aiwc_runs.parquet", "f191b4e3887a4d22c667378c029e2da623e0f3f365952392d39c960395ce67cb"),
                    ("aiwc_devices.csv", "80da75392e04265a6135969fb89312ecf2269b5a53162e7de97e5fefcbd34b01"),
                )
            ),
        ),
    )
}


def dataset_called(name: str) -> Dataset:
    """The dataset of that name.

    Raises:
        UnknownName: there is none.
    """
    if name not in CATALOGUE:
        raise UnknownName("dataset", name, CATALOGUE)
    return CATALOGUE[name]


def check(dataset: Dataset, folder: Path | None = None) -> list[Condition]:
    """How each file of a dataset is found."""
    place = folder or dataset.folder
    return [
        Condition(file, place / file.name, _state(place / file.name, file.sha256)) for file in dataset.files
    ]


def fetch(dataset: Dataset, folder: Path | None = None, *, seconds: float = 30.0) -> Iterator[Condition]:
    """Download what is missing or wrong, going on where an earlier download stopped; each file as it is done.

    Raises:
        UnreadableFile: the network, or a file there, is not to be had; raised once all files were tried, and
            the message says what to do by hand about each.
        InvalidSetting: what came has another checksum than it must have; it is not kept.
    """
    place = folder or dataset.folder
    failed = []
    for condition in check(dataset, place):
        if condition.state != "good" and condition.file.url:
            place.mkdir(parents=True, exist_ok=True)
            try:
                _download(condition.file, condition.path, seconds)
            except UnreadableFile as error:
                failed.append(str(error))
                continue
            condition = Condition(condition.file, condition.path, "good")
        yield condition
    if failed:
        raise UnreadableFile("\n".join(failed))


def instructions(condition: Condition) -> str:
    """What a person does about a file that is not there."""
    file = condition.file
    way = f"download {file.url}" if file.url else file.by_hand
    return f"{way} and put it at {condition.path} (SHA-256 {file.sha256})"


def _state(path: Path, sha256: str) -> str:
    if not path.is_file():
        return "missing"
    return "good" if _digest(path) == sha256 else "wrong checksum"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(file: File, path: Path, seconds: float) -> None:
    part = path.with_name(path.name + ".part")
    there = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(file.url, headers={"Range": f"bytes={there}-"} if there else {})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            goes_on = there and answer.status == 206
            wanted = int(answer.headers.get("Content-Length") or 0)
            came = 0
            with part.open("ab" if goes_on else "wb") as written:
                while chunk := answer.read(_CHUNK):
                    came += written.write(chunk)
        # A connection that closes too early looks like the end of the file to whoever reads in pieces.
        if came < wanted:
            raise OSError(
                f"broken off after {came:,} of {wanted:,} bytes; the same command goes on from there"
            )
    except (OSError, http.client.HTTPException) as error:
        # Nothing is left to send of a download that was stopped just before it was put in its place.
        if not (isinstance(error, urllib.error.HTTPError) and error.code == _NOTHING_LEFT and there):
            reason = getattr(error, "reason", error)
            by_hand = instructions(Condition(file, path, "missing"))
            raise UnreadableFile(
                f"Cannot fetch {file.name} ({reason}). On a machine with a network, {by_hand}."
            ) from error
    if _digest(part) != file.sha256:
        part.unlink()
        raise InvalidSetting(f"{file.url} does not have the checksum {file.sha256}; it was not kept")
    part.replace(path)
