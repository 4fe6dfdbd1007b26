"""`python -m reproduction tensor-ranking`: the paper's tables, AlexNet tuned, rankers on our collections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from json import loads
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note, print_json
from apportion.data.configurations import ConfigurationStore
from apportion.data.packing import pack
from apportion.data.published.tpugraphs import files
from apportion.errors import InvalidSetting
from apportion.learn.ranking.rankings import RankedGraph
from apportion.learn.ranking.recorded_runs import read_runs
from apportion.settings import load
from reproduction.collect.publish import publish
from reproduction.ranking.collection import (
    CollectionComparison,
    compare,
    fingerprint,
    ranking_units,
    read_collection,
    usable,
)
from reproduction.ranking.collection_page import recorded_table
from reproduction.ranking.kept import KeptRankings
from reproduction.ranking.page import collection_table, prepare, published_tables, put, steps_table
from reproduction.ranking.tables import (
    LAYOUT_SAMPLES,
    Part,
    Reproduction,
    cell_seeds,
    parts_of_samples,
    parts_of_store,
    run,
)
from reproduction.worker import shared_by

AIMS = {100: 0.70, 300: 0.84, 1_000: 0.86}
"Configurations of AlexNet that are measured → the tau-b aimed at."
TUNING_SEEDS = 10
TABLES, COLLECTION = Path("experiments/tensor-ranking.toml"), Path("experiments/ranking-collection.toml")


def tensor_ranking(
    *,
    data: Path | None = None,
    collection: tuple[Path, ...] = (),
    steps: Path | None = None,
    settings: Path = TABLES,
    comparison: Path = COLLECTION,
    results: Path = Path("runs/reproduce/tensor-ranking.jsonl"),
    out: Path = Path("docs/results/tensor-ranking.md"),
    worker: str = "",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Make the tables that the data given allow, into the page; what is finished is not run again.

    Args:
        data: A folder of TpuGraphs files (all of them, packed or not, or the public samples).
        collection: Folders of `python -m reproduction collect measure`; runs/ alone will do, given JAX.
        steps: What `python -m benchmarks.ranking --out FILE` wrote on a GPU.
        settings: Which networks the tables compare.
        comparison: Which rankers are compared on the collection.
        results: Where finished cells are kept.
        out: The page; what stands between its marks is replaced.
        worker: I/N: this is one of N processes that share what is not finished; it makes no page.
        json: Print one line of JSON per cell.
    """
    if data is None and not collection and steps is None:
        raise InvalidSetting(
            "Give --data, a folder of TpuGraphs files (all of them, or the public samples), "
            "--collection, a folder of `reproduction collect measure`, or --steps, a benchmark's report"
        )
    wanted = {
        "tables of the paper": data is not None,
        "measure a few": data is not None and (data / LAYOUT_SAMPLES[0]).exists(),
        "broadcast on a GPU": steps is not None,
        "our own collection": bool(collection),
    }
    if worker:
        _share(worker, data, collection, settings, comparison, results)
        return
    prepare(out, [section for section, given in wanted.items() if given])
    if data is not None:
        plan = load(Reproduction, settings)
        parts = _parts(data, results.with_suffix(""), plan.evaluated)
        cells = run(plan, parts, results, report=note)
        put(out, "tables of the paper", published_tables(plan, parts, cells))
        if (alexnet := data / LAYOUT_SAMPLES[0]).exists():
            note(f"Tuning {alexnet.name}, {TUNING_SEEDS} seeds")
            put(out, "measure a few", recorded_table(alexnet, tuple(AIMS), AIMS, TUNING_SEEDS))
        if json:
            for cell in cells:
                measures = {name: cell.mean(name) for name in ("opa", "tau_b", "slowdown@1")}
                print_json(
                    {**vars(cell), "seeds": len(cell.seeds), "pairs": cell.pairs, "measures": measures}
                )
        else:
            print(published_tables(plan, parts, cells))
    if steps is not None:
        put(out, "broadcast on a GPU", steps_table(loads(steps.read_text())))
    if collection:
        put(
            out,
            "our own collection",
            _collections(collection, load(CollectionComparison, comparison), results, json),
        )
    note(f"The page is {out}")


def _collections(
    folders: tuple[Path, ...], comparison: CollectionComparison, results: Path, json: bool
) -> str:
    """A section for each folder; the same is printed."""
    sections = []
    for folder in folders:
        if (folder / "runs").is_dir():
            list(publish(folder))  # what is not published yet
        graphs = read_collection(folder)
        devices = sorted({runs.device for runs in read_runs(folder)})
        scores = compare(usable(comparison, graphs), graphs, results, report=note)
        count = sum(graph.configurations for graph in graphs)
        sections.append(
            f"### {folder.name}\n\n{', '.join(devices) or 'An unknown device'}: {len(graphs)} graphs, "
            f"{count:,} configurations; fingerprint of the runtimes `{fingerprint(graphs)}`.\n\n"
            + collection_table(scores, aims="compiled_registers" in graphs[0].arrays)
        )
        if json:
            for score in scores:
                print_json({"collection": folder.name, **vars(score)})
        else:
            print(sections[-1])
    return "\n\n".join(sections)


def _share(
    worker: str,
    data: Path | None,
    collection: Sequence[Path],
    settings: Path,
    comparison: Path,
    results: Path,
) -> None:
    """Make every N-th of what is made at once, of the tables and of the collections."""
    number, workers = shared_by(worker)
    kept, plan = KeptRankings(results), load(Reproduction, settings)
    made: list[tuple[object, Callable[[], list[RankedGraph]]]] = []
    if data is not None:
        parts = _parts(data, results.with_suffix("") / f"worker-{number}", plan.evaluated)
        made += [(one.made_from, partial(one.make, note)) for one in cell_seeds(plan, parts)]
    for folder in collection:
        graphs = read_collection(folder)
        units = ranking_units(usable(load(CollectionComparison, comparison), graphs), graphs)
        made += [(one.made_from, partial(one.make, graphs, note)) for one in units]
    for made_from, make in made[number - 1 :: workers]:
        kept.get(made_from, make)


def _parts(data: Path, work: Path, evaluated: int) -> list[Part]:
    """What a folder holds: a store, the public samples, or published files, which are packed now."""
    if (data / "store.json").is_file():
        return parts_of_store(ConfigurationStore.open(data), evaluated=evaluated)
    if any((data / name).exists() for name in LAYOUT_SAMPLES):
        return parts_of_samples(data, work, evaluated=evaluated)
    note(f"Packing {data} into {work / 'store'}; this is done once")
    return parts_of_store(pack(files(data), work / "store"), evaluated=evaluated)
