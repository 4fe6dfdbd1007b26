"""ShareNetworkLearner: the thesis' networks for load balancing and device mapping, trained with torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from apportion import __version__
from apportion.data.batch import Graph
from apportion.data.records import CLASSES
from apportion.errors import InvalidSetting
from apportion.learn.learner import TableLearner
from apportion.learn.metrics import over_groups
from apportion.learn.nn.layers import sinusoids
from apportion.learn.shares.colours import GraphSet
from apportion.learn.shares.kernel_network import KernelNetwork, Messages
from apportion.learn.shares.kernel_table import KernelTable
from apportion.learn.shares.load_balance import classes_of
from apportion.learn.shares.network_settings import Fitting, KernelNetworkSettings, KernelRows
from apportion.learn.shares.share_data import DEFAULT_DATA, ShareData
from apportion.learn.shares.share_forest_learner import familiarity_with
from apportion.learn.shares.share_network import Form, ShareNetwork
from apportion.learn.shares.shipping import calibration_of
from apportion.learn.shares.stacks import Workshop, fit_networks
from apportion.program.graph import ProgramGraph
from apportion.program.llvm import GraphOptions, graph_of_ir
from apportion.program.vocabulary import Vocabulary

POSITIONS = 64
"Positions of operands whose gates are kept; operands beyond are gated like the last."
DEFAULT_NETWORK = KernelNetworkSettings()
DEFAULT_FITTING = Fitting(epochs=200, validate_every=25, precision="full")
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class ShareNetworkExperiment:
    """A network, what it is to say, and the launches that it learns from."""

    data: ShareData = DEFAULT_DATA
    form: Form = "regression"
    "What it says: a share, one of five classes, or the faster device."
    name: str = ""
    "What to call the model; what it says and the pair of devices, where it is empty."
    hyperparameters: KernelNetworkSettings = DEFAULT_NETWORK
    fitting: Fitting = DEFAULT_FITTING
    held_out: int = 5
    "Groups of applications, each unknown to a network of its own that is trained for the errors alone."
    rare: int = 3
    "Node texts of fewer kernels than this are taken for unknown ones."
    seed: int = 1

    def __post_init__(self) -> None:
        if self.held_out < 2:
            raise InvalidSetting(f"held_out must be at least 2, not {self.held_out}")


class ShareNetworkLearner(TableLearner[ShareNetworkExperiment, KernelTable]):
    """Trains one network on all rows and one without each group of applications, side by side."""

    question: ClassVar[str] = "shares"
    settings_type: ClassVar[type[Any]] = ShareNetworkExperiment

    def data(self, say: Callable[[str], None]) -> tuple[KernelTable, str]:
        table = self.settings.data.read(say)
        return table, table.digest

    def fit(self, data: KernelTable, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
        settings, table = self.settings, data
        graphs, graph = graphs_of(table, kernels_alone=settings.data.measurements is not None)
        texts = usual_texts(graphs, settings.rare)
        rows = rows_of(table, graphs, graph, Vocabulary.numbered(texts), settings.form)
        group = groups_of(table, settings.held_out, settings.seed)
        everything = np.arange(len(graph))
        training = [everything, *(everything[group != number] for number in range(settings.held_out))]
        network, fitted = fit_networks(
            Workshop(rows.graphs, rows.graph, "cpu"), rows, training, settings.hyperparameters,
            settings.fitting, seed=settings.seed, report=say,
        )  # fmt: skip
        said = np.array(
            [shares_said(settings.form, fitted.scores[-1, 1 + group[row], row]) for row in everything]
        )
        test = scores_of(table, said)
        name = settings.name or f"gnn-{settings.form}-{settings.data.pair}"
        about = {
            "experiment": "apportion train",
            "about": settings.data.pair,
            "score": score_in_words(test),
            "data": table.digest,
            "vectorized": settings.data.vectorized,
            "settings": {
                **asdict(settings.hyperparameters),
                **asdict(settings.fitting),
                "seed": settings.seed,
            },
            "held_out": test,
            "version": __version__,
        }
        present = np.unique(rows.graphs.text)
        exported(
            network, table, said, name=name, form=settings.form, about=about,
            texts=texts, present=present, unknown=len(texts),
        ).save(folder)  # fmt: skip
        return {"test": test}


def graphs_of(table: KernelTable, *, kernels_alone: bool) -> tuple[list[ProgramGraph], NDArray[np.int64]]:
    """The program graphs of a table's kernels, each IR read once, and (N,) which one each row has."""
    place: dict[tuple[str, str | None], int] = {}
    found: list[ProgramGraph] = []
    for example in table.examples:
        key = example.ir, example.kernel if kernels_alone else None
        if key not in place:
            place[key] = len(found)
            found.append(graph_of_ir(example.ir, name=example.name, options=GraphOptions(function=key[1])))
    rows = [place[e.ir, e.kernel if kernels_alone else None] for e in table.examples]
    return found, np.array(rows)


