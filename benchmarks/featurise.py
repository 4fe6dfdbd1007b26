"""HLO modules → the arrays of TpuGraphs: nodes a second, on modules of the real ones' size.

python -m benchmarks featurise
"""

from __future__ import annotations

import time
from itertools import count

from apportion.program import wire
from apportion.program.hlo.module import graph_of_hlo

TARGET = 100_000
SIZES = (100, 12_064, 43_615)
"A kernel; the median and the largest graph of layout:xla:random."


def main() -> None:
    print(f"target {TARGET:,} nodes/s")
    for nodes in SIZES:
        module = synthetic_module(nodes)
        graph = graph_of_hlo(module)
        assert len(graph.node_opcode) == nodes
        repeats, start, busy = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - start < 1:
            graph_of_hlo(module)
            repeats += 1
        rate = nodes * repeats / (time.perf_counter() - start)
        of_core = nodes * repeats / (time.process_time() - busy)
        size = len(module) / 1e6
        print(f"  {nodes:7,} nodes, {size:6.2f} MB: {rate:12,.0f} nodes/s, {of_core:12,.0f} /s of a core")


def synthetic_module(nodes: int) -> bytes:
    """Computations of 100 instructions each: convolutions, products, reshapes, slices and maps."""
    numbers = count(1)
    computations = []
    for first in range(0, nodes, 100):
        made, before = [], 0
        for place in range(min(100, nodes - first)):
            identity = next(numbers)
            made.append(_instruction(place, identity, before))
            before = identity
        inner = [
            (1, f"computation.{first}".encode()),
            *((2, one) for one in made),
            (5, first + 1),
            (6, before),
        ]
        computations.append(wire.message(inner))
    return wire.message([(1, b"synthetic"), *((3, one) for one in computations)])


def _instruction(place: int, identity: int, before: int) -> bytes:
    layout = wire.message([(1, wire.packed([3, 2, 1, 0]))])
    shape = wire.message([(2, 11), (3, wire.packed([32, 56, 56, 64 + place])), (5, layout)])
    window = wire.message([(1, wire.message([(1, 3), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1)]))] * 2)
    numbers = wire.message(
        [(3, 2), (4, 3), (6, wire.packed([0, 1])), (8, 3), (10, 3), (11, wire.packed([1, 2]))]
    )
    piece = wire.message([(2, 56), (3, 1)])
    more: list[wire.Field] = {
        0: [(2, b"convolution"), (15, window), (16, numbers), (50, 1), (58, 1)],
        1: [(2, b"reshape")],
        2: [(2, b"slice"), *[(17, piece)] * 4],
        3: [(2, b"transpose"), (14, wire.packed([0, 2, 1, 3]))],
    }.get(place % 8, [(2, b"add")])
    operands: list[wire.Field] = [(36, wire.packed([before]))] if before else []
    metadata = wire.message([(2, f"jit(f)/layer{place}/op".encode()), (3, b"/home/user/model.py"), (4, 17)])
    return wire.message(
        [(1, f"instruction.{identity}".encode()), *more, (3, shape), (7, metadata), (35, identity), *operands]
    )


if __name__ == "__main__":
    main()
