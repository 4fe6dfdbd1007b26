"""`python -m reproduction pages`: every page of docs/results, made again from what is stored of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from apportion.cli.show import note, print_table
from apportion.data.artifact import read_bytes
from apportion.errors import UnknownName
from apportion.settings import replace_file
from reproduction.ablation.run import ablation
from reproduction.campaign.run import campaign
from reproduction.collect.run import describe
from reproduction.corpus_opencl.run import corpus_opencl
from reproduction.dataflow.run import dataflow
from reproduction.energy.run import energy
from reproduction.pages.kept_tables import render, take
from reproduction.policies.run import policies
from reproduction.programs.run import programs
from reproduction.ranking.converged import ranking_curves
from reproduction.relative.programs import relative_programs
from reproduction.scheduling.run import scheduling
from reproduction.service.page import page as service_page
from reproduction.tuning.run import tuning
from reproduction.unseen.run import unseen

RESULTS = Path("docs/results")
COLLECTIONS = ("h200-triton", "cpu-tiles", "cpu-layouts", "h200-xla-gemm")
UNITS = Path("experiments/ablation-units.tar.xz")
RUNS = Path("experiments/dataflow-published-runs.tar.xz")


@dataclass(frozen=True)
class ResultsPage:
    """A page of results: how it was measured, and how it is made again."""

    measured_by: str
    "The command; `...` stands for folders."
    again: Callable[[Path], None] | None = None
    "Makes it again from stored measurements, into a folder; None: from the tables that are kept of it."
    needs: str = ""
    "A published dataset that making it again needs."


@contextmanager
def _unpacked(archive: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
        yield Path(folder)


def _ablation(out: Path) -> None:
    with _unpacked(UNITS) as folder:
        units = next(folder.rglob("*.json")).parent
        ablation(only="page", out=units, page=out / "ablation.md")


def _dataflow_published(out: Path) -> None:
    with _unpacked(RUNS) as folder:
        dataflow(
            settings=Path("experiments/dataflow-published.toml"), runs=folder,
            out=out / "dataflow-published.md",
        )  # fmt: skip


def _relative_programs(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        relative_programs(results=Path(folder) / "folds.jsonl", out=out / "relative-programs.md")


def _ranking_curves(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ranking_curves(results=Path(folder) / "fits.jsonl", out=out / "ranking-curves.md")


def _hostile(out: Path) -> None:
    if out.resolve() != RESULTS.resolve():  # the page is made of the records beside it
        shutil.copytree(RESULTS / "hostile", out / "hostile", dirs_exist_ok=True)
    command = [sys.executable, "-m", "tests.hostile", "--page", str(out / "hostile.md")]
    subprocess.run(command, check=True)


def _collections(out: Path) -> None:
    folders = tuple(Path("experiments/collections") / name for name in COLLECTIONS)
    describe(folders, budgets=(12, 24), seeds=3, out=out / "collections.md")


PAGES = {
    "ablation": ResultsPage("python -m reproduction ablation --device cuda", _ablation, "cgo17"),
    "campaign": ResultsPage(
        "tools/campaign.sh, then python -m reproduction campaign --results ...",
        lambda out: campaign(docs=out),
    ),
    "co-execution": ResultsPage("python -m reproduction efficiency --large, first-launches"),
    "collections": ResultsPage("python -m reproduction collect measure ...", _collections),
    "corpus-opencl": ResultsPage(
        "python -m reproduction corpus-opencl",
        lambda out: corpus_opencl(stored=True, out=out / "corpus-opencl.md"),
    ),
    "counters": ResultsPage("python -m benchmarks.counters --rounds 5 --out ..."),
    "counters-exactness": ResultsPage("python -m benchmarks.exactness"),
    "dataflow": ResultsPage("python -m reproduction dataflow --store ... --exact-store ..."),
    "dataflow-corpus": ResultsPage("python -m reproduction.dataflow.corpus --out ..."),
    "dataflow-published": ResultsPage(
        "python -m reproduction dataflow --settings experiments/dataflow-published.toml --store ...",
        _dataflow_published,
    ),
    "device-mapping": ResultsPage("python -m reproduction device-mapping"),
    "forward-pass": ResultsPage("python benchmarks/forward.py --device cuda --out ..."),
    "energy": ResultsPage("tools/lent-programs.sh", lambda out: energy(page=out / "energy.md")),
    "fuzzing": ResultsPage("python -m reproduction.fuzzing.ir, .repetition, faults, kills"),
    "graphs": ResultsPage("python -m benchmarks graphs"),
    "hostile": ResultsPage("python -m tests.hostile ...", _hostile),
    "load-balance": ResultsPage("python -m reproduction load-balance"),
    "papers-models": ResultsPage("python -m reproduction networks, relative-performance --ship"),
    "predict": ResultsPage("python -m benchmarks predict"),
    "policies": ResultsPage(
        "python -m reproduction policies fit; python -m reproduction policies replay ...",
        lambda out: policies(out=out / "policies.md"),
    ),
    "programs": ResultsPage("tools/lent-programs.sh", lambda out: programs(out=out / "programs.md")),
    "rankers": ResultsPage("python -m reproduction rankers, ranker-starts"),
    "ranking-curves": ResultsPage("python -m reproduction ranking-curves", _ranking_curves, "tpugraphs"),
    "ranking-networks": ResultsPage(
        "python -m reproduction tensor-ranking --comparison experiments/converged-networks.toml ..."
    ),
    "relative-programs": ResultsPage("tools/lent-models.sh", _relative_programs),
    "relative-performance": ResultsPage("python -m reproduction relative-performance --measured ..."),
    "scheduling-policies": ResultsPage(
        "python -m reproduction scheduling --measure", lambda out: scheduling(out=out)
    ),
    "scheduling-reference": ResultsPage(
        "python -m reproduction scheduling --measure", lambda out: scheduling(out=out)
    ),
    "scheduling-slurm-ray": ResultsPage("python -m pytest tests/schedule/slurm tests/jobs"),
    "service": ResultsPage(
        "python -m reproduction.service.load ..., python -m reproduction.service.abuse ...",
        lambda out: replace_file(out / "service.md", service_page()),
    ),
    "tensor-ranking": ResultsPage("python -m reproduction tensor-ranking --data ... --collection ..."),
    "tuning": ResultsPage(
        "python -m reproduction tuning", lambda out: tuning(stored=True, out=out / "tuning.md")
    ),
    "unseen": ResultsPage("python -m reproduction unseen", lambda out: unseen(out=out / "unseen.md"), "chai"),
}
"Each file of docs/results. Where measurements are stored, the page is computed from them anew; of the other \
pages the tables are stored."


def results_pages(
    *names: str, out: Path = RESULTS, taken: Annotated[bool, Parameter(name="--take", negative="")] = False
) -> None:
    """Make results pages again from what is stored, without the devices; without a name, list them all.

    Args:
        names: pages, for example `graphs`; `all` for every one.
        out: the folder of the pages.
        taken: the other way round: store the words and tables of pages that were edited or measured again.
    """
    if not names:
        rows = [
            (name, "its tables" if page.again is None else "measurements", page.measured_by, page.needs)
            for name, page in PAGES.items()
        ]
        print_table(("page", "made again from its stored", "measured by", "needs"), rows)
        return
    for name in PAGES if names == ("all",) else names:
        if name not in PAGES:
            raise UnknownName("results page", name, PAGES)
        page = PAGES[name]
        out.mkdir(parents=True, exist_ok=True)
        if page.again is not None:
            page.again(out)
            continue
        path = out / f"{name}.md"
        if taken:
            take(name, read_bytes(path).decode())
        replace_file(path, render(name))
        note(f"The page is {path}")
