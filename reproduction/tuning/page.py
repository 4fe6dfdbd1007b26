"""What searches reached, kept and told: geometric means with intervals, each space, and what was missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apportion.report.numbers import with_interval

BUDGETS = (20, 50, 100)
OURS, CHANCE = "apportion", "random"
GOAL, SLACK = 0.95, 1.03
"Of the best peer's geometric mean, and how far behind any peer on any space at most."
_RESAMPLES = 2_000
_SIZE = "configurations"
_WARM = f"{OURS}, warm from "
_AGREES = "tau-b with "
OWN = "own: "
"What the names of spaces of our own collections begin with."
OWN_BUDGETS = (20, 50)


@dataclass
class Traces:
    """Search, space and seed → the best after each measurement, over the best there is."""

    of: dict[tuple[str, str, int], NDArray[np.float64]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    "Space → how many configurations it has; spaces of our own are not among them."
    agreements: dict[tuple[str, str], float] = field(default_factory=dict)
    "Two spaces of one kernel → tau-b of their times, over configurations that ran on both."

    @classmethod
    def read(cls, path: Path) -> Self:
        """What a file holds; nothing where there is none."""
        if not path.exists():
            return cls()
        with np.load(path, allow_pickle=False) as file:
            found, sizes, agreements = {}, {}, {}
            for key in file.files:
                search, space = key.split("|")
                if search == _SIZE:
                    sizes[space] = int(file[key])
                    continue
                if search.startswith(_AGREES):
                    agreements[space, search.removeprefix(_AGREES)] = float(file[key])
                    continue
                for entry in file[key]:
                    found[search, space, int(entry[0])] = entry[1:].astype(np.float64)
        return cls(found, sizes, agreements)

    def write(self, path: Path) -> None:
        """Write them as a whole."""
        rows: dict[str, list[NDArray[np.float32]]] = {}
        for (search, space, seed), trace in sorted(self.of.items()):
            rows.setdefault(f"{search}|{space}", []).append(
                np.concatenate([[seed], trace]).astype(np.float32)
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.stem + "-part.npz")
        arrays = {key: np.array(value) for key, value in rows.items()}
        arrays |= {f"{_SIZE}|{space}": np.array(count) for space, count in sorted(self.sizes.items())}
        arrays |= {
            f"{_AGREES}{other}|{space}": np.array(value)
            for (space, other), value in sorted(self.agreements.items())
        }
        np.savez_compressed(part, allow_pickle=False, **arrays)
        part.replace(path)

    @property
    def own(self) -> list[str]:
        """The spaces of our own collections."""
        return sorted({space for _, space, _ in self.of if space.startswith(OWN)})

    def has(self, search: str, space: str, seed: int) -> bool:
        """Whether it is known."""
        return (search, space, seed) in self.of

    def add(self, search: str, space: str, seed: int, trace: NDArray[np.float64]) -> None:
        """Keep one."""
        self.of[search, space, seed] = trace

    def searches(self, spaces: Sequence[str]) -> list[str]:
        """Those that are known on every one of these spaces."""
        names = dict.fromkeys(search for search, _, _ in self.of)
        return [
            name
            for name in names
            if all(any(key[:2] == (name, space) for key in self.of) for space in spaces)
        ]

    def logs(self, search: str, space: str) -> NDArray[np.float64]:
        """(seeds, budgets): logarithms of the best after each budget."""
        found = [trace for (one, other, _), trace in self.of.items() if (one, other) == (search, space)]
        at = [min(budget, len(found[0])) - 1 for budget in BUDGETS]
        return np.log(np.minimum(np.array(found)[:, at], 1e6))


def summaries(traces: Traces, spaces: Sequence[str]) -> list[dict[str, Any]]:
    """Each search's geometric means over spaces and seeds, the best first; with intervals over seeds."""
    found = []
    for name in traces.searches(spaces):
        parts = [traces.logs(name, space) for space in spaces]
        mean = np.mean([part.mean(axis=0) for part in parts], axis=0)
        low, high = _interval(parts)
        found.append({
            "search": name, "seeds": min(len(part) for part in parts), "budgets": BUDGETS,
            "geometric_mean": np.exp(mean).round(4).tolist(),
            "low": np.exp(low).round(4).tolist(), "high": np.exp(high).round(4).tolist(),
            "spaces": {
                space: np.exp(part.mean(axis=0)).round(4).tolist()
                for space, part in zip(spaces, parts, strict=True)
            },
        })  # fmt: skip
    return sorted(found, key=lambda one: float(np.prod(one["geometric_mean"])))


