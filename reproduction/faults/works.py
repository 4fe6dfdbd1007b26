"""The verbs that write, each with an input that takes a second or two, and how results are compared."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from apportion.data.published import tpugraphs
from apportion.data.published.tpugraphs import LayoutFile, TensorGraph

SAXPY = """
kernel void saxpy(const float a, global const float *x, global float *y) {
    y[get_global_id(0)] += a * x[get_global_id(0)];
}
"""
SLOW = """
kernel void slow(global float *y) {
    float v = get_global_id(0);
    for (int i = 0; i < 2000; ++i) v = v * 0.5f + 1.0f;
    y[get_global_id(0)] = v;
}
"""
EXPERIMENT = """
task = "reachability"
data = "{data}"
device = "cpu"
node_budget = 400

[hyperparameters]
width = 6
steps = 3

[optimisation]
learning_rate = 1e-2
max_steps = 24
validate_every = 4
"""
PRODUCT = """\
HloModule product
ENTRY main {
  a = f16[1024,512] parameter(0)
  b = f16[512,2048] parameter(1)
  ROOT c = f32[1024,2048] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
TUNED = """\
import apportion

def add(*, step):
    return sum(range(0, 2000, step))

tunable = apportion.Tunable(add, {"step": (1, 2, 4, 8)})
"""
_VOLATILE = re.compile(
    r"second|date|memory|hardware|time|host|process|calibrat|wall|worth|spread|power", re.IGNORECASE
)
"Names of values that differ between two runs of the same work."

Prepare = Callable[[Path, Callable[[list[str]], None]], None]


@dataclass(frozen=True)
class Work:
    """One verb, on an input of its own."""

    name: str
    prepare: Prepare
    "Makes the input in an empty folder; it may run verbs."
    command: str
    "What is run in that folder, in words without spaces."
    leaves: str
    "Files and folders, with spaces between."
    again: str = ""
    "What it is called with to go on, where that differs."
    measures: bool = False
    "Its results are times, which no two runs share: it is compared by the names of its results."

    @property
    def words(self) -> list[str]:
        """The command."""
        return self.command.split()

    @property
    def out(self) -> list[str]:
        """What it leaves."""
        return self.leaves.split()

    def resumed(self) -> list[str]:
        """The command that goes on after an interruption."""
        return self.again.split() or self.words


def results(folder: Path, work: Work) -> dict[str, str]:
    """Each file that a work leaves, with a digest of what does not differ between two equal runs."""
    found = {}
    for name in work.out:
        place = folder / name
        files = sorted(place.rglob("*")) if place.is_dir() else [place] if place.exists() else []
        for path in files:
            if path.is_file() and not path.name.startswith("."):
                found[str(path.relative_to(folder))] = _digest(path, folder, work)
    return found


def _digest(path: Path, folder: Path, work: Work) -> str:
    data = path.read_bytes()
    if work.measures:
        return "there" if data else "empty"
    if path.suffix in (".json", ".jsonl", ".html", ".md"):
        text = data.decode(errors="replace").replace(str(folder), "FOLDER")
        if path.suffix == ".json":
            return json.dumps(_lasting(json.loads(text)), sort_keys=True)
        if path.suffix == ".jsonl":
            return "\n".join(
                json.dumps(_lasting(json.loads(line)), sort_keys=True) for line in text.splitlines()
            )
        return "there" if text else "empty"
    if path.suffix == ".parquet":  # after an interruption new rows may stand behind those that were there
        table = pl.read_parquet(data)
        data = "\n".join([str(table.schema), *sorted(map(repr, table.iter_rows()))]).encode()
    return hashlib.sha256(data).hexdigest()


def _lasting(value: object) -> object:
    if isinstance(value, dict):
        return {key: _lasting(each) for key, each in value.items() if not _VOLATILE.search(str(key))}
    return [_lasting(each) for each in value] if isinstance(value, list) else value


def program(number: int) -> str:
    """LLVM IR of a function with some additions, a branch and two returns."""
    additions = [f"  %v{i + 1} = add i32 %v{i}, {number + i}" for i in range(3 + number)]
    last = f"  ret i32 %v{1 + number}"
    return "\n".join(
        [
            f"define i32 @f{number}(i32 %v0) {{", *additions, f"  %c = icmp eq i32 %v{number}, 0",
            "  br i1 %c, label %x, label %y", "x:", "  ret i32 %v0", "y:", last, "}", "",
        ]
    )  # fmt: skip


def _programs(folder: Path, run: Callable[[list[str]], None]) -> None:
    (folder / "programs").mkdir()
    for number in range(15):
        (folder / "programs" / f"program{number}.ll").write_text(program(number))


def _one_program(folder: Path, run: Callable[[list[str]], None]) -> None:
    """A program, and the graph of another where the result goes."""
    (folder / "old.ll").write_text(program(9))
    (folder / "f.ll").write_text(program(3))
    run(["graph", "old.ll", "--out", "out.parquet"])


def _dataset(folder: Path, run: Callable[[list[str]], None]) -> None:
    _programs(folder, run)
    run(["dataset", "dataflow", "programs", "--out", "store"])


def _packed(folder: Path, run: Callable[[list[str]], None]) -> None:
    _dataset(folder, run)
    run(["dataset", "pack", "store", "packed.tar.xz"])


def _layouts(folder: Path, run: Callable[[list[str]], None]) -> None:
    place = folder / "layout" / "xla" / "random" / "train"
    place.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(6):
        nodes = 3 + number
        graph = TensorGraph(
            np.full(nodes, 24, np.uint8), generator.random((nodes, 140), np.float32),
            np.array([[i + 1, i] for i in range(nodes - 1)], np.int64), np.array([0, nodes], np.int64),
        )  # fmt: skip
        features = np.full((4, 2, 18), -1, np.float32)
        features[1:, 0, 0], features[2, 1, :2] = 1, (0, 1)
        file = LayoutFile(graph, np.array([1, 2]), np.array([40, 30, 20, 30 + number]), features)
        tpugraphs.write(place / f"graph{number}.npz", file)


def _experiment(folder: Path, run: Callable[[list[str]], None]) -> None:
    _dataset(folder, run)
    (folder / "small.toml").write_text(EXPERIMENT.format(data=folder / "store"))


def _kernel(folder: Path, run: Callable[[list[str]], None]) -> None:
    (folder / "slow.cl").write_text(SLOW)


def _product(folder: Path, run: Callable[[list[str]], None]) -> None:
    (folder / "product.hlo").write_text(PRODUCT)


def _predictions(folder: Path, run: Callable[[list[str]], None]) -> None:
    (folder / "predicted.csv").write_text("class,predicted:v100,predicted:p100\nbert,100,150\nlstm,80,20\n")


def _tunable(folder: Path, run: Callable[[list[str]], None]) -> None:
    (folder / "tuned.py").write_text(TUNED)


def _nothing(folder: Path, run: Callable[[list[str]], None]) -> None:
    pass


_TRAIN = "train small.toml --out run"
WORKS = {
    work.name: work
    for work in (
        Work("graph", _one_program, "graph f.ll --out out.parquet", "out.parquet"),
        Work("graphs", _programs, "graph programs --out graphs.parquet --jobs 2", "graphs.parquet"),
        Work(
            "dataset dataflow",
            _programs,
            "dataset dataflow programs --out store",
            "store/columns store/store.json store/names.txt store/vocabulary.csv store/failures.jsonl",
        ),
        Work("dataset pack", _dataset, "dataset pack store packed.tar.xz", "packed.tar.xz"),
        Work("dataset unpack", _packed, "dataset unpack packed.tar.xz laid-out", "laid-out"),
        Work(
            "rank pack",
            _layouts,
            "rank pack layout --out packed --collection layout:xla:random --side train",
            "packed",
        ),
        Work(
            "schedule simulate",
            _nothing,
            "schedule simulate --format synthetic --systems a=2 b=2 --jobs 200 "
            "--jobs-out jobs.parquet --trace-out trace.parquet --report report.html",
            "jobs.parquet trace.parquet report.html",
        ),
        Work(
            "analyze",
            _one_program,
            "analyze f.ll --analysis reachability --root 2 --out labels.svg",
            "labels.svg",
        ),
        Work("rank featurise", _product, "rank featurise product.hlo --out features.npz", "features.npz"),
        Work(
            "schedule export",
            _predictions,
            "schedule export --for flux --predictions predicted.csv --slot core=4 --command f --out tasks",
            "tasks",
        ),
        Work(
            "tune", _tunable, "tune tuned.py:tunable --budget 4 --out tuned.json", "tuned.json", measures=True
        ),
        Work("run", _kernel, "run slow.cl -n 4096 --out y=y.npy", "y.npy"),
        Work(
            "train", _experiment, "train small.toml --out run", "run", "train small.toml --out run --resume"
        ),
        Work(
            "measure",
            _kernel,
            "measure slow.cl --out measured --sizes 256,512 --local-sizes 32 --seconds 0.05 "
            "--pocl-instances 2 --threads 1",
            "measured",
            measures=True,
        ),
    )
}
