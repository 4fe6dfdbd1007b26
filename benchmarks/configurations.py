r"""The configuration store: packing, sampling and training on collections of the real ones' shape.

    python -m benchmarks configurations
    python -m benchmarks.configurations --graphs 21 --distinct 1 --nodes 43615 --configurations 100040 \
        --configurable 362

The second line makes, packs, samples and trains on what would be 51 GiB of layouts as 32-bit floats; each of
its graphs has the size of the largest published one, and each is read and packed by itself. With `--packed`
the store is made as packing would leave it, without the files: to see training alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from apportion.data.configurations import ConfigurationStore, describe, graph_path
from apportion.data.packing import pack
from apportion.data.published.tpugraphs import files
from apportion.data.tensors import write_tensors
from apportion.learn.model import Optimisation
from reproduction.ranking.kept import Silence

GIB = 1 << 30
SAMPLE = 64
PLACE, COLLECTION = Path("layout/xla/random/train"), "layout:xla:random"


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        source, out = Path(folder) / "npz", Path(folder) / "store"
        total = arguments.graphs * 72 * arguments.configurations * arguments.configurable
        print(f"{arguments.graphs} graphs of {arguments.nodes:,} nodes: {total / GIB:.1f} GiB as floats")
        print(f"  configurations of each    {arguments.configurations:10,} of {arguments.configurable} nodes")
        if arguments.packed:
            write_packed(
                out, graphs=arguments.graphs, nodes=arguments.nodes, configurations=arguments.configurations,
                configurable=arguments.configurable,
            )  # fmt: skip
        else:
            _make_and_pack(arguments, source, out, total)
        store = ConfigurationStore.open(out)
        size = sum(entry["bytes"] for entry in store.entries)
        print(f"  size of the store         {size / GIB:10.3f} GiB")
        first, later = sampling_microseconds(store)
        print(f"  {SAMPLE} configurations sampled {first:10.1f} µs, {later:.1f} µs later (target ≤ 100)")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"  peak memory while sampling{peak / GIB:10.2f} GiB")
        trained = _child("--train", str(out))
        print(f"  a training step           {trained['milliseconds']:10.0f} ms   ({SAMPLE} configurations)")
        print(f"  peak memory while training{trained['peak_bytes'] / GIB:10.2f} GiB (target ≤ 14.9, 16 GB)")


def _make_and_pack(arguments: argparse.Namespace, source: Path, out: Path, total: int) -> None:
    (source / PLACE).mkdir(parents=True)
    begin = time.perf_counter()
    paths = [source / PLACE / f"synthetic-{number}.npz" for number in range(arguments.graphs)]
    for number, path in enumerate(paths):
        if number >= arguments.distinct:
            path.hardlink_to(paths[number % arguments.distinct])
            continue
        write_synthetic(
            path, nodes=arguments.nodes, configurations=arguments.configurations,
            configurable=arguments.configurable, seed=number,
        )  # fmt: skip
    print(f"  made in                   {time.perf_counter() - begin:10.1f} s")
    begin = time.perf_counter()
    report = _child("--pack", str(source), "--to", str(out))
    seconds = time.perf_counter() - begin
    rate = total / seconds / 1e6
    print(f"  packed in                 {seconds:10.1f} s   ({rate:,.0f} MB/s)")
    print(f"  peak memory while packing {report['peak_bytes'] / GIB:10.2f} GiB")


def _child(*words: str) -> dict[str, Any]:
    """What this benchmark says of itself in a process of its own, whose memory is its own."""
    command = [sys.executable, "-m", "benchmarks.configurations", *words]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    )
    return found


def write_synthetic(path: Path, *, nodes: int, configurations: int, configurable: int, seed: int) -> None:
    """A layout file with random contents of the published shape, written in chunks of rows."""
    random = np.random.default_rng(seed)
    options = random.integers(2, 10, configurable)
    table = np.full((configurable, 9, 18), -1, np.float32)
    for node in range(configurable):
        for option in range(9):
            for place in (0, 6, 12):
                table[node, option, place : place + 4] = random.permutation(4)
    arrays: dict[str, NDArray[np.generic]] = {
        "node_opcode": random.integers(1, 121, nodes).astype(np.uint8),
        "node_feat": random.integers(0, 500, (nodes, 140)).astype(np.float32),
        "edge_index": np.sort(random.integers(0, nodes, (2 * nodes, 2)), axis=1)[:, ::-1].copy(),
        "node_config_ids": np.sort(random.choice(nodes, configurable, replace=False)),
        "node_splits": np.array([[0, nodes]]),
        "config_runtime": random.integers(10**8, 4 * 10**8, configurations),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as stream:
                npy.write_array(stream, array, allow_pickle=False)
        with archive.open("node_config_feat.npy", "w", force_zip64=True) as stream:
            shape = (configurations, configurable, 18)
            npy.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for codes in _chunks(random, options, configurations):
                stream.write(table[np.arange(configurable), codes].tobytes())


def sampling_microseconds(store: ConfigurationStore, repeats: int = 500) -> tuple[float, float]:
    """Median times of a sample, graphs taken in turn: while pages are first touched, and after."""
    graphs = list(store.graphs())
    random = np.random.default_rng(0)
    seconds = []
    for turn in range(3 * repeats):
        begin = time.perf_counter()
        graphs[turn % len(graphs)].sample(random, SAMPLE)
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds[:repeats])) * 1e6, float(np.median(seconds[repeats:])) * 1e6


def _chunks(
    random: np.random.Generator, options: NDArray[np.int64], configurations: int
) -> Iterator[NDArray[np.int64]]:
    for first in range(0, configurations, 1_000):
        yield random.integers(0, options, (min(1_000, configurations - first), len(options)))


def write_packed(out: Path, *, graphs: int, nodes: int, configurations: int, configurable: int) -> None:
    """A store of graphs with random contents of the published shape, as packing would leave it."""
    entries = []
    for number in range(graphs):
        random = np.random.default_rng(number)
        options = random.integers(2, 10, configurable)
        offsets = np.concatenate([[0], np.cumsum(options)]).astype(np.int64)
        consumer = random.integers(1, nodes, 2 * nodes)
        near = np.maximum(0, consumer - random.geometric(0.2, 2 * nodes))
        table = np.full((int(offsets[-1]), 18), -1, np.float32)
        table[:, :4] = random.permuted(np.tile(np.arange(4.0), (len(table), 1)), axis=1)
        arrays: dict[str, NDArray[np.generic]] = {
            "node_opcode": random.integers(1, 121, nodes).astype(np.uint8),
            "node_feat": random.integers(0, 500, (nodes, 140)).astype(np.float32),
            "edge_index": np.stack([consumer, near], 1), "node_splits": np.array([0, nodes]),
            "node_config_ids": np.sort(random.choice(nodes, configurable, replace=False)),
            "codes": np.concatenate(
                [chunk.astype(np.uint8) for chunk in _chunks(random, options, configurations)]
            ),
            "options": table, "option_offset": offsets,
            "config_runtime": random.integers(10**8, 4 * 10**8, configurations),
        }  # fmt: skip
        name, path = f"synthetic-{number}", graph_path(out, COLLECTION, "train", f"synthetic-{number}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, arrays, {})
        entry = {"name": name, "collection": COLLECTION, "side": "train", "nodes": nodes}
        entries.append({**entry, "configurations": configurations, "bytes": path.stat().st_size})
    describe(out, entries)


def _train(store: Path, steps: int = 30) -> None:
    """Train in this process, every graph in turn, and say how long a step and how much memory it took."""
    from apportion.learn.ranking.ranking_learner import (
        NetworkRanker,  # torch, whose memory packing does without
    )

    graphs = list(ConfigurationStore.open(store).graphs())
    steps = max(steps, len(graphs) + 10)  # each graph once, then some again
    optimisation = Optimisation(max_steps=steps, validate_every=steps)
    ranker = NetworkRanker.create({"sampled": SAMPLE, "validated": 256}, optimisation=optimisation)
    begin = time.perf_counter()
    ranker.fit(graphs, graphs[:1], Silence())
    milliseconds = 1000 * (time.perf_counter() - begin) / steps
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"milliseconds": milliseconds, "peak_bytes": peak}))


def _pack(source: Path, out: Path) -> None:
    """Pack in this process, and say how much memory it took."""
    pack(files(source), out)
    print(json.dumps({"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=12_064)
    parser.add_argument("--configurations", type=int, default=10_000)
    parser.add_argument("--configurable", type=int, default=200)
    parser.add_argument(
        "--distinct", type=int, default=2, help="graphs with contents of their own; the rest repeat"
    )
    parser.add_argument("--packed", action="store_true", help="make the store without the files")
    parser.add_argument("--folder", type=Path, help="where files are made; by default the system's place")
    return parser.parse_args()


if __name__ == "__main__":
    if "--pack" in sys.argv:
        _pack(Path(sys.argv[2]), Path(sys.argv[4]))
    elif "--train" in sys.argv:
        _train(Path(sys.argv[2]))
    else:
        main()