def _interval(parts: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """95 % of the mean over spaces when seeds are drawn anew within each."""
    random = np.random.default_rng(0)
    means = np.array([
        np.mean([part[random.integers(len(part), size=len(part))].mean(axis=0) for part in parts], axis=0)
        for _ in range(_RESAMPLES)
    ])  # fmt: skip
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return low, high


def page(traces: Traces) -> str:
    """The page, in Markdown, of the spaces whose sizes are known."""
    sizes = traces.sizes
    spaces = list(sizes)
    found = summaries(traces, spaces)
    mine = next((one for one in found if one["search"] == OURS), None)
    peers = [one for one in found if one["search"] != OURS]
    parts = [_HEAD, _means(found)]
    if mine is not None and peers:
        parts += [_against(mine, peers), _by_space(mine, peers, sizes)]
    parts += [_warmed(traces, spaces), _on_our_own(traces)]
    return "\n".join(part for part in parts if part)


_HEAD = """# Tuning: what few measurements find

Made by `python -m reproduction tuning` (give it files of other spaces, and it says the same of them; it needs
`pip install optuna scikit-optimize kernel_tuner`).

Each space is a kernel with every valid configuration measured on one GPU (FAIR Benchmark Hub for Auto-Tuning,
MIT licence, DOI 10.5281/zenodo.15364124). A search asks for configurations one by one. Numbers are the best
that it found over the best that there is, 1.00 being perfect: geometric means over seeds.

**On the given spaces (convolution, dedispersion, pnpoly) the search's settings were chosen** (the number of
first measurements, the reach of the processes, the scale on which they compare values, how values are turned
into features), so that its numbers there flatter it. Its peers run with the settings that they come with.

What each search is told: the valid configurations; asking for an invalid one costs nothing.
*skopt-extra-trees* is scikit-optimize's forest and acquisition over the list of valid configurations. *kt-…*
are Kernel Tuner's strategies in its simulation mode. Where a strategy ends before its budget does, random
configurations fill it.
"""


def _means(found: Sequence[Mapping[str, Any]]) -> str:
    columns = " | ".join(f"after {budget}" for budget in BUDGETS)
    lines = ["## Over all spaces", "", f"| search | seeds | {columns} |", "|---|--:|" + "--:|" * len(BUDGETS)]
    for one in found:
        cells = [
            with_interval((mean, low, high))
            for mean, low, high in zip(one["geometric_mean"], one["low"], one["high"], strict=True)
        ]
        lines.append(f"| {one['search']} | {one['seeds']} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "In parentheses: 95 % when seeds are drawn anew.", ""])


def _against(mine: Mapping[str, Any], peers: Sequence[Mapping[str, Any]]) -> str:
    lines = ["## Against the best peer at each budget", "",
             "| after | best peer | its mean | ours | ours / its | goal | least possible |",
             "|--:|---|--:|--:|--:|---|--:|"]  # fmt: skip
    for at, budget in enumerate(BUDGETS):
        best = min(peers, key=lambda one: float(one["geometric_mean"][at]))
        theirs, ours = best["geometric_mean"][at], mine["geometric_mean"][at]
        ratio = ours / theirs
        goal = f"≤ {GOAL}: {'met' if ratio <= GOAL else 'missed'}"
        lines.append(
            f"| {budget} | {best['search']} | {theirs:.3f} | {ours:.3f} | {ratio:.3f} | {goal} "
            f"| {1 / theirs:.3f} |"
        )
    note = (
        "*Least possible*: the ratio of a search that always finds the best there is. Where the best peer "
        f"comes within {1 / GOAL - 1:.1%} of it, nothing can reach the goal."
    )
    return "\n".join([*lines, "", note, ""])


def _by_space(mine: Mapping[str, Any], peers: Sequence[Mapping[str, Any]], sizes: Mapping[str, int]) -> str:
    lines = ["## Space by space", "", "After " + " / ".join(map(str, BUDGETS)) + " measurements.", "",
             "| space | configurations | ours | random | best peer at each | ours behind it |",
             "|---|--:|--:|--:|--:|---|"]  # fmt: skip
    for space, size in sizes.items():
        ours = mine["spaces"][space]
        chance = next((one["spaces"][space] for one in peers if one["search"] == CHANCE), None)
        best = [min(one["spaces"][space][at] for one in peers) for at in range(len(BUDGETS))]
        behind = [
            f"{budget}: {value / other - 1:.1%}"
            for budget, value, other in zip(BUDGETS, ours, best, strict=True)
            if value > SLACK * other
        ]
        drawn = "" if chance is None else _three(chance)
        where = ", ".join(behind) or "nowhere by more than 3 %"
        lines.append(f"| {space} | {size:,} | {_three(ours)} | {drawn} | {_three(best)} | {where} |")
    note = "*Best peer at each*: of all peers, on that space at that budget; no single peer is that good."
    return "\n".join([*lines, "", note, ""])


def _warmed(traces: Traces, spaces: Sequence[str]) -> str:
    """What knowing another GPU's table gives."""
    lines = []
    for search, space in sorted({key[:2] for key in traces.of if key[0].startswith(_WARM)}):
        if space not in spaces:
            continue
        warm, cold = (traces.logs(one, space) for one in (search, OURS))
        means = [_three(np.exp(one.mean(axis=0)).tolist()) for one in (warm, cold)]
        known = search.removeprefix(_WARM)
        agreement = traces.agreements.get((space, known))
        agrees = "" if agreement is None else f"{agreement:.2f}"
        lines.append(f"| {space} | {known} | {agrees} | {len(warm)} | {means[0]} | {means[1]} |")
    if not lines:
        return ""
    head = [
        "## Started from another GPU's table",
        "",
        "| space | known | tau-b of the two | seeds | warm start | cold start |",
        "|---|---|--:|--:|--:|--:|",
    ]
    note = (
        "*tau-b of the two*: how alike the two GPUs order the configurations that ran on both. "
        "The goal is 1.05 after 20 where the two GPUs agree, and no worse than a cold start where they do "
        "not. NVIDIA's and AMD's GPUs agree little about the convolution."
    )
    return "\n".join([*head, *lines, "", note, ""])


def _on_our_own(traces: Traces) -> str:
    """Spaces that nothing was chosen on."""
    spaces = traces.own
    if not spaces:
        return ""
    columns = " | ".join(f"after {budget}" for budget in OWN_BUDGETS)
    lines = [f"| search | seeds | {columns} |", "|---|--:|" + "--:|" * len(OWN_BUDGETS)]
    found = summaries(traces, spaces)
    for one in found:
        triples = zip(one["geometric_mean"], one["low"], one["high"], strict=True)
        cells = [with_interval(triple) for triple, _ in zip(triples, OWN_BUDGETS, strict=False)]
        lines.append(f"| {one['search']} | {one['seeds']} | {' | '.join(cells)} |")
    families = len({space.partition(".")[0] for space in spaces})
    means = {one["search"]: one["geometric_mean"] for one in found}
    told = []
    for at, budget in enumerate(OWN_BUDGETS if {OURS, CHANCE} <= set(means) else ()):
        ratio = means[OURS][at] / means[CHANCE][at]
        goal = "met" if ratio <= 1 else "missed"
        told.append(f"{ratio:.3f} times what chance leaves after {budget} (goal: at most 1, {goal})")
    head = f"""## On spaces that nothing was chosen on

{len(spaces)} programs of {families} families of [our own collections](collections.md) (Triton on an H200,
loops on a CPU), 120 measured configurations each, drawn at random from larger spaces: every second family.
Settings of the search were compared on the other families and on the spaces above, never on these; but an
earlier search ended behind chance here (1.02 times, after 20), which is why they were compared again. Of so
few configurations chance finds good ones, and after 50 of 120 there is little left to find.
"""
    return "\n".join([head, *lines, "", f"Ours ends at {' and '.join(told)}." if told else "", ""])


def _three(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.3f}" for value in values)
