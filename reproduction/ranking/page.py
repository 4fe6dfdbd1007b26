"""The tables of the tensor-ranking page, in Markdown: the paper's in form, and our own collection's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apportion.errors import MalformedInput, UnreadableFile
from apportion.learn.metrics import Interval
from apportion.report.numbers import with_interval
from apportion.settings import replace_file
from reproduction.published import published
from reproduction.ranking.collection import CHANCE, PROTOCOLS, CollectionScore
from reproduction.ranking.tables import Cell, Part, Reproduction, average


@dataclass(frozen=True)
class RankingNumbers:
    """`published.toml`; percent."""

    opa: Mapping[str, Mapping[int, float]]
    "Model → size of a batch → ordered-pair accuracy."
    parts: Mapping[str, tuple[float, float, float]]
    "Collection → by size of a batch: 10, 50, 100."
    total: Mapping[int, Mapping[int, float]]
    "Size of a batch → epochs."
    goals: Mapping[str, Mapping[str, str]]
    "Folds → measure."


PUBLISHED = published("ranking", RankingNumbers)
ATTENTION = "GNN + attention"
"The model of the paper's Tables 4 and 5; the last variant where there is none of this name."
HEADINGS = {
    "tile_score": "tile score, top 5", "slowdown@1": "slowdown of the first", "opa": "OPA", "tau_b": "tau-b",
    "speedup": "speed-up over the default",
}  # fmt: skip


def published_tables(plan: Reproduction, parts: Sequence[Part], cells: Sequence[Cell]) -> str:
    """The paper's Tables 3 to 5 in form."""
    return "\n\n".join([_table3(plan, cells), _table4(plan, parts, cells), _table5(plan, cells)])


def collection_table(scores: Sequence[CollectionScore], *, aims: bool = True) -> str:
    """Rankers on our own collection, a table for each protocol; with `aims`, what was aimed at on a GPU."""
    tables = []
    for protocol in PROTOCOLS:
        own = [score for score in scores if score.protocol == protocol]
        if own:
            first = max(own, key=lambda score: score.pairs)
            head = ["ranker", *HEADINGS.values()]
            rows = [[score.row, *(_words(score.measures[name]) for name in HEADINGS)] for score in own]
            if aims:
                rows.append(
                    ["*aim*", *(PUBLISHED.goals.get(protocol, {}).get(name, "") for name in HEADINGS)]
                )
            seeds = max(score.seeds for score in own if score.row != CHANCE)
            caption = f"{first.graphs} graphs, {first.pairs:,} pairs, {seeds} seeds"
            tables.append(f"**Unseen {protocol}**: {caption}\n\n{_markdown(head, rows)}")
    return "\n\n".join(tables)


def steps_table(report: Mapping[str, Any]) -> str:
    """What `benchmarks.ranking` measured: all nodes for each configuration, against what they reach alone."""
    recorded = all("once_step_recorded_us" in row for row in report["rows"])
    head = ["network, nodes, configurations", "a step, plain", "once", "faster"]
    if recorded:
        head += ["plain, recorded", "once, recorded", "faster than recorded", "faster than plain"]
    head += ["scores, plain", "once", "faster", "memory, plain", "once", "scores apart"]
    rows = []
    for row in report["rows"]:
        line = [f"{row['model']}, {row['nodes']:,}, {row['configurations']}"]
        for kind in ("step", *(["step_recorded"] if recorded else []), "score"):
            plain, once = row[f"plain_{kind}_us"], row[f"once_{kind}_us"]
            line += [f"{plain:,.1f} µs", f"{once:,.1f} µs", f"{plain / once:.1f} ×"]
            if kind == "step_recorded":
                line.append(f"{row['plain_step_us'] / once:.1f} ×")
        line += [f"{row[f'{way}_step_bytes'] / 1e6:,.0f} MB" for way in ("plain", "once")]
        rows.append([*line, f"{row['scores_apart']:.1e}"])
    said = f"{report['device']}, torch {report['torch']}; times are of one configuration of one graph."
    return f"{said}\n\n{_markdown(head, rows)}"


