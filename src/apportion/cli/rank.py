"""`apportion rank`: compiler configurations of tensor programs, packed, ranked, scored and tuned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from apportion.cli.show import note, print_json, print_table, progress, size_in_words
from apportion.data.configurations import ConfigurationStore
from apportion.data.packing import pack as pack_files
from apportion.data.published import tpugraphs
from apportion.data.published.tpugraphs import featurise_file
from apportion.errors import InvalidSetting
from apportion.model.ridge import TuningPlan
from apportion.task.metrics import Interval, over_seeds
from apportion.task.submission import check_submission, write_submission
from apportion.train.ranking import (
    Scorer,
    asked,
    by_chance,
    by_measuring,
    from_file,
    rank_graphs,
    tune_recorded,
)
from apportion.train.ranking import summary as summary_of

rank = App(name="rank", help="Compiler configurations of tensor programs: pack, score, submit and tune.")

_Json = Annotated[bool, Parameter(negative="")]


@rank.command
def pack(
    folder: Path,
    *,
    out: Path,
    collection: str | None = None,
    side: str | None = None,
    deduplicate: Annotated[bool, Parameter(negative="")] = False,
    evaluation: Path | None = None,
    json: _Json = False,
) -> None:
    """Turn published TpuGraphs files into a store that is mapped into memory.

    Nothing is lost, and layouts take 1/72 of their bytes. The same command after an interruption goes on
    where it was.

    Args:
        folder: Has .npz files, in folders like layout/xla/random/train.
        out: The folder for the store.
        collection: Which collection the files are of, where folders do not say it: layout:xla:random.
        side: Which side of the split: train, valid or test.
        deduplicate: Keep equal configurations once, with the mean of their runtimes.
        evaluation: A folder with the published evaluation indices (xla_random.json …).
        json: Print the summary as JSON.
    """
    files = tpugraphs.files(folder, collection=collection, side=side)
    chosen = None if evaluation is None else tpugraphs.read_evaluation(evaluation)
    taken = progress(files, label="packing", total=len(files), quiet=json)
    _print_store(pack_files(taken, out, deduplicate=deduplicate, evaluation=chosen), json)


@rank.command
def show(store: Path, *, json: _Json = False) -> None:
    """Say what a store holds.

    Args:
        store: The folder that `apportion rank pack` wrote.
        json: Print it as JSON.
    """
    _print_store(ConfigurationStore.open(store), json)


@rank.command
def featurise(module: Path, *, out: Path, json: _Json = False) -> None:
    """Turn a serialized HLO module into the arrays that TpuGraphs has for a graph.

    Args:
        module: A file with an HloModuleProto or an HloProto.
        out: The NPZ file: node_opcode, node_feat, edge_index, node_splits and node_config_ids.
        json: Print what was found as JSON.
    """
    graph = featurise_file(module, out)
    if graph.unknown_opcodes:
        note(f"Without a published number, so 0: {', '.join(graph.unknown_opcodes)}")
    found = {
        "module": graph.name, "nodes": len(graph.node_opcode), "edges": len(graph.edge_index),
        "segments": len(graph.node_splits) - 1, "configurable": len(graph.configurable),
    }  # fmt: skip
    if json:
        print_json({**found, "unknown_opcodes": graph.unknown_opcodes})
    else:
        print_table(tuple(found), [tuple(found.values())], right=tuple(found)[1:])


@rank.command
def score(
    store: Path,
    *,
    scores: Path | None = None,
    baseline: Literal["random", "ridge"] | None = None,
    measured: int = 100,
    side: str = "valid",
    collection: str | None = None,
    seed: int = 0,
    json: _Json = False,
) -> None:
    """Measure how well scores rank configurations, with the published measures.

    Args:
        store: The folder that `apportion rank pack` wrote.
        scores: An NPZ file with an array for each graph, called COLLECTION:NAME; low scores are fast.
        baseline: Instead of a file: random scores, or a ridge regression on measured configurations.
        measured: How many configurations of each graph the ridge regression measures.
        side: Which side of the split is ranked.
        collection: Only this one.
        seed: Draws what a baseline draws.
        json: Print every graph and the summary as JSON.
    """
    scorer = _scorer(scores, baseline, measured, seed)
    graphs = ConfigurationStore.open(store).graphs(collection=collection, side=side)
    results = rank_graphs(progress(graphs, label="ranking", quiet=json), scorer)
    summary = summary_of(results)
    if json:
        print_json({**summary, "graphs": results})
        return
    rows = [
        (name, entry["graphs"], f"{entry['pairs']:,}", f"{entry['tied_scores']:,}", measure, _interval(value))
        for name, entry in summary["collections"].items()
        for measure, value in entry["measures"].items()
    ]
    columns = ("collection", "graphs", "pairs", "tied scores", "measure", "mean [95 % over graphs]")
    print_table(columns, rows, right=columns[1:4])
    total = summary["competition_total"]
    if total is not None:
        note(f"Mean of the five collections: {total:.4f}")


@rank.command
def submit(store: Path, *, scores: Path, out: Path, side: str = "test") -> None:
    """Write the competition's answer file, and check it against its rules.

    Args:
        store: The folder that `apportion rank pack` wrote.
        scores: An NPZ file with an array for each graph, called COLLECTION:NAME; low scores are fast.
        out: The CSV file.
        side: Which side of the split is answered.
    """
    scorer = from_file(scores)
    graphs = list(ConfigurationStore.open(store).graphs(side=side))
    if not graphs:
        raise InvalidSetting(f"{store} has no graphs on the side {side!r}")
    rows = write_submission(out, ((asked(graph), graph.in_order_of_files(scorer(graph))) for graph in graphs))
    check_submission(out, {asked(graph).identifier: asked(graph) for graph in graphs})
    note(f"{rows} rows in {out}")


@rank.command
def check(submission: Path, *, store: Path | None = None, side: str = "test", json: _Json = False) -> None:
    """Check an answer file against the competition's rules.

    Args:
        submission: The CSV file.
        store: Compares rows with the graphs of this store; else with the published test set's numbers.
        side: Which side of the store's split is asked for.
        json: Print the number of rows as JSON.
    """
    wanted = None
    if store is not None:
        graphs = ConfigurationStore.open(store).graphs(side=side)
        wanted = {question.identifier: question for question in map(asked, graphs)}
    found = check_submission(submission, wanted)
    if json:
        print_json(found)
    else:
        print_table(("collection", "rows"), found.items(), right=("rows",))


@rank.command
def tune(
    *,
    recorded: Path,
    budget: int,
    seeds: int = 1,
    random_share: float = TuningPlan.random_share,
    check_share: float = TuningPlan.check_share,
    json: _Json = False,
) -> None:
    """Measure a few configurations of a program, rank the rest, and name the best.

    Args:
        recorded: A layout file: its runtimes stand in for measurements made now.
        budget: How many configurations are measured.
        seeds: How often that is repeated, each time with other draws.
        random_share: The part of the budget that is drawn by chance; then the least certain are measured.
        check_share: The part of the budget kept for those predicted to be the fastest.
        json: Print every repetition as JSON.
    """
    if seeds < 1:
        raise InvalidSetting(f"seeds must be at least 1, not {seeds}")
    plan = TuningPlan(budget, random_share, check_share)
    found = tune_recorded(recorded, plan, range(seeds))
    if json:
        print_json(found)
        return
    columns = (
        "seed",
        "best configuration",
        "runtime, ms",
        "slower than the best",
        "tau-b of the rest",
        "OPA",
    )
    rows = [
        (
            seed,
            run.best,
            f"{run.runtime_ns / 1e6:.3f}",
            f"{run.slowdown:.3%}",
            f"{run.tau_b:.4f}",
            f"{run.opa:.4f}",
        )
        for seed, run in enumerate(found)
    ]
    title = f"{found[0].measured} of {found[0].distinct:,} different configurations measured"
    print_table(columns, rows, right=columns, title=title)
    if seeds > 1:
        note(f"tau-b over seeds: {_interval(over_seeds([run.tau_b for run in found]))}")


def _scorer(scores: Path | None, baseline: str | None, measured: int, seed: int) -> Scorer:
    if (scores is None) == (baseline is None):
        raise InvalidSetting("Give either a file of --scores or a --baseline")
    if scores is not None:
        return from_file(scores)
    return by_chance(seed) if baseline == "random" else by_measuring(measured, seed)


def _print_store(store: ConfigurationStore, json: bool) -> None:
    sides: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in store.entries:
        sides.setdefault((entry["collection"], entry["side"]), []).append(entry)
    if json:
        print_json({"fingerprint": store.fingerprint, "graphs": store.entries})
        return
    columns = ("collection", "side", "graphs", "nodes, at most", "configurations", "size")
    rows = [
        (
            *key, len(graphs), f"{max(graph['nodes'] for graph in graphs):,}",
            f"{sum(graph['configurations'] for graph in graphs):,}",
            size_in_words(sum(graph["bytes"] for graph in graphs)),
        )
        for key, graphs in sorted(sides.items())
    ]  # fmt: skip
    print_table(columns, rows, right=columns[2:])


def _interval(interval: Interval) -> str:
    return f"{interval.value:.4f} [{interval.low:.4f}, {interval.high:.4f}]"
