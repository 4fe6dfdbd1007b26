"""`python -m reproduction networks`: the thesis' networks, trained on all rows of CGO17, ready to answer.

How far a network is off for an application that it has not seen is taken from the ablation, which trained
the same network without each application in turn (experiments/ablation-units.tar.xz); where it was not
trained so, from folds of sources, and the model says that.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray

from apportion import __version__
from apportion.cli.show import note, print_table
from apportion.data.catalogue import dataset_called
from apportion.errors import InvalidSetting
from apportion.learn.base import list_again
from apportion.learn.shares.kernel_table import KernelTable, read_cgo17
from apportion.learn.shares.share_network import Form, ShareNetwork
from apportion.learn.shares.share_network_learner import (
    DEFAULT_FITTING,
    DEFAULT_NETWORK,
    exported,
    graphs_of,
    rows_of,
    score_in_words,
    scores_of,
    shares_said,
)
from apportion.learn.shares.stacks import Workshop, fit_networks
from apportion.program.vocabulary import Vocabulary

PAIR = "cgo17-nvidia"
UNITS = Path("experiments/ablation-units.tar.xz")
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class ShippedNetwork:
    """One of the networks, and the ablation's units that say how far it is off."""

    name: str
    form: Form
    units: str
    "What the names of the units' files begin with."
    protocol: str
    "Of the folds: application, or source where the first were not trained."


SHIPPED = (
    ShippedNetwork("gnn-load-balance", "regression", "skips-ext-readout-programl.regression", "application"),
    ShippedNetwork(
        "gnn-load-balance-classes",
        "classification",
        "skips-ext-readout-programl.classification",
        "application",
    ),
    ShippedNetwork(
        "gnn-device-mapping", "device-mapping", "programl-device-mapping.device-mapping", "source"
    ),
)


def networks(
    *only: str,
    data: Path | None = None,
    vocabulary: Path = Path("../shared/data/programl-vocabulary.csv"),
    units: Path = UNITS,
    out: Path = Path("runs/models"),
    ship: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Train the thesis' networks on all rows, and write them as models; half an hour of one core each.

    Args:
        only: names of the networks; by default all three.
        data: the folder of the CGO17 files; by default what `apportion data path cgo17` says.
        vocabulary: ProGraML's node texts.
        units: what the ablation finished.
        out: the folder in which each model gets a folder.
        ship: list them in the folder's manifest, too.
    """
    table = read_cgo17(data or dataset_called("cgo17").folder, PAIR)
    known = Vocabulary.read(vocabulary)
    rows = []
    for one in SHIPPED:
        if not only or one.name in only:
            model = trained(one, table, known, units)
            model.save(out / one.name)
            rows.append((one.name, model.about["score"]))
    print_table(("network", "score"), rows)
    if ship:
        list_again(out)


def trained(one: ShippedNetwork, table: KernelTable, vocabulary: Vocabulary, units: Path) -> ShareNetwork:
    """A network that learned from all rows of a table."""
    graphs, graph = graphs_of(table, kernels_alone=False)
    rows = rows_of(table, graphs, graph, vocabulary, one.form)
    network, fitted = fit_networks(
        Workshop(rows.graphs, rows.graph, "cpu"), rows, [np.arange(len(graph))], DEFAULT_NETWORK,
        DEFAULT_FITTING, seed=1, report=note,
    )  # fmt: skip
    said = np.array([shares_said(one.form, score) for score in fitted.scores[-1, 0]])
    return with_errors(one, table, vocabulary, units, network, np.unique(rows.graphs.text), said)


def with_errors(
    one: ShippedNetwork,
    table: KernelTable,
    vocabulary: Vocabulary,
    units: Path,
    network: Any,
    present: NDArray[np.int64],
    learned: Numbers,
) -> ShareNetwork:
    """A trained network with what the ablation says of its errors.

    Args:
        present: the numbers of the node texts that its embedding has rows for.
        learned: (N,) shares that it says of the rows that it learned from.
    """
    held_out = held_out_shares(units, one, len(table.examples))
    test = scores_of(table, held_out)
    folds = {
        "application": "application held out",
        "source": "source held out (leaks sizes; of the thesis' network for Table 4.2)",
    }[one.protocol]
    in_words = score_in_words(test).replace("application held out", folds)
    if one.form == "device-mapping":
        in_words = in_words.partition(", ")[2]  # an error of the share says nothing of it
    about = {
        "experiment": f"python -m reproduction networks {one.name}",
        "about": PAIR,
        "score": in_words,
        "data": table.digest,
        "vectorized": False,
        "settings": {**asdict(DEFAULT_NETWORK), **asdict(DEFAULT_FITTING), "seed": 1},
        "held_out": {"folds": folds, **test},
        "learned_mae": round(float(np.abs(learned - table.shares).mean()), 3),
        "learned_device": round(float(((learned < 50) == (table.to_gpu > 0)).mean()), 4),
        "version": __version__,
    }
    return exported(
        network, table, held_out, name=one.name, form=one.form, about=about, texts=vocabulary.texts,
        present=present, unknown=vocabulary.unknown,
    )  # fmt: skip


def held_out_shares(units: Path, one: ShippedNetwork, rows: int) -> Numbers:
    """(N,): shares in percent that the ablation's networks said of rows that they had not learned from.

    Raises:
        InvalidSetting: the ablation has none for some row.
    """
    said = np.full(rows, np.nan)
    with tarfile.open(units) as archive:
        for member in archive:
            if member.name.startswith(f"{one.units}.nvidia.{one.protocol}."):
                file = archive.extractfile(member)
                assert file is not None
                unit: Mapping[str, Any] = json.loads(file.read())
                for fold in unit["folds"]:
                    said[fold["test"]] = fold["last"]
    if np.isnan(said).any():
        raise InvalidSetting(
            f"{units} has no held-out answers of {one.units} for {int(np.isnan(said).sum())} rows"
        )
    if one.form == "regression":
        return np.asarray(np.clip(said, 0, 100))
    return 25 * said if one.form == "classification" else 100 * (1 - said)
