r"""The configuration store: packing time and memory, sampling time, on collections of the real ones' shape.

    python -m benchmarks configurations
    python -m benchmarks.configurations --graphs 21 --distinct 1 --nodes 43615 --configurations 100040 \
        --configurable 362

The second line makes, packs and samples what would be 51 GiB of layouts as 32-bit floats; each of its graphs
has the size of the largest published one, and each is read and packed by itself.
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

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from apportion.data.configurations import ConfigurationStore
from apportion.data.packing import pack
from apportion.data.published.tpugraphs import files

GIB = 1 << 30
SAMPLE = 64
PLACE = Path("layout/xla/random/train")


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        source, out = Path(folder) / "npz", Path(folder) / "store"
        (source / PLACE).mkdir(parents=True)
        total = arguments.graphs * 72 * arguments.configurations * arguments.configurable
        print(f"{arguments.graphs} graphs of {arguments.nodes:,} nodes: {total / GIB:.1f} GiB as floats")
        print(f"  configurations of each    {arguments.configurations:10,} of {arguments.configurable} nodes")
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
        command = [sys.executable, "-m", "benchmarks.configurations", "--pack", str(source), "--to", str(out)]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        seconds = time.perf_counter() - begin
        rate = total / seconds / 1e6
        print(f"  packed in                 {seconds:10.1f} s   ({rate:,.0f} MB/s)")
        print(f"  peak memory while packing {report['peak_bytes'] / GIB:10.2f} GiB")
        store = ConfigurationStore.open(out)
        size = sum(entry["bytes"] for entry in store.entries)
        print(f"  size of the store         {size / GIB:10.3f} GiB")
        first, later = sampling_microseconds(store)
        print(f"  {SAMPLE} configurations sampled {first:10.1f} µs, {later:.1f} µs later (target ≤ 100)")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"  peak memory while sampling{peak / GIB:10.2f} GiB")


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
    parser.add_argument("--folder", type=Path, help="where files are made; by default the system's place")
    return parser.parse_args()


if __name__ == "__main__":
    if "--pack" in sys.argv:
        _pack(Path(sys.argv[2]), Path(sys.argv[4]))
    else:
        main()
