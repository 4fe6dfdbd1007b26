"""Fitting several kernel networks of one shape at once, one for each fold: what `reproduce ablation` runs.

All folds take their batches from one shuffling of all rows: a fold's training rows in that order are as well
shuffled as by a shuffling of their own, and the folds' batches overlap, so that the graphs of a step are few.
An epoch takes one of a few shufflings that are prepared once and, on a GPU, recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from apportion.data.folds import Fold
from apportion.errors import InvalidSetting
from apportion.learn.nn.cuda_graphs import GraphRecorder
from apportion.learn.shares.colours import Colouring, GraphSet, Sharing
from apportion.learn.shares.kernel_network import KernelNetwork, RowInputs
from apportion.learn.shares.network_inputs import GraphPlans
from apportion.learn.shares.network_settings import Fitted, Fitting, KernelNetworkSettings, KernelRows


class Workshop:
    """Rows on a device, with the plans that were made for them; what was prepared once is used again."""

    def __init__(self, graphs: GraphSet, graph: NDArray[np.int64], device: str) -> None:
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise InvalidSetting("torch finds no CUDA device here. Use --device cpu.")
        # Texts that do not occur would only enlarge the embedding; nothing depends on their number.
        texts, text = np.unique(graphs.text, return_inverse=True)
        self.texts = len(texts)
        self.graphs = GraphSet(**{**vars_of(graphs), "text": text.astype(np.int64)})
        self.graph = graph
        self.positions = int(graphs.position.max(initial=0)) + 1
        self._colourings: dict[Any, Colouring] = {}
        self._plans: dict[Any, tuple[NDArray[np.int64], GraphPlans]] = {}

    def plans(
        self, rows: NDArray[np.int64], settings: KernelNetworkSettings, sharing: Sharing, models: int
    ) -> tuple[NDArray[np.int64], GraphPlans]:
        """The graphs of some rows: (R,) where each row's graph stands among them, and their plans."""
        used = np.unique(self.graph[rows])
        typed = settings.layers == "messages"
        kind = (settings.steps, typed, sharing, settings.both_ways)
        graphs = self.graphs.both_ways() if settings.both_ways else self.graphs
        key = (*kind, models, used.tobytes())
        if key not in self._plans:
            if kind not in self._colourings:
                self._colourings[kind] = Colouring.of(graphs, settings.steps, typed=typed, sharing=sharing)
            place = np.full(self.graphs.graphs, -1)
            place[used] = np.arange(len(used))
            plans = GraphPlans(
                graphs, self._colourings[kind], used,
                texts=self.texts, models=models, device=self.device, flows=settings.flows,
            )  # fmt: skip
            self._plans[key] = place[self.graph], plans
        return self._plans[key]


def vars_of(graphs: GraphSet) -> dict[str, Any]:
    """The fields of a set of graphs, without what was computed from them."""
    return {name: getattr(graphs, name) for name in GraphSet.__dataclass_fields__}


def network_for(
    workshop: Workshop, rows: KernelRows, settings: KernelNetworkSettings, seeds: Sequence[int]
) -> KernelNetwork:
    """Untrained networks, one for each seed."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    network = KernelNetwork(
        settings, generators, texts=workshop.texts, outputs=rows.outputs, pooled=rows.pooled,
        positions=workshop.positions, inputs=rows.inputs.shape[1],
    )  # fmt: skip
    return network.to(workshop.device)


def fit(
    workshop: Workshop,
    rows: KernelRows,
    folds: Sequence[Fold],
    settings: KernelNetworkSettings,
    fitting: Fitting,
    *,
    seed: int,
    report: Callable[[str], None] = lambda _: None,
) -> Fitted:
    """Fit one network per fold to its training rows, and score all rows on the way.

    Raises:
        InvalidSetting: the loss is not a number any more.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if fitting.precision == "tf32" else "highest")
    try:
        return _Fit(workshop, rows, [fold.train for fold in folds], settings, fitting, seed).run(report)
    finally:
        torch.set_float32_matmul_precision(before)


def fit_networks(
    workshop: Workshop,
    rows: KernelRows,
    training: Sequence[NDArray[np.int64]],
    settings: KernelNetworkSettings,
    fitting: Fitting,
    *,
    seed: int,
    report: Callable[[str], None] = lambda _: None,
) -> tuple[KernelNetwork, Fitted]:
    """One network for each set of training rows, side by side, and what they said of all rows on the way.

    Raises:
        InvalidSetting: the loss is not a number any more.
    """
    work = _Fit(workshop, rows, training, settings, fitting, seed)
    fitted = work.run(report)
    return work.network.eval(), fitted


