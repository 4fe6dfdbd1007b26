"""`apportion rank`: compiler configurations of tensor programs, packed, ranked, scored and tuned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from apportion.cli.rank_featurise import featurise
from apportion.cli.rank_predict import predict
from apportion.cli.rank_train import evaluate, print_summary, train
from apportion.cli.show import note, print_json, print_table, progress, size_in_words
from apportion.cli.tune import tune
from apportion.data.configurations import ConfigurationStore
from apportion.data.packing import pack as pack_files
from apportion.data.published import tpugraphs
from apportion.errors import InvalidSetting
from apportion.learn.ranking.rankings import (
    Scorer,
    asked,
    by_chance,
    by_measuring,
    by_models,
    from_file,
    rank_graphs,
)
from apportion.learn.ranking.rankings import summary as summary_of
from apportion.learn.ranking.submission import check_submission, write_submission

rank = App(
    name="rank", help="Compiler configurations of tensor programs: measure, pack, score, submit and tune."
)
rank.command(featurise)
rank.command(predict)
rank.command(tune)
rank.command(train)
rank.command(evaluate)

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
def score(
    store: Path,
    *,
    scores: Path | None = None,
    model: list[Path] | None = None,
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
        model: Instead of a file: folders that `apportion rank train` wrote, each for the collections that it
            was trained with.
        baseline: Instead of either: random scores, or a ridge regression on measured configurations.
        measured: How many configurations of each graph the ridge regression measures.
        side: Which side of the split is ranked.
        collection: Only this one.
        seed: Seed of the random numbers of a baseline.
        json: Print every graph and the summary as JSON.
    """
    scorer = _scorer(scores, model, baseline, measured, seed)
    graphs = ConfigurationStore.open(store).graphs(collection=collection, side=side)
    results = rank_graphs(progress(graphs, label="ranking", quiet=json), scorer)
    print_summary(summary_of(results), [results], json)


@rank.command
def submit(
    store: Path, *, out: Path, scores: Path | None = None, model: list[Path] | None = None, side: str = "test"
) -> None:
    """Write the competition's answer file, and check it against its rules.

    Args:
        store: The folder that `apportion rank pack` wrote.
        out: The CSV file.
        scores: An NPZ file with an array for each graph, called COLLECTION:NAME; low scores are fast.
        model: Instead of a file: folders that `apportion rank train` wrote, each for the collections that it
            was trained with.
        side: Which side of the split is answered.
    """
    scorer = _scorer(scores, model, None, 0, 0)
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


def _scorer(
    scores: Path | None, models: list[Path] | None, baseline: str | None, measured: int, seed: int
) -> Scorer:
    if sum(given is not None for given in (scores, models, baseline)) != 1:
        raise InvalidSetting("Give one of: a file of --scores, a trained --model, a --baseline")
    if scores is not None:
        return from_file(scores)
    if models is not None:
        return by_models(models)
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