def prepare(page: Path, sections: Sequence[str]) -> None:
    """See, before anything is computed, that a page can take sections; one that is not there is begun.

    Raises:
        MalformedInput: the page has no marks for a section.
        UnreadableFile: it can be neither read nor written.
    """
    try:
        if not page.exists():
            page.parent.mkdir(parents=True, exist_ok=True)
            marks = "\n\n".join(f"<!-- {section} -->\n<!-- end of {section} -->" for section in sections)
            page.write_text(f"# Ranking compiler configurations\n\n{marks}\n")
        whole = page.read_text()
    except OSError as error:
        raise UnreadableFile(f"Cannot use the page {page}: {error.strerror}") from error
    for section in sections:
        if f"<!-- {section} -->\n" not in whole or f"<!-- end of {section} -->" not in whole:
            raise MalformedInput(
                f"has no marks <!-- {section} --> and <!-- end of {section} -->", file=str(page)
            )


def put(page: Path, section: str, text: str) -> None:
    """Replace what stands between a section's marks in a page.

    Raises:
        MalformedInput: the page has no such marks.
    """
    first, last = f"<!-- {section} -->\n", f"<!-- end of {section} -->"
    whole = page.read_text()
    if first not in whole or last not in whole:
        raise MalformedInput(f"has no marks {first.strip()} and {last}", file=str(page))
    before, rest = whole.split(first, 1)
    after = rest.split(last, 1)[1]
    replace_file(page, f"{before}{first}\n{text}\n\n{last}{after}")


def _table3(plan: Reproduction, cells: Sequence[Cell]) -> str:
    epochs = max(plan.epochs)
    head = ["model", *(f"batch {batch}" for batch in plan.batches), *(f"seed, {b}" for b in plan.batches)]
    rows = [
        [
            variant.name,
            *(_words(average(cells, variant.name, batch, epochs, "opa")) for batch in plan.batches),
            *(_percent(PUBLISHED.opa.get(variant.name, {}).get(batch)) for batch in plan.batches),
        ]
        for variant in plan.variants
    ]
    rows += [
        [name, _words(average(cells, name, 0, 0, "opa")), *[""] * (2 * len(plan.batches) - 1)]
        for name in plan.baselines
    ]
    return f"**Table 3 in form**: OPA, mean over collections, {epochs} epochs\n\n{_markdown(head, rows)}"


def _table4(plan: Reproduction, parts: Sequence[Part], cells: Sequence[Cell]) -> str:
    epochs = max(plan.epochs)
    head = [
        "collection", "graphs", "pairs", *(f"batch {batch}" for batch in plan.batches),
        *(f"seed, {batch}" for batch in plan.batches), *plan.baselines,
    ]  # fmt: skip
    rows = []
    for part in parts:
        own = {(cell.variant, cell.batch, cell.epochs): cell for cell in cells if cell.part == part.name}
        chosen = [own[_shown(plan), batch, epochs] for batch in plan.batches]
        published = PUBLISHED.parts.get(part.name, (None,) * len(plan.batches))
        rows.append(
            [
                part.name, str(len(chosen[0].seeds[0])), f"{chosen[0].pairs:,}",
                *(_words(cell.mean("opa")) for cell in chosen), *(_percent(value) for value in published),
                *(_words(own[name, 0, 0].mean("opa")) for name in plan.baselines),
            ]
        )  # fmt: skip
    return f"**Table 4 in form**: OPA of {_shown(plan)}, {epochs} epochs\n\n{_markdown(head, rows)}"


def _table5(plan: Reproduction, cells: Sequence[Cell]) -> str:
    head = ["batch", *(f"{e} epochs" for e in plan.epochs), *(f"seed, {e} epochs" for e in plan.epochs)]
    rows = [
        [
            str(batch),
            *(_words(average(cells, _shown(plan), batch, epochs, "official")) for epochs in plan.epochs),
            *(_percent(PUBLISHED.total.get(batch, {}).get(epochs)) for epochs in plan.epochs),
        ]
        for batch in plan.batches
    ]
    caption = "tau-b of layouts and tile score of tiles, mean over collections"
    return f"**Table 5 in form**: {caption}, {_shown(plan)}\n\n{_markdown(head, rows)}"


def _shown(plan: Reproduction) -> str:
    names = [variant.name for variant in plan.variants]
    return ATTENTION if ATTENTION in names else names[-1]


def _words(interval: Interval) -> str:
    return with_interval(interval)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value / 100:.3f}"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
