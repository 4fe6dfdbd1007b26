"""`apportion analyze`: one of the five data-flow analyses, from some roots of a program graph."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from json import dumps
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray

from apportion.advise.analyses import Row, chosen_roots, row_as_json, rows_of
from apportion.advise.learned_analyses import labels_of, run_learned
from apportion.cli.building import USUAL, Building
from apportion.cli.show import note, print_table
from apportion.errors import AnalysisError, InvalidSetting, UnknownName
from apportion.program import graph_of
from apportion.program.analysis import (
    AnalysisRun,
    Mode,
    eligible_roots,
    no_eligible_root,
    run,
)
from apportion.program.drawing import draw
from apportion.program.exchange import load_json
from apportion.program.graph import ProgramGraph
from apportion.program.llvm import GraphOptions
from apportion.settings import replace_file

ROOT_COLOUR, LABEL_COLOUR = "#d7301f", "#fdbb5c"
_SHOWN = 12
_PICTURES = (".svg", ".html", ".dot")


def analyze(
    file: Path,
    *,
    analysis: Literal["reachability", "dominance", "datadep", "liveness", "subexpressions"],
    root: int | None = None,
    roots: str | None = None,
    seed: int = 0,
    mode: Mode = "exact",
    learned: Annotated[bool, Parameter(negative="")] = False,
    model: str | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    out: Path | None = None,
    function: str | None = None,
    building: Building = USUAL,
) -> int:
    """Run a data-flow analysis over a program graph.

    Prints, for each root, how many steps the analysis takes, the active count and the labelled nodes. Without
    --root or --roots it takes min(⌈nodes/10⌉, 10) eligible roots, drawn with the seed.

    Args:
        file: Source (.c .cc .cpp .cl), LLVM IR (.ll), bitcode (.bc), or a graph that `apportion graph --json`
            printed (.json), whose node numbers are kept.
        analysis: What to ask of the program.
        root: The node to start from.
        roots: Several: `all`, `sample:N` (drawn with the seed), or numbers such as `3,17,20`.
        seed: Draws the same sample again.
        mode: The textbook analysis (exact), or that of ProGraML 0.3.2 with its faults (reference).
        learned: Also ask the network that is shipped for this analysis, and print how far it agrees.
        model: With --learned: the name or the folder of another network.
        json: Print one JSON object: analysis, eligible, and runs of [root, steps, active, [labelled nodes]];
            where the reference gives up, its error takes the place of steps.
        out: Draw the graph here with the root and the labelled nodes coloured: .svg, .html or .dot.
        function: Only this function or kernel, with what it calls.
    """
    if out is not None and out.suffix not in _PICTURES:
        raise UnknownName("form of picture", out.suffix, _PICTURES)
    graph = _read(file, function, building)
    eligible = _eligible(graph, analysis, mode, json)
    chosen = chosen_roots(graph, analysis, eligible, root=root, roots=roots, seed=seed, mode=mode)
    if out is not None:
        _draw(graph, analysis, mode, chosen, out, title=str(file))
    if learned:
        _print_learned(graph, analysis, chosen, mode, json, model)
        return 0
    runs = rows_of(graph, analysis, chosen, mode)
    if json:
        _print_json(analysis, eligible, runs)
    else:
        _print_table(graph, f"{analysis}, {mode}: {len(eligible):,} eligible roots", runs)
    return 0


def _read(file: Path, function: str | None, building: Building) -> ProgramGraph:
    if file.suffix == ".json" and building.language is None:
        if function is not None:
            raise InvalidSetting(f"--function chooses from a program; {file} already is a graph")
        return load_json(file)
    return graph_of(building.source(file), graph=GraphOptions(function=function))


def _eligible(graph: ProgramGraph, analysis: str, mode: Mode, json: bool) -> NDArray[np.int32]:
    """The eligible roots, of which there must be some; with `json` a failure is also an object to read."""
    try:
        eligible = eligible_roots(graph, analysis, mode)
    except AnalysisError as error:
        if json:
            print(dumps({"analysis": analysis, "init_error": str(error)}))
        raise
    if len(eligible) == 0:
        if json:
            print(dumps({"analysis": analysis, "eligible": [], "runs": []}))
        raise no_eligible_root(graph, analysis)
    return eligible


def _print_json(analysis: str, eligible: NDArray[np.int32], runs: Iterator[Row]) -> None:
    """Print run by run, for the object can be larger than memory; nothing before the first run is there."""
    separator = f'{{"analysis": {dumps(analysis)}, "eligible": {dumps(eligible.tolist())}, "runs": ['
    for row in runs:
        sys.stdout.write(separator + dumps(row_as_json(row)))
        separator = ", "
    sys.stdout.write("]}\n")


def _print_table(graph: ProgramGraph, title: str, runs: Iterator[Row]) -> None:
    rows = []
    for root, steps, active, labelled, error in runs:
        more = f" … {len(labelled) - _SHOWN:,} more" if len(labelled) > _SHOWN else ""
        what = graph.full_text(root) or graph.text(root)
        nodes = " ".join(str(node) for node in labelled[:_SHOWN]) + more
        counts = ("", "") if error is not None else (f"{steps:,}", f"{active:,}")
        rows.append((root, what.splitlines()[0] if what else "", *counts, error or nodes))
    print_table(
        ("root", "node", "steps", "active", "labelled nodes"),
        rows,
        title=title,
        right=("root", "steps", "active"),
    )


def _print_learned(
    graph: ProgramGraph,
    analysis: str,
    roots: NDArray[np.int64],
    mode: Mode,
    json: bool,
    model: str | None,
) -> None:
    """The analysis' labels and the network's side by side."""
    trained_on = labels_of(analysis, model)
    rows, objects = [], []
    for exact, guess in zip(
        rows_of(graph, analysis, roots, mode), run_learned(graph, analysis, roots, model=model), strict=True
    ):
        root, steps, active, labelled, error = exact
        said = np.flatnonzero(guess.labels).tolist()
        truth = set(labelled)
        right = len(truth & set(said))
        f1 = 2 * right / (len(truth) + len(said)) if truth or said else 1.0
        objects.append(
            {"root": root, "steps": error or steps, "labelled": labelled, "learned": said, "f1": f1}
        )
        missed, wrong = len(truth) - right, len(said) - right
        rows.append(
            (root, error or f"{steps:,}", f"{active:,}", f"{len(said):,}", missed, wrong, f"{f1:.3f}")
        )
    if json:
        print(dumps({"analysis": analysis, "mode": mode, "trained_on": trained_on, "runs": objects}))
        return
    columns = ("root", "steps", "labels", "learned", "missed", "wrong", "F1")
    print_table(columns, rows, title=f"{analysis}, {mode}, beside what a network says", right=columns)
    if trained_on != mode:
        note(f"The network has learnt the labels of --mode {trained_on}, which differ from {mode}'s.")


def _draw(
    graph: ProgramGraph, analysis: str, mode: Mode, roots: NDArray[np.int64], out: Path, *, title: str
) -> None:
    if len(roots) != 1:
        raise InvalidSetting(f"A picture shows one root, and {len(roots):,} are chosen. Name it with --root")
    found: AnalysisRun = run(graph, analysis, roots, mode)[0]
    if found.error is not None:
        raise AnalysisError(f"Nothing to draw from root {found.root}: {found.error}")
    highlight = {int(node): LABEL_COLOUR for node in np.flatnonzero(found.labels)}
    highlight[found.root] = ROOT_COLOUR
    heading = f"{title}: {analysis} from node {found.root}"
    if out.suffix == ".dot":
        text = draw.dot(graph, highlight=highlight, title=heading)
    else:
        meaning = {ROOT_COLOUR: "root", LABEL_COLOUR: analysis}
        picture = draw.svg if out.suffix == ".svg" else draw.html
        text = picture(graph, highlight=highlight, meaning=meaning, title=heading)
    replace_file(out, text)
    note(f"Wrote {out}")
