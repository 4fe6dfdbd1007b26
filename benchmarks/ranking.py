"""Scoring configurations of a graph: every node for each of them, against what they reach alone.

    python -m benchmarks ranking
    python -m benchmarks.ranking --device cuda --out ranking.json

Graphs are drawn with the shape of published ones: 1.6 operands a node, most of them near, some constants with
many readers, two nodes in a hundred configurable with two to nine layouts each. `plain` computes the state of
every node for every configuration, with the same fused sums over neighbours; `once` is the network as it is.
Scores and gradients are compared before anything is timed. A step is scores, ListMLE and its gradient.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from apportion.data.configurations import ConfiguredGraph
from apportion.learn.nn.cuda_graphs import GraphRecorder
from apportion.learn.nn.losses import list_mle
from apportion.learn.ranking.ranking_inputs import GraphInputs, inputs_of, whole_graph
from apportion.learn.ranking.ranking_network import RankingNetwork
from apportion.learn.ranking.ranking_settings import SLOPE, RankingSettings

SHAPES = {
    "small": ((600, 20, 16),),
    "cpu": ((3_163, 62, 64), (12_064, 240, 16)),
    "cuda": ((12_064, 240, 64), (43_615, 360, 64), (12_064, 240, 128), (43_615, 360, 128), (5_000, 100, 64)),
}
"Nodes, configurable nodes, configurations scored together."
TOLERANCE = 1e-4


def main() -> None:
    arguments = _arguments()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    rows = []
    for nodes, configurable, configurations in SHAPES[arguments.shapes or device.type]:
        for model, settings in MODELS.items():
            row = {
                "model": model,
                **measure(nodes, configurable, configurations, settings, device, arguments.seconds),
            }
            rows.append(row)
            _print(row)
            if arguments.out:
                report = {"device": _name(device), "torch": torch.__version__, "rows": rows}
                arguments.out.write_text(json.dumps(report, indent=1))


MODELS = {
    "mean": RankingSettings(width=64),
    "sage": RankingSettings(width=64, convolution="sage", norm="graph", layout_embedding=True),
}


def measure(
    nodes: int,
    configurable: int,
    configurations: int,
    settings: RankingSettings,
    device: torch.device,
    seconds: float,
) -> dict[str, Any]:
    """Times, memory and differences of both ways on one graph."""
    stored = synthetic_graph(nodes, configurable, configurations, seed=nodes)
    torch.manual_seed(0)
    network = RankingNetwork(settings).to(device)
    fit_scaling(network, stored)
    inputs = inputs_of(stored, whole_graph(stored), settings, device)
    rows = inputs.rows_of(np.asarray(stored.codes))
    runtime = torch.from_numpy(stored.truth).float().to(device)
    found: dict[str, Any] = {
        "nodes": nodes, "configurable": configurable, "configurations": configurations,
        "reached": [layer.receivers for layer in inputs.layers], **compare(network, inputs, rows, runtime),
    }  # fmt: skip
    ways: dict[str, Callable[[], Tensor]] = {
        "plain": lambda: plain_scores(network, inputs, rows),
        "once": lambda: network(inputs, rows),
    }
    for name, scores in ways.items():

        def score(scores: Callable[[], Tensor] = scores) -> None:
            with torch.inference_mode():
                scores()

        def step(scores: Callable[[], Tensor] = scores) -> None:
            network.zero_grad(set_to_none=True)
            list_mle(scores()[:, None], runtime).backward()

        for kind, action in (("score", score), ("step", step)):
            peak = peak_bytes(action, device)
            milliseconds = clock(action, device, seconds=seconds)
            found[f"{name}_{kind}_us"] = 1000 * milliseconds / configurations
            found[f"{name}_{kind}_bytes"] = peak
            if device.type == "cuda":
                milliseconds = clock(recorded(action), device, seconds=seconds)
                found[f"{name}_{kind}_recorded_us"] = 1000 * milliseconds / configurations
    return found


def recorded(action: Callable[[], None]) -> Callable[[], None]:
    """The action as a CUDA graph: what the GPU takes, without what the host takes to launch it."""
    recorder = GraphRecorder()
    return lambda: recorder("action", action)


def plain_scores(network: RankingNetwork, inputs: GraphInputs, rows: Tensor) -> Tensor:
    """What the network says, computed for every node and configuration: its settings without attention."""
    described = (inputs.features - network.mean) / network.deviation
    base = network.enter(torch.cat([described, network.opcode(inputs.opcode)], 1))
    option = network._option(inputs.options)
    count = len(rows)
    first = base[:, None].repeat(1, count, 1)  # (N, C, D)
    first[: rows.shape[1]] += option[rows.T]
    state = F.leaky_relu(first, SLOPE)
    bare = F.leaky_relu(base, SLOPE)
    for layer, sums in zip(network.layers, inputs.layers, strict=True):

        def heard(states: Tensor, layer: Any = layer, sums: Any = sums) -> Tensor:
            message = F.leaky_relu(layer.node(states), SLOPE)
            return layer.heard(layer.mapped(message), message, sums.whole)

        new = heard(state)
        if network.settings.norm == "graph":
            plain = heard(bare)
            mean = plain.mean(0)
            deviation = (plain - mean).square().mean(0).add(1e-5).sqrt()
            new = (new - mean) / deviation
            bare = torch.cat([bare, F.leaky_relu((plain - mean) / deviation, SLOPE)], -1)
        state = torch.cat([state, F.leaky_relu(new, SLOPE)], -1)
    return network.score(F.leaky_relu(network.head(state.mean(0)), SLOPE))[:, 0]


def compare(network: RankingNetwork, inputs: GraphInputs, rows: Tensor, runtime: Tensor) -> dict[str, float]:
    """The largest difference of scores over the largest score, and of gradients over the largest of all."""
    gradients, scores = [], []
    for way in (network(inputs, rows), plain_scores(network, inputs, rows)):
        scores.append(way.detach())
        loss = list_mle(way[:, None], runtime)
        gradients.append(torch.autograd.grad(loss, list(network.parameters())))
        del way, loss
    largest = max(float(gradient.abs().max()) for gradient in gradients[1])
    apart = [float((a - b).abs().max()) / largest for a, b in zip(*gradients, strict=True)]
    spread = float(scores[1].abs().max())
    return {
        "scores_apart": float((scores[0] - scores[1]).abs().max()) / spread,
        "gradients_apart": max(apart),
    }


def synthetic_graph(nodes: int, configurable: int, configurations: int, *, seed: int = 0) -> ConfiguredGraph:
    """A layout graph as the store has it, with edges like those of compiled tensor programs."""
    random = np.random.default_rng(seed)
    count = int(1.6 * nodes)
    consumer = random.integers(1, nodes, count)
    near = np.maximum(0, consumer - random.geometric(0.2, count))
    far = (random.random(count) * consumer).astype(np.int64)
    constants = random.integers(0, max(1, nodes // 200), count) * 150 % np.maximum(1, consumer)
    kind = random.random(count)
    producer = np.where(kind < 0.7, near, np.where(kind < 0.93, far, constants))
    options = random.integers(2, 10, configurable)
    offsets = np.concatenate([[0], np.cumsum(options)]).astype(np.int64)
    layouts = np.full((int(offsets[-1]), 18), -1, np.float32)
    for place in (0, 6, 12):
        layouts[:, place : place + 4] = random.permuted(np.tile(np.arange(4.0), (len(layouts), 1)), axis=1)
    codes = random.integers(0, options, (configurations, configurable)).astype(np.uint8)
    cost = random.random(int(offsets[-1]))
    arrays: dict[str, NDArray[Any]] = {
        "node_opcode": random.integers(1, 121, nodes).astype(np.uint8),
        "node_feat": random.integers(0, 500, (nodes, 140)).astype(np.float32),
        "edge_index": np.unique(np.stack([consumer, producer], 1), axis=0),
        "node_splits": np.array([0, nodes]),
        "node_config_ids": np.sort(random.choice(nodes, configurable, replace=False)),
        "options": layouts, "option_offset": offsets, "codes": codes,
        "config_runtime": (1e6 * (1 + cost[offsets[:-1] + codes].sum(1))).astype(np.int64),
    }  # fmt: skip
    return ConfiguredGraph(f"synthetic-{nodes}", "layout:xla:random", "train", arrays)


def fit_scaling(network: RankingNetwork, stored: ConfiguredGraph) -> None:
    """Set the network's scaling from one graph."""
    features = np.log1p(stored.arrays["node_feat"])
    network.mean.copy_(torch.from_numpy(features.mean(0)))
    network.deviation.copy_(torch.from_numpy(np.maximum(features.std(0), 1e-3)))
    options = stored.arrays["options"]
    network.option_mean.copy_(torch.from_numpy(options.mean(0)))
    network.option_deviation.copy_(torch.from_numpy(np.where(options.std(0) > 1e-6, options.std(0), 1)))