def usual_texts(graphs: Sequence[ProgramGraph], least: int) -> tuple[str, ...]:
    """Node texts that at least so many graphs have, in order."""
    count: dict[str, int] = {}
    for graph in graphs:
        for text in set(graph.texts()):
            count[text] = count.get(text, 0) + 1
    return tuple(sorted(text for text, number in count.items() if number >= min(least, len(graphs))))


def rows_of(
    table: KernelTable,
    graphs: Sequence[ProgramGraph],
    graph: NDArray[np.int64],
    vocabulary: Vocabulary,
    form: Form,
) -> KernelRows:
    """What a network of this form learns from."""
    read = [
        Graph(
            vocabulary.ids(one).astype(np.int32),
            one.edges,
            one.edge_flow,
            one.edge_position.astype(np.int32),
        )
        for one in graphs
    ]
    sizes = np.array([[e.work_group, e.bytes_moved] for e in table.examples], np.float64)
    labels, classes = table.shares, 0
    if form == "classification":
        labels, classes = classes_of(table.shares).astype(np.float64), len(CLASSES)
    elif form == "device-mapping":
        labels, classes = table.to_gpu, 2
    inputs = np.log1p(sizes).astype(np.float32)
    return KernelRows(GraphSet.of(read), graph, inputs, labels.astype(np.float32), classes)


def groups_of(table: KernelTable, count: int, seed: int) -> NDArray[np.int64]:
    """(N,): a group for each row; an application is in one, and groups are about equally large."""
    names, place, size = np.unique(
        np.array(table.origins.application), return_inverse=True, return_counts=True
    )
    if len(names) < count:
        raise InvalidSetting(f"{len(names)} applications do not make {count} groups: lower held_out")
    total = np.zeros(count)
    of = np.zeros(len(names), np.int64)
    order = np.random.default_rng(seed).permutation(len(names))
    for number in sorted(order.tolist(), key=lambda number: -int(size[number])):
        of[number] = int(total.argmin())
        total[of[number]] += size[number]
    return np.asarray(of[place], np.int64)


def shares_said(form: Form, score: NDArray[Any]) -> float:
    """The CPU's share in percent that a row of scores says."""
    if form == "regression":
        return float(np.clip(score[0], 0, 100))
    if form == "classification":
        return float(CLASSES[int(score.argmax())])
    return 0.0 if score[1] > score[0] else 100.0


def scores_of(table: KernelTable, said: Numbers) -> dict[str, Any]:
    """What held-out answers are worth, with the middle 95 % of resampled applications."""
    application = np.array(table.origins.application)
    right = (said < 50) == (table.to_gpu > 0)
    return {
        "mae": asdict(over_groups(np.abs(said - table.shares), application)),
        "always_50_mae": round(float(np.abs(table.shares - 50).mean()), 2),
        "device_accuracy": asdict(over_groups(right.astype(np.float64), application)),
        "always_one_device": round(float(max(table.to_gpu.mean(), 1 - table.to_gpu.mean())), 4),
        "rows": len(said),
        "applications": len(set(application.tolist())),
    }