class _Fit:
    def __init__(
        self,
        workshop: Workshop,
        rows: KernelRows,
        training: Sequence[NDArray[np.int64]],
        settings: KernelNetworkSettings,
        fitting: Fitting,
        seed: int,
    ) -> None:
        self.workshop, self.rows, self.training = workshop, rows, training
        self.settings, self.fitting, self.seed = settings, fitting, seed
        self.models, self.device = len(training), workshop.device
        on_gpu = self.device.type == "cuda"
        self.network = network_for(workshop, rows, settings, [1000 * seed + m for m in range(self.models)])
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), fitting.learning_rate, fused=on_gpu, capturable=on_gpu
        )
        self.loss_sum = torch.zeros(self.models, device=self.device)
        self.recorder: Callable[[int, Callable[[], Any]], Any] = (
            GraphRecorder() if on_gpu else lambda _, function: function()
        )

    def run(self, report: Callable[[str], None]) -> Fitted:
        fitting, random = self.fitting, np.random.default_rng([self.seed, 7])
        torch.manual_seed(self.seed)
        shufflings = [self._shuffling(random)]
        while len(shufflings) < max(2, fitting.prepared // len(shufflings[0])):
            shufflings.append(self._shuffling(random))
        whole, _ = self._inputs([np.arange(len(self.rows.graph))] * self.models)
        epochs, scores, losses, steps = [], [], [], 0
        started = time.monotonic()
        for epoch in range(1, fitting.epochs + 1):
            chosen = int(random.integers(len(shufflings)))
            batches = shufflings[chosen]
            self.network.train()
            for number in random.permutation(len(batches)).tolist():
                graphs_rows, labels = batches[number]
                key = 1 + chosen * 1000 + number
                self.recorder(key, partial(self._step, graphs_rows, labels))
                steps += 1
            if epoch % fitting.validate_every == 0 or epoch == fitting.epochs:
                self.network.eval()
                with torch.no_grad():
                    said = self.recorder(0, partial(self.network, *whole))
                    scores.append(said.clone())
                losses.append(self.loss_sum.clone())
                self.loss_sum.zero_()
                epochs.append(epoch)
                if epoch % (10 * fitting.validate_every) == 0:
                    report(f"epoch {epoch} of {fitting.epochs}, {time.monotonic() - started:.1f} s")
        seen = np.diff([0, *epochs])[:, None] * len(shufflings[0])
        means = torch.stack(losses).cpu().numpy() / seen
        if not np.isfinite(means).all():
            raise InvalidSetting("The loss is not a number any more. Lower learning_rate.")
        said = torch.stack(scores).float().cpu().numpy()
        return Fitted(np.array(epochs), said, means, steps, time.monotonic() - started)

    def _step(self, inputs: tuple[GraphPlans, RowInputs], labels: Tensor) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        scores = self.network(*inputs)
        losses = losses_of(scores, labels, inputs[1].counts.squeeze(2))
        losses.sum().backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.loss_sum.add_(losses.detach())

    def _shuffling(self, random: np.random.Generator) -> list[tuple[tuple[GraphPlans, RowInputs], Tensor]]:
        """The batches of an epoch: the networks' n-th batches side by side."""
        order = random.permutation(len(self.rows.graph))
        place = np.argsort(order)
        size = self.fitting.batch
        count = -(-min(len(train) for train in self.training) // size)
        parts = []
        for train in self.training:
            shuffled = train[np.argsort(place[train])]
            # The last batch takes what a fold has more than the others.
            parts.append(np.split(shuffled, [size * (i + 1) for i in range(count - 1)]))
        return [self._inputs([part[number] for part in parts]) for number in range(count)]

    def _inputs(self, chosen: Sequence[NDArray[np.int64]]) -> tuple[tuple[GraphPlans, RowInputs], Tensor]:
        """Inputs and labels of each network's rows; shorter lists are filled up."""
        union = np.unique(np.concatenate(chosen))
        place, plans = self.workshop.plans(union, self.settings, self.fitting.sharing, self.models)
        longest = max(len(rows) for rows in chosen)
        index = np.stack([np.append(rows, np.full(longest - len(rows), rows[0])) for rows in chosen])
        counts = np.stack([np.arange(longest) < len(rows) for rows in chosen])
        offset = plans.graphs * np.arange(self.models)[:, None]
        inputs = RowInputs(
            torch.from_numpy(place[index] + offset).to(self.device),
            torch.from_numpy(self.rows.inputs[index]).to(self.device),
            torch.from_numpy(counts[:, :, None].astype(np.float32)).to(self.device),
        )
        labels = torch.from_numpy(self.rows.labels[index]).to(self.device)
        return (plans, inputs), labels.long() if self.rows.classes else labels


def losses_of(scores: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """(M,) the mean loss of each network over its rows: squared error, or cross-entropy of classes."""
    if labels.is_floating_point():
        each = (scores.squeeze(2) - labels).square()
    else:
        each = F.cross_entropy(scores.transpose(1, 2), labels, reduction="none")
    return (each * counts).sum(1) / counts.sum(1)


def forward_milliseconds(
    workshop: Workshop,
    rows: KernelRows,
    asked: NDArray[np.int64],
    settings: KernelNetworkSettings,
    sharing: Sharing,
    *,
    repeats: int = 20,
) -> float:
    """The median time of one network's forward pass over some rows, its plans made before."""
    network = network_for(workshop, rows, settings, [0]).eval()
    place, plans = workshop.plans(asked, settings, sharing, 1)
    inputs = RowInputs(
        torch.from_numpy(place[asked][None]).to(workshop.device),
        torch.from_numpy(rows.inputs[asked][None]).to(workshop.device),
        torch.ones(1, len(asked), 1, device=workshop.device),
    )
    times = []
    with torch.inference_mode():
        for _ in range(repeats + 2):
            _wait(workshop.device)
            started = time.perf_counter()
            network(plans, inputs)
            _wait(workshop.device)
            times.append(1000 * (time.perf_counter() - started))
    return float(np.median(times[2:]))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def device_name() -> str:
    """What the GPU calls itself."""
    return torch.cuda.get_device_name()