def peak_bytes(action: Callable[[], None], device: torch.device) -> int:
    """How much memory one call takes beyond what is held before it."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        action()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    return _resident(action)


def _resident(action: Callable[[], None]) -> int:
    """How far one call raises this process' resident memory, as Linux keeps its peak."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = _status("VmRSS")
    action()
    return max(0, _status("VmHWM") - before)


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def clock(action: Callable[[], None], device: torch.device, *, seconds: float) -> float:
    """Milliseconds of one call: the median of as many as fit into `seconds`, at least 3."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(3 if device.type == "cuda" else 1):
        action()
    wait()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - begin < seconds and len(times) < 200):
        start = time.perf_counter()
        action()
        wait()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def _print(row: dict[str, Any]) -> None:
    reached = ", ".join(f"{count:,}" for count in row["reached"])
    print(
        f"{row['model']}: {row['nodes']:,} nodes, {row['configurable']} configurable, "
        f"{row['configurations']} configurations (reached after each layer: {reached})"
    )
    for kind in ("score", "step"):
        plain, once = row[f"plain_{kind}_us"], row[f"once_{kind}_us"]
        memory, less = row[f"plain_{kind}_bytes"], row[f"once_{kind}_bytes"]
        print(
            f"  {kind:5}  plain {plain:10,.1f} µs  once {once:8,.1f} µs a configuration: "
            f"{plain / once:5.1f} times faster;"
            f"  {memory / 1e6:9,.0f} MB against {less / 1e6:7,.0f} MB"
        )
        if f"once_{kind}_recorded_us" in row:
            plain, once = row[f"plain_{kind}_recorded_us"], row[f"once_{kind}_recorded_us"]
            print(
                f"         recorded {plain:7,.1f} µs  once {once:8,.1f} µs: {plain / once:5.1f} times faster"
            )
    good = "" if max(row["scores_apart"], row["gradients_apart"]) <= TOLERANCE else "  (ABOVE the tolerance)"
    print(
        f"  apart  scores {row['scores_apart']:.1e}, gradients {row['gradients_apart']:.1e}{good}", flush=True
    )


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "CPU"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    found = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=found, choices=("cpu", "cuda"))
    parser.add_argument("--shapes", choices=tuple(SHAPES), help="by default those of the device")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each time, at least three calls")
    parser.add_argument("--out", type=Path, help="write every number as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