def score_in_words(test: Mapping[str, Any]) -> str:
    """One line of the scores, beside the trivial ones."""
    mae, device = test["mae"]["value"], test["device_accuracy"]["value"]
    trivial = f"always 50 %: {test['always_50_mae']:.1f}; one device: {test['always_one_device']:.2f}"
    return f"MAE {mae:.1f}, device {device:.2f}, application held out ({trivial})"


def exported(
    network: KernelNetwork,
    table: KernelTable,
    held_out: Numbers,
    *,
    name: str,
    form: Form,
    about: Mapping[str, Any],
    texts: Sequence[str],
    present: NDArray[np.int64],
    unknown: int,
) -> ShareNetwork:
    """The first network of a stack, so that NumPy can answer with it.

    Args:
        held_out: (N,) shares that were predicted without each row's application: they say how far it is off.
        texts: node texts by number.
        present: (T,) the numbers of the texts that the rows of the embedding stand for.
        unknown: the number of every other text.
    """
    order, arrays = network_arrays(network, present, unknown)
    error = np.abs(held_out - table.shares)
    if form == "device-mapping":
        about = {**about, "right": right_by_device(held_out, table)}
    return ShareNetwork(
        name, form, network.settings, tuple(texts[number] for number in order), arrays,
        calibration_of(error, np.array(table.origins.application)), familiarity_with(table), about,
    )  # fmt: skip


def right_by_device(held_out: Numbers, table: KernelTable) -> dict[str, float]:
    """Device → the part of the rows for which it was named, held out, that were faster there."""
    faster = {"cpu": table.to_gpu <= 0, "gpu": table.to_gpu > 0}
    named = {"cpu": held_out >= 50, "gpu": held_out < 50}
    return {
        device: round(float(faster[device][chosen].mean()), 4)
        for device, chosen in named.items()
        if chosen.any()
    }


def network_arrays(
    network: KernelNetwork, present: NDArray[np.int64], unknown: int
) -> tuple[list[int], dict[str, NDArray[np.float32]]]:
    """The numbers of the texts of the embedding's rows but the last, and the first network's weights."""
    embedding = _array(network.embedding)
    order = [int(number) for number in present.tolist() if number != unknown]
    row = {int(number): place for place, number in enumerate(present.tolist())}
    usual = embedding[row[unknown]] if unknown in row else embedding.mean(axis=0)
    arrays = {"embedding": np.vstack([*(embedding[row[number]] for number in order), usual])}
    for number, layer in enumerate(network.layers):
        if not isinstance(layer, Messages):
            arrays |= {f"{number}.{name}": _array(values) for name, values in layer.named_parameters()}
            continue
        hidden = network.settings.hidden
        with torch.no_grad():
            table_of_positions = sinusoids(POSITIONS, hidden).expand(len(network.embedding), -1, -1)
            gates = 2 * torch.sigmoid(layer.gate(table_of_positions.to(network.embedding.device)))
        arrays[f"{number}.gates"] = _array(gates)
        for part, values in (
            ("message.weight", layer.message.weight), ("message.bias", layer.message.bias),
            ("input.weight", layer.update.input_weight), ("input.bias", layer.update.input_bias),
            ("hidden.weight", layer.update.hidden_weight), ("hidden.bias", layer.update.hidden_bias),
        ):  # fmt: skip
            arrays[f"{number}.{part}"] = _array(values)
    if network.pooling is not None:
        arrays |= {f"pool.{name}": _array(values) for name, values in network.pooling.named_parameters()}
    for part in ("weight", "bias", "mean", "variance"):
        arrays[f"norm.{part}"] = _array(getattr(network.norm, part))
    for number, map_ in enumerate(network.readout.maps):
        arrays[f"readout.{number}.weight"] = _array(map_.weight)
        arrays[f"readout.{number}.bias"] = _array(map_.bias)
    return order, arrays


def _array(values: Any) -> NDArray[np.float32]:
    """The first network's part of a stacked tensor."""
    found: NDArray[np.float32] = values.detach().cpu().numpy()[0].astype(np.float32)
    return found
