"""`apportion reproduce tensor-ranking`: the seed's tables, and rankers on a collection of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note, print_json
from apportion.data.configurations import ConfigurationStore
from apportion.data.packing import pack
from apportion.data.published.tpugraphs import files
from apportion.errors import InvalidSetting
from apportion.settings import load
from apportion.train.rankingcollection import CollectionComparison, compare, read_collection
from apportion.train.rankingpage import collection_table, put, seed_tables
from apportion.train.rankingreproduce import (
    LAYOUT_SAMPLES,
    Part,
    Reproduction,
    parts_of_samples,
    parts_of_store,
    run,
)

TABLES, COLLECTION = Path("experiments/tensor-ranking.toml"), Path("experiments/ranking-collection.toml")


def tensor_ranking(
    *,
    data: Path | None = None,
    collection: Path | None = None,
    settings: Path = TABLES,
    comparison: Path = COLLECTION,
    results: Path = Path("runs/reproduce/tensor-ranking.jsonl"),
    out: Path = Path("docs/results/tensor-ranking.md"),
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Make the tables that the data given allow, into the page; what is finished is not run again.

    Args:
        data: A folder of TpuGraphs files (all of them, packed or not, or the public samples).
        collection: A folder of tiles that `apportion rank collect` wrote.
        settings: Which networks the tables compare.
        comparison: Which rankers are compared on the collection.
        results: Where finished cells are kept.
        out: The page; what stands between its marks is replaced.
        json: Print one line of JSON per cell.
    """
    if data is None and collection is None:
        raise InvalidSetting(
            "Give --data, a folder of TpuGraphs files (all of them, or the public samples), "
            "or --collection, a folder that `apportion rank collect` wrote"
        )
    if data is not None:
        plan = load(Reproduction, settings)
        parts = _parts(data, results.with_suffix(""), plan.evaluated)
        cells = run(plan, parts, results, report=note)
        put(out, "tables of the seed", seed_tables(plan, parts, cells))
        if json:
            for cell in cells:
                measures = {name: cell.mean(name) for name in ("opa", "tau_b", "slowdown@1")}
                print_json(
                    {**vars(cell), "seeds": len(cell.seeds), "pairs": cell.pairs, "measures": measures}
                )
        else:
            print(seed_tables(plan, parts, cells))
    if collection is not None:
        rankers = load(CollectionComparison, comparison)
        scores = compare(rankers, read_collection(collection), results, report=note)
        put(out, "our own collection", collection_table(scores))
        if json:
            for score in scores:
                print_json(vars(score))
        else:
            print(collection_table(scores))
    note(f"The page is {out}")


def _parts(data: Path, work: Path, evaluated: int) -> list[Part]:
    """What a folder holds: a store, the public samples, or published files, which are packed now."""
    if (data / "store.json").is_file():
        return parts_of_store(ConfigurationStore.open(data), evaluated=evaluated)
    if any((data / name).exists() for name in LAYOUT_SAMPLES):
        return parts_of_samples(data, work, evaluated=evaluated)
    note(f"Packing {data} into {work / 'store'}; this is done once")
    return parts_of_store(pack(files(data), work / "store"), evaluated=evaluated)
