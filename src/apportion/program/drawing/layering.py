"""Layered drawing of a directed graph: boxes in rows so that edges run down, with few crossings and bends.

The method is Sugiyama's: break cycles, give each box a row by its longest path, stand invisible boxes in the
rows that a long edge passes, order each row by the mean place of its neighbours, then choose coordinates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Point = tuple[float, float]

_SWEEPS = 6
_PASSING_WIDTH = 14.0
"Room for an edge that passes a row."


@dataclass(frozen=True)
class Layers:
    """Where the boxes stand, and how edges run between them."""

    width: float
    height: float
    corners: Sequence[Point]
    "Upper left corner of each box."
    bands: Sequence[Point]
    "Top and bottom of the row in which each box stands."
    paths: Mapping[tuple[int, int], Sequence[Point]]
    "For each forward edge: the points it passes between the rows of its ends."
    back: frozenset[tuple[int, int]]
    "Edges that close a cycle (self-loops too); they have no path."


def arrange(
    sizes: Sequence[Point], edges: Sequence[tuple[int, int]], *, gap_x: float, gap_y: float
) -> Layers:
    """Boxes of these sizes (width, height), numbered in reading order, joined by these edges."""
    distinct = list(dict.fromkeys(edges))
    back = _closing_edges(len(sizes), distinct)
    forward = [edge for edge in distinct if edge not in back]
    row_of = _rows(len(sizes), forward)

    # An edge over several rows becomes a chain of passing boxes, numbered after the real ones.
    widths = [width for width, _ in sizes]
    rows: list[list[int]] = [[] for _ in range(max(row_of, default=0) + 1)]
    for box, row in enumerate(row_of):
        rows[row].append(box)
    chains: dict[tuple[int, int], list[int]] = {}
    links: list[tuple[int, int]] = []
    for source, target in forward:
        chain = []
        for row in range(row_of[source] + 1, row_of[target]):
            chain.append(len(widths))
            rows[row].append(len(widths))
            widths.append(_PASSING_WIDTH)
        chains[source, target] = chain
        steps = [source, *chain, target]
        links += pairwise(steps)

    _order(rows, links)
    centres = _centres(rows, links, widths, gap_x)
    heights = [max((sizes[box][1] for box in row if box < len(sizes)), default=0.0) for row in rows]
    tops = np.concatenate([[0.0], np.cumsum([height + gap_y for height in heights])])
    paths = {
        edge: [
            point
            for number, box in enumerate(chain, row_of[edge[0]] + 1)
            for point in (
                (centres[box], float(tops[number])),
                (centres[box], float(tops[number] + heights[number])),
            )
        ]
        for edge, chain in chains.items()
    }
    corners = [(centres[box] - width / 2, float(tops[row_of[box]])) for box, (width, _) in enumerate(sizes)]
    bands = [(float(tops[row]), float(tops[row] + heights[row])) for row in row_of]
    right = max((centres[box] + width / 2 for box, width in enumerate(widths)), default=0.0)
    return Layers(right, float(tops[-1] - gap_y), corners, bands, paths, frozenset(back))


def _closing_edges(count: int, edges: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """The edges that lead back to a box still open in a depth-first walk from the first box on."""
    targets: defaultdict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        targets[source].append(target)
    fresh, opened, finished = 0, 1, 2
    state = [fresh] * count
    back = set()
    for start in range(count):
        if state[start] != fresh:
            continue
        state[start] = opened
        stack = [(start, iter(targets[start]))]
        while stack:
            box, rest = stack[-1]
            for target in rest:
                if state[target] == opened:
                    back.add((box, target))
                elif state[target] == fresh:
                    state[target] = opened
                    stack.append((target, iter(targets[target])))
                    break
            else:
                state[box] = finished
                stack.pop()
    return back


def _rows(count: int, forward: Sequence[tuple[int, int]]) -> list[int]:
    """The length of the longest path to each box."""
    targets: defaultdict[int, list[int]] = defaultdict(list)
    waiting = [0] * count
    for source, target in forward:
        targets[source].append(target)
        waiting[target] += 1
    row_of = [0] * count
    free = [box for box in range(count) if waiting[box] == 0]
    for box in free:  # grows while it is walked
        for target in targets[box]:
            row_of[target] = max(row_of[target], row_of[box] + 1)
            waiting[target] -= 1
            if waiting[target] == 0:
                free.append(target)
    return row_of


def _order(rows: list[list[int]], links: Sequence[tuple[int, int]]) -> None:
    """Sort each row, in place, by the mean place of its neighbours in the row before, down and up in turn."""
    above: defaultdict[int, list[int]] = defaultdict(list)
    below: defaultdict[int, list[int]] = defaultdict(list)
    for source, target in links:
        below[source].append(target)
        above[target].append(source)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        place: dict[int, float] = {}
        for row in rows if downwards else reversed(rows):
            keys = {
                box: float(np.mean([place[other] for other in neighbours[box]])) if neighbours[box] else at
                for at, box in enumerate(row)
            }
            row.sort(key=keys.__getitem__)
            place.update({box: float(at) for at, box in enumerate(row)})


def _centres(
    rows: Sequence[Sequence[int]], links: Sequence[tuple[int, int]], widths: Sequence[float], gap: float
) -> list[float]:
    """The x of each box: as near to the mean of its neighbours as the order in its row allows."""
    neighbours: defaultdict[int, list[int]] = defaultdict(list)
    for source, target in links:
        neighbours[source].append(target)
        neighbours[target].append(source)
    centres = [0.0] * len(widths)
    offsets = {}
    for row in rows:
        at = 0.0
        for number, box in enumerate(row):
            at += widths[box] / 2 + (gap + widths[row[number - 1]] / 2 if number else 0)
            offsets[box] = centres[box] = at
    for sweep in range(2 * _SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wished = [
                float(np.mean([centres[other] for other in neighbours[box]]))
                if neighbours[box]
                else centres[box]
                for box in row
            ]
            # Less the offsets, "no overlap" reads "never falls": the nearest such is isotonic regression.
            fitted = _rising([wish - offsets[box] for wish, box in zip(wished, row, strict=True)])
            for box, value in zip(row, fitted, strict=True):
                centres[box] = value + offsets[box]
    left = min((centres[box] - width / 2 for box, width in enumerate(widths)), default=0.0)
    return [centre - left for centre in centres]


def _rising(values: Sequence[float]) -> list[float]:
    """The numbers that never fall and are nearest to these in the sense of least squares."""
    pools: list[tuple[float, int]] = []  # (sum, how many)
    for value in values:
        total, count = value, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, members = pools.pop()
            total, count = total + before, count + members
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]
