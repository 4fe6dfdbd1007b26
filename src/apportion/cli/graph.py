"""`apportion graph`: program graphs from sources, LLVM IR, bitcode, or folders of them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from rich.text import Text

from apportion.cli.building import COMPILING, USUAL, Building
from apportion.cli.show import note, print_json, print_table, progress
from apportion.errors import ApportionError, InvalidSetting, UnknownName
from apportion.program import corpus, exchange, tables
from apportion.program.compile import CompileOptions
from apportion.program.drawing import draw
from apportion.program.drawing.picture import DECLARED
from apportion.program.graph import Flow, NodeType, ProgramGraph
from apportion.program.llvm import GraphOptions, Variant
from apportion.program.source import Source
from apportion.program.vocabulary import Vocabulary
from apportion.settings import replace_file

_STDIN = Path("-")
_MOST_COMMON = 12
_DEFAULT = CompileOptions()

_BUILDING = Group("How LLVM IR becomes a graph", sort_key=2)


def _no_option(_: object, file: Path) -> None:
    if str(file).startswith("-") and file != _STDIN:
        raise ValueError(f"Unknown option: {file}.")


def graph(
    *files: Annotated[Path, Parameter(allow_leading_hyphen=True, validator=_no_option)],
    json: Annotated[bool, Parameter(negative="")] = False,
    out: Path | None = None,
    vocabulary: Path | None = None,
    alias: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    limit: int = draw.LIMIT,
    jobs: int | None = None,
    building: Building = USUAL,
    opt: Annotated[str, Parameter(name=["--opt", "-O"], group=COMPILING)] = _DEFAULT.optimization,
    compiler: Annotated[str | None, Parameter(group=COMPILING)] = None,
    seconds: Annotated[float, Parameter(group=COMPILING)] = _DEFAULT.seconds,
    variant: Annotated[Variant, Parameter(group=_BUILDING)] = "reference",
    function: Annotated[str | None, Parameter(group=_BUILDING)] = None,
    type_nodes: Annotated[bool, Parameter(negative="", group=_BUILDING)] = False,
    variable_per: Annotated[Literal["use", "definition"], Parameter(group=_BUILDING)] = "use",
    opaque_pointers: Annotated[bool, Parameter(negative="", group=_BUILDING)] = False,
) -> int:
    """Build program graphs from source, LLVM IR or a folder of them.

    Prints a summary, or with --json the graphs, one object a line. A file that cannot be read is reported on
    stderr, the others are still done, and the exit status is 1.

    With --out graphs.parquet any number of files and folders goes into one file, by all cores. Bad files are
    listed at the end; the exit status is 1 only when no file gave a graph. The same command after an
    interruption goes on where it was, and skips what is done; files that failed are tried again.

    Args:
        files: Files (.ll .bc .c .cc .cpp .cxx .cl), folders, or - for standard input (say its --language).
        json: Print graphs in the reference format, one object a line; with several files into --out
            graphs.parquet, print a report instead.
        out: Also write the graph here: .json, .npz, .dot, .svg, .html or .parquet, by the end of its name.
        vocabulary: A vocabulary, tab-separated; the summary says how much of the graph it covers.
        alias: Texts that the vocabulary may count as known: root, struct-pointer, fneg. Repeatable.
        limit: How many nodes a picture shows at most.
        jobs: How many processes work at once. By default one for each processor.
        opt: Optimisation level of the compiler, 0 to 3.
        compiler: ziglang, system, or the name or path of a clang.
        seconds: How long the compiler may take for one file.
        variant: Whose graphs to build: reference, corrected, ddf or development.
        function: Only this function or kernel, with what it calls.
        type_nodes: Make types nodes.
        variable_per: One variable node for each use of a value, or for each definition.
        opaque_pointers: Leave `ptr` as it is instead of recovering what it points to.
    """
    compiling = CompileOptions(
        optimization=opt,
        compiler=compiler,
        seconds=seconds,
    )
    wanted = GraphOptions(
        variant=variant,
        function=function,
        recover_pointees=not opaque_pointers,
        type_nodes=type_nodes,
        variable_per=variable_per,
    )
    recipe = corpus.Recipe(building.language, building.words(), compiling, wanted)
    known = None if vocabulary is None else Vocabulary.read(vocabulary).with_aliases(*alias)
    if not files:
        raise InvalidSetting("Name a file or a folder to build graphs of, or - for standard input")
    if files == (_STDIN,):
        return _one(recipe.graph_of(_standard_input(building)), "<stdin>", json, out, known, limit)
    if _STDIN in files:
        raise InvalidSetting("Standard input (-) goes alone, without other files")
    found = corpus.files_of(files)
    if out is not None and out.suffix == ".parquet":
        return _into_parquet(found, out, recipe, jobs, json)
    if out is not None and len(found) > 1:
        raise InvalidSetting(f"{len(found)} graphs go into one .parquet, not into {out.name}")
    if len(found) == 1:
        return _one(recipe.graph_of(building.source(found[0])), str(found[0]), json, out, known, limit)
    if json:
        return _print_lines(found, recipe, jobs)
    return _summarize_all(found, recipe, jobs, known)


def save(graph: ProgramGraph, path: Path, *, title: str = "", limit: int = draw.LIMIT) -> None:
    """Write a graph in the form that the end of the file's name asks for.

    Raises:
        UnknownName: no form is called so.
    """
    forms: dict[str, Callable[[], None]] = {
        ".json": lambda: exchange.save_json(graph, path),
        ".npz": lambda: exchange.save_npz(graph, path),
        ".dot": lambda: replace_file(path, draw.dot(graph, title=title)),
        ".svg": lambda: replace_file(path, draw.svg(graph, title=title, limit=limit)),
        ".html": lambda: replace_file(path, draw.html(graph, title=title, limit=limit).encode("utf-8")),
        ".parquet": lambda: _write_table(path, [(title, graph)]),
    }
    if path.suffix not in forms:
        raise UnknownName("form of graph file", path.suffix, forms)
    forms[path.suffix]()


def print_summary(graph: ProgramGraph, title: str, vocabulary: Vocabulary | None = None) -> None:
    """Print what a graph holds, for people."""
    nodes, edges = graph.size
    kinds = Counter(graph.node_type.tolist())
    flows = Counter(graph.edge_flow.tolist())
    texts = graph.texts()
    declared = sum(text == DECLARED for text in texts)
    rows = [("nodes", f"{nodes:,}", _parts(kinds, NodeType)), ("edges", f"{edges:,}", _parts(flows, Flow))]
    rows.append(
        (
            "functions",
            f"{len(graph.functions):,}",
            f"{len(graph.functions) - declared:,} defined, {declared:,} declared",
        )
    )
    rows.append(("blocks", f"{_blocks(graph):,}", ""))
    if vocabulary is not None:
        coverage = vocabulary.coverage(graph)
        missed = ", ".join(f"{text} ×{count}" for text, count in coverage.misses[:5])
        rows.append(("vocabulary", f"{coverage.share:.1%}", f"unknown: {missed}" if missed else "all known"))
    print_table(("", "count", "of which"), rows, title=title, right=("count",))
    common = Counter(texts).most_common(_MOST_COMMON)
    print_table(
        ("text", "nodes", ""),
        [
            (text, f"{count:,}", Text("▆" * max(1, round(24 * count / common[0][1]))))
            for text, count in common
        ],
        title="most common texts",
        right=("nodes",),
    )


def _one(
    graph: ProgramGraph, name: str, json: bool, out: Path | None, vocabulary: Vocabulary | None, limit: int
) -> int:
    if out is not None:
        save(graph, out, title=name, limit=limit)
        note(f"Wrote {out}")
    if json:
        print(exchange.json_text(graph))
    else:
        print_summary(graph, name, vocabulary)
    return 0


def _print_lines(files: list[Path], recipe: corpus.Recipe, jobs: int | None) -> int:
    status = 0
    for _, line in corpus.json_lines(files, recipe, workers=jobs):
        if isinstance(line, ApportionError):
            note(f"apportion: {line}")
            status = 1
        else:
            print(line, flush=True)
    return status


def _summarize_all(
    files: list[Path], recipe: corpus.Recipe, jobs: int | None, vocabulary: Vocabulary | None
) -> int:
    rows, failures = [], []
    built = corpus.graphs(files, recipe, workers=jobs)
    for path, graph in progress(built, label="graphs", total=len(files)):
        if isinstance(graph, ApportionError):
            failures.append((path, graph))
            continue
        nodes, edges = graph.size
        covered = [] if vocabulary is None else [f"{vocabulary.coverage(graph).share:.1%}"]
        rows.append((path, f"{nodes:,}", f"{edges:,}", f"{len(graph.functions):,}", *covered))
    numbers = ("nodes", "edges", "functions", *(["vocabulary"] if vocabulary else []))
    if rows:
        print_table(("file", *numbers), rows, right=numbers)
    _report(failures)
    return 1 if failures else 0


def _into_parquet(files: list[Path], out: Path, recipe: corpus.Recipe, jobs: int | None, json: bool) -> int:
    steps = corpus.build(files, out, recipe, workers=jobs)
    built = list(progress(steps, label=f"graphs → {out.name}", total=len(files), quiet=json))
    built.sort(key=lambda step: step.path)
    failures = [(step.path, step.error) for step in built if step.error is not None]
    kept = sum(step.kept for step in built)
    done = len(built) - len(failures)
    if json:
        print_json(
            {
                "out": out,
                "graphs": done,
                "kept": kept,
                "failures": [{"file": path, "reason": str(error)} for path, error in failures],
            }
        )
    elif done:
        earlier = f", {kept:,} of them from an earlier run" if kept else ""
        print(f"{out}: {done:,} graphs{earlier}")
    _report(failures)
    return 0 if done else 1


def _report(failures: list[tuple[Path, ApportionError]]) -> None:
    if failures:
        note(f"apportion: {len(failures):,} files gave no graph:")
        for path, error in failures:
            reason = str(error).splitlines()[0]
            note(f"  {reason if reason.startswith(str(path)) else f'{path}: {reason}'}")


def _standard_input(building: Building) -> Source:
    language = building.language
    if language is None:
        raise InvalidSetting("Say the --language of what comes from standard input")
    data = sys.stdin.buffer.read()
    if language in ("bitcode", "spirv"):
        return Source(data, language, "<stdin>", building.words())
    text = data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    return Source(text, language, "<stdin>", building.words())


def _write_table(path: Path, rows: Iterable[tuple[str, ProgramGraph]]) -> None:
    tables.write_graphs(path, rows)


def _parts(counts: Counter[int], kind: type[NodeType] | type[Flow]) -> str:
    return ", ".join(f"{counts[part]:,} {part.name.lower()}" for part in kind if counts[part])


def _blocks(graph: ProgramGraph) -> int:
    inside = graph.node_type == NodeType.INSTRUCTION
    inside[:1] &= graph.full_text(0) is not None if graph.nodes else True
    return len(set(graph.node_block[inside].tolist()))
