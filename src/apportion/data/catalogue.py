"""The datasets there are: where each comes from, its licence, its checksums, and where its files belong."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from apportion.data.archives import unpack
from apportion.errors import InvalidSetting, UnknownName, UnreadableFile
from apportion.settings import cache_folder, replace_file, whole_file

_CHUNK = 1 << 20
_FIRST, _UNPACKED = ".sha256", ".unpacked"
"Beside a file: the checksum of what came first, and of what was unpacked."
_ROUNDED = 1.5
"Published sizes are rounded: an archive may hold so many times as much unpacked."
_NOTHING_LEFT = 416
"What a server answers to a range that begins at the end of the file."


@dataclass(frozen=True)
class File:
    """One file of a dataset."""

    name: str
    sha256: str
    "Empty where none is known: then that of what came first is kept beside the file, and compared with."
    url: str = ""
    "Where it can be downloaded; empty where only by hand."
    by_hand: str = ""
    "How to get it where there is no address."
    size: int = 0
    "Bytes, about, as the authors say; 0 where they do not."
    unpacked: int | None = None
    """Of an archive that is unpacked beside itself: the bytes in it, about, as the authors say, or 0 where
    they do not; None for a file that is used as it is."""


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
    """`good`, `missing`, `wrong checksum`, or `unverified`: it is there, no checksum of it is known, and none
    was kept."""

    @property
    def in_words(self) -> str:
        """The state, and what it rests on."""
        if self.state == "good" and not self.file.sha256:
            return "good (as it came first: no checksum of it is known)"
        return self.state


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

_MEGA, _GIGA = 10**6, 10**9
_ZENODO = "https://zenodo.org/record/4247595/files/{name}?download=1"
_DEEPDATAFLOW = {
    "llvm_ir": (1_100 * _MEGA, 14 * _GIGA),
    "graphs": (3_500 * _MEGA, 67 * _GIGA),
    "labels_reachability": (81 * _MEGA, 25 * _GIGA),
    "labels_domtree": (66 * _MEGA, 18 * _GIGA),
    "labels_datadep": (67 * _MEGA, 26 * _GIGA),
    "labels_liveness": (119 * _MEGA, 24 * _GIGA),
    "labels_subexpressions": (69 * _MEGA, 26 * _GIGA),
    "vocab": (_MEGA, 4 * _MEGA),
}
"Packed and unpacked, as the authors' page says."
_TPUGRAPHS = "http://download.tensorflow.org/data/tpu_graphs/v0/{name}"
_SIDES = ("train", "valid", "test")
_TPU_FILES = (
    *(f"npz_tile_xla_{side}.tar" for side in _SIDES),
    *(
        f"npz_layout_{source}_{search}_{side}.tar"
        for source in ("xla", "nlp")
        for search in ("default", "random")
        for side in _SIDES
    ),
)

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
        Dataset(
            "tpugraphs",
            "tensor programs with configurations of their compiler, timed on TPUs: five collections",
            "Phothilimthana et al., TpuGraphs, NeurIPS 2023; addresses: google-research-datasets/tpu_graphs",
            "see LICENSE beside the files; the repository is Apache-2.0",
            tuple(File(name, "", _TPUGRAPHS.format(name=name), unpacked=0) for name in _TPU_FILES),
        ),
        Dataset(
            "deepdataflow",
            "469,086 files of LLVM IR, their program graphs, labels of five data-flow analyses, vocabularies",
            "Cummins et al., ProGraML, ICML 2021; Zenodo 4247595",
            "as Zenodo 4247595 says",
            tuple(
                File(
                    f"{part}_20.06.01.tar.bz2",
                    "",
                    _ZENODO.format(name=f"{part}_20.06.01.tar.bz2"),
                    size=size,
                    unpacked=unpacked,
                )
                for part, (size, unpacked) in _DEEPDATAFLOW.items()
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


def fetch(
    dataset: Dataset,
    folder: Path | None = None,
    *,
    source: Path | None = None,
    only: Sequence[str] = (),
    seconds: float = 30.0,
) -> Iterator[Condition]:
    """Download what is missing or wrong, going on where an earlier download stopped, and unpack archives.

    Each file is yielded as it is done.

    Args:
        folder: where to put them; by default where they belong.
        source: a folder that has the files, instead of the network.
        only: names of files; all when not given.

    Raises:
        UnreadableFile: the network, or a file there, is not to be had; raised once all files were tried, and
            the message says what to do by hand about each.
        InvalidSetting: what came has another checksum than it must have; it is not kept.
        MalformedInput, LimitExceeded: an archive is damaged, or larger unpacked than it must be.
    """
    place = folder or dataset.folder
    for name in only:
        if name not in {file.name for file in dataset.files}:
            raise UnknownName(f"file of {dataset.name}", name, [file.name for file in dataset.files])
    failed = []
    for condition in check(dataset, place):
        if only and condition.file.name not in only:
            continue
        if condition.state != "good":
            place.mkdir(parents=True, exist_ok=True)
            try:
                if condition.state != "unverified":
                    _get(condition, source, seconds)
                condition = _settled(condition)
            except UnreadableFile as error:
                failed.append(str(error))
                continue
        if condition.state == "good" and condition.file.unpacked is not None:
            _unpack(condition)
        yield condition
    if failed:
        raise UnreadableFile("\n".join(failed))


def instructions(condition: Condition) -> str:
    """What a person does about a file that is not there."""
    file = condition.file
    way = f"download {file.url}" if file.url else file.by_hand
    known = f" (SHA-256 {file.sha256})" if file.sha256 else ""
    return f"{way} and put it at {condition.path}{known}"


def _state(path: Path, sha256: str) -> str:
    if not path.is_file():
        return "missing"
    wanted = sha256 or _kept(path, _FIRST)
    if not wanted:
        return "unverified"
    return "good" if _digest(path) == wanted else "wrong checksum"


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _kept(path: Path, ending: str) -> str:
    """The checksum that is kept beside a file, or nothing."""
    try:
        return _beside(path, ending).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _get(condition: Condition, source: Path | None, seconds: float) -> None:
    """A file from a folder, or from the network, where either has it."""
    file, path = condition.file, condition.path
    if source is not None:
        if not (source / file.name).is_file():
            raise UnreadableFile(f"{source} has no {file.name}: {instructions(condition)}")
        with whole_file(path) as part:
            shutil.copyfile(source / file.name, part)
            wanted = file.sha256 or _kept(path, _FIRST)
            if wanted and _digest(part) != wanted:
                raise InvalidSetting(
                    f"{source / file.name} does not have the checksum {wanted}; it was not taken"
                )
    elif file.url:
        _download(file, path, seconds)


def _settled(condition: Condition) -> Condition:
    """How a file is now; where no checksum is known, what came first is what it must be from now on."""
    file, path = condition.file, condition.path
    if path.is_file() and not file.sha256 and not _kept(path, _FIRST):
        replace_file(_beside(path, _FIRST), _digest(path) + "\n")
    return Condition(file, path, _state(path, file.sha256))


def _unpack(condition: Condition) -> None:
    """Unpack an archive beside itself, once."""
    file, path = condition.file, condition.path
    digest = file.sha256 or _kept(path, _FIRST)
    if _kept(path, _UNPACKED) != digest:
        unpack(path, path.parent, most=round(_ROUNDED * (file.unpacked or 0)))
        replace_file(_beside(path, _UNPACKED), digest + "\n")


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
    wanted_sum = file.sha256 or _kept(path, _FIRST)
    if wanted_sum and _digest(part) != wanted_sum:
        part.unlink()
        raise InvalidSetting(f"{file.url} does not have the checksum {wanted_sum}; it was not kept")
    part.replace(path)
