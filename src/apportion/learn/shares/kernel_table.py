"""Kernel tables: a dataset's examples as rows of features, with their labels, times and origins."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apportion.data.folds import Origins
from apportion.data.published.cgo17 import COUNTS, PAIRS, read, rows_of
from apportion.data.records import Example
from apportion.errors import UnknownName
from apportion.learn.shares.nearest_launches import EXTENTS
from apportion.program.kernel.features import (
    FEATURES,
    INPUTS,
    RANGE_INPUTS,
    fingerprint,
    grewe_ratios,
    inputs_of,
    vector_of,
)
from apportion.program.llvm import GraphOptions, graph_of_ir

FEATURE_SETS = ("inputs", "grewe", "code", "code+published", "code without numbers", "pre-trained")
"""What a learner sees.

`inputs`: bytes moved and work-group size, no code. `grewe`: the four combined features of published counts.
`code`: `program.features` of the IR, and inputs. `code+published`: those and the published counts. `code
without numbers`: without what constants and extents of arrays say. `pre-trained`: what a network that learned
data flow makes of the graph, and inputs."""


@dataclass(frozen=True, eq=False)
class KernelTable:
    """Examples of one pair of devices."""

    pair: str
    examples: tuple[Example, ...]
    rows_published: int
    "Rows of the dataset's table, of which `examples` are those with IR."
    code: NDArray[np.float64]  # (N, F)
    inputs: NDArray[np.float64]  # (N, I)
    origins: Origins
    others: NDArray[np.float64] | None = None  # (N,) the CPU's share beside another GPU, where it is known

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of `code` and `inputs`."""
        return (*FEATURES, *(*INPUTS, *RANGE_INPUTS)[: self.inputs.shape[1]])

    def features(self, name: str) -> NDArray[np.float64]:
        """(N, …): one of `FEATURE_SETS`."""
        if name not in FEATURE_SETS:
            raise UnknownName("set of features", name, FEATURE_SETS)
        if name == "inputs":
            return self.inputs
        if name == "grewe":
            return np.array([grewe_ratios(e.counts, e.bytes_moved, e.work_group) for e in self.examples])
        if name == "pre-trained":
            return np.hstack([self._embedded, self.inputs])
        both = np.hstack([self.code, self.inputs])
        if name == "code without numbers":
            return np.delete(both, [FEATURES.index(number) for number in sorted(EXTENTS)], axis=1)
        if name == "code":
            return both
        counts = [[e.counts[column] for column in COUNTS] for e in self.examples]
        return np.hstack([both, np.log1p(np.array(counts))])

    @cached_property
    def _embedded(self) -> NDArray[np.float64]:
        """(N, …); equal IR is read once."""
        from apportion.learn.shares.pretrained import (
            embeddings,  # torch, which no other set of features needs
        )

        place = {text: number for number, text in enumerate(dict.fromkeys(e.ir for e in self.examples))}
        rows = embeddings([graph_of_ir(text) for text in place])
        return rows[[place[example.ir] for example in self.examples]]

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """(N,): the CPU's share in percent."""
        return np.array([example.cpu_share for example in self.examples])

    @cached_property
    def every_share(self) -> NDArray[np.float64]:
        """(N, T): the CPU's share, and beside another GPU too where that is known."""
        return self.shares[:, None] if self.others is None else np.stack([self.shares, self.others], axis=1)

    @cached_property
    def to_gpu(self) -> NDArray[np.float64]:
        """(N,): 1 where the GPU is faster."""
        return np.array([float(example.device == "gpu") for example in self.examples])

    @cached_property
    def times(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(N,) each: on the CPU, on the GPU."""
        return (
            np.array([example.cpu_time for example in self.examples]),
            np.array([example.gpu_time for example in self.examples]),
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 over names, labels and features: what results rest on."""
        sum_ = hashlib.sha256()
        for example in self.examples:
            sum_.update(f"{example.name}|{example.cpu_time!r}|{example.gpu_time!r}\n".encode())
        sum_.update(np.ascontiguousarray(np.hstack([self.code, self.inputs])).tobytes())
        if self.others is not None:
            sum_.update(np.ascontiguousarray(self.others).tobytes())
        return sum_.hexdigest()


def read_cgo17(folder: Path, pair: str) -> KernelTable:
    """The CGO17 rows of a pair of devices, with the shares of the same rows beside the other GPU."""
    table = table_of(pair, list(read(folder, pair)), rows_of(folder, pair))
    (other,) = (name for name in PAIRS if name != pair)
    shares = {example.name: example.cpu_share for example in read(folder, other)}
    return replace(table, others=np.array([shares[example.name] for example in table.examples]))


def table_of(
    pair: str,
    examples: Sequence[Example],
    rows_published: int,
    *,
    work_items: Sequence[int] | None = None,
    kernels_alone: bool = False,
) -> KernelTable:
    """Examples with the features of their IR; equal IR is read once.

    Args:
        pair: of devices.
        examples: what was measured.
        rows_published: how many rows there were before those without IR were left out.
        work_items: of each example's range, where that is known.
        kernels_alone: take each example's kernel out of its IR, which holds others too.
    """
    described: dict[tuple[str, str | None], tuple[NDArray[np.float64], str]] = {}
    keys = [(example.ir, example.kernel if kernels_alone else None) for example in examples]
    for key, example in zip(keys, examples, strict=True):
        if key not in described:
            graph = graph_of_ir(example.ir, name=example.name, options=GraphOptions(function=key[1]))
            described[key] = vector_of(graph), fingerprint(graph)
    items = work_items if work_items is not None else [None] * len(examples)
    return KernelTable(
        pair,
        tuple(examples),
        rows_published,
        np.array([described[key][0] for key in keys]),
        np.array(
            [inputs_of(e.bytes_moved, e.work_group, count) for e, count in zip(examples, items, strict=True)]
        ),
        Origins(
            tuple(example.source for example in examples),
            tuple(described[key][1] for key in keys),
            tuple(example.application for example in examples),
            tuple(example.suite for example in examples),
        ),
    )
