"""Time `apportion predict` by stages, against the thesis' network on the same core, by both engines.

    stages      graph, features and answer of the CGO17 kernel of median size, after a warm-up; a cold command
    batch       all rows of a table at once, against the forward pass of the thesis' port (six steps of gated
                messages by PyTorch Geometric, means after each step, extended readout) over the same graphs
    compiler    rows that a model learned from, compiled again from their sources: how far answers move
    engines     NumPy and ONNX Runtime, whose answers are found to be the same: a launch, a batch, the start

Times are those of the CPU, not of the clock, so that a busy machine measures the same; one thread. It
needs the CGO17 files: `apportion data path cgo17` says where, and ../shared/data/cgo17 is looked at too.

    python -m benchmarks predict
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from apportion.advise.describe import describe
from apportion.advise.predictor import CONFIDENCE, forests_model
from apportion.data.catalogue import dataset_called
from apportion.data.published.cgo17 import read
from apportion.data.records import Example
from apportion.errors import ApportionError, MissingPackage
from apportion.learn import engines
from apportion.learn.shares.kernel_model import Answers, KernelModel, Numbers
from apportion.program.graph import Flow, ProgramGraph
from apportion.program.kernel.features import features_of, in_order, inputs_of, vector_of
from apportion.program.llvm import graph_of_ir
from apportion.program.source import Source

HIDDEN, STEPS, POSITIONS, TOKENS = 64, 6, 4096, 2231


class PortLayer(MessagePassing):
    """The port's message passing: a map per edge kind, a gate by position, the mean, and a GRU."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.map = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.gate = nn.Linear(HIDDEN, HIDDEN)
        self.update_state = nn.GRUCell(HIDDEN, HIDDEN)

    def forward(
        self, state: Tensor, edges: Tensor, source: Tensor, position: Tensor, waves: Tensor
    ) -> Tensor:
        looked_up = self.map(state).view(-1, HIDDEN)[source]
        gates = 2 * torch.sigmoid(self.gate(waves))[position]
        heard = self.propagate(edges, looked_up=looked_up, gates=gates, size=(len(state), len(state)))
        return self.update_state(heard, state)  # type: ignore[no-any-return]

    def message(self, looked_up: Tensor, gates: Tensor) -> Tensor:
        return looked_up * gates


class Port(nn.Module):
    """The thesis' final load balancer: means after each of six steps, and the extended readout."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, HIDDEN)
        self.layers = nn.ModuleList([PortLayer(), PortLayer()])
        entering = STEPS * HIDDEN + 2
        self.normal = nn.BatchNorm1d(entering)
        self.readout = nn.Sequential(
            nn.Linear(entering, 192), nn.ReLU(), nn.Linear(192, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )
        angle = torch.arange(POSITIONS)[:, None] / 10_000 ** (torch.arange(0, HIDDEN, 2) / HIDDEN)
        self.register_buffer("waves", torch.cat([angle.sin(), angle.cos()], 1))

    def forward(self, text: Tensor, edges: Tensor, kind: Tensor, position: Tensor, inputs: Tensor) -> Tensor:
        state, source, means = self.embedding(text), edges[0] * 3 + kind, []
        for step in range(STEPS):
            state = self.layers[step % 2](state, edges, source, position, self.waves)
            means.append(state.mean(0, keepdim=True))
        answer: Tensor = self.readout(self.normal(torch.cat([*means, inputs], 1)))
        return answer


def port_inputs(graph: ProgramGraph, example: Example) -> tuple[Tensor, ...]:
    """A graph as the port sees it; which text has which number does not matter for time."""
    kept = graph.edge_flow < Flow.TYPE
    return (
        torch.from_numpy(graph.node_text.astype(np.int64) % TOKENS),
        torch.from_numpy(graph.edges[:, kept].astype(np.int64)),
        torch.from_numpy(graph.edge_flow[kept].astype(np.int64)),
        torch.from_numpy(graph.edge_position[kept].astype(np.int64)),
        torch.log1p(torch.tensor([[float(example.work_group), float(example.bytes_moved)]])),
    )


def clock(action: Callable[[], object], *, least: int = 7, seconds: float = 1.0) -> float:
    """Milliseconds of CPU time of one call: the median of as many as fit into `seconds`, after a warm-up."""
    action()
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < least or (time.perf_counter() - began < seconds and len(times) < 300):
        start = time.process_time()
        action()
        times.append(1e3 * (time.process_time() - start))
    return statistics.median(times)


def cold(ir: str, times: int = 5) -> tuple[float, float]:
    """Milliseconds of a whole `apportion predict` on a `.ll`: by the clock, and of the CPU; the least."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ll"
        path.write_text(ir, encoding="utf-8", errors="surrogateescape")
        command = [sys.executable, "-c", "from apportion.cli import main; main()", "predict", str(path)]
        command += ["--kernel", "*", "--local-size", "64", "--bytes", "4194304", "--json"]
        found = []
        for _ in range(times):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=_as_installed(folder))
            wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            found.append((1e3 * wall, 1e3 * spent))
    return min(wall for wall, _ in found), min(spent for _, spent in found)


def _as_installed(folder: str) -> dict[str, str]:
    """An environment in which modules are compiled once, as pip does when it installs them."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}


_LOADED = """
import sys
from apportion.advise.predictor import CONFIDENCE, forests_model
from apportion.learn import engines
engines.load(sys.argv[1])(forests_model("load-balance", model="cgo17-nvidia-recall"), CONFIDENCE)
print("torch" in sys.modules)
"""


def start(engine: str, times: int = 5) -> float:
    """Milliseconds of CPU time until an engine can answer in a fresh process, which must not load torch."""
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(times):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-c", _LOADED, engine]
            done = subprocess.run(command, check=True, capture_output=True, env=_as_installed(folder))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            if done.stdout.strip() != b"False":
                raise SystemExit(f"The engine {engine} loads torch")
    return 1e3 * min(spent)


def in_turn(actions: dict[str, Callable[[], object]], rounds: int = 3) -> dict[str, float]:
    """Milliseconds of each action: the least of what `clock` finds in some rounds, in which the actions take
    turns, so that other work on the machine meets all of them alike."""
    found = [{name: clock(action) for name, action in actions.items()} for _ in range(rounds)]
    return {name: min(one[name] for one in found) for name in actions}


def ready_engines(model: KernelModel) -> dict[str, Answers]:
    """The engines that are installed, by name."""
    found = {}
    for name in engines:
        try:
            found[name] = engines.load(name)(model, CONFIDENCE)
        except MissingPackage as error:
            print(f"The engine {name} is left out. {error}")
    return found


def compare_stages(ir: str, inputs: Numbers, known: dict[str, Answers]) -> None:
    """A launch of a kernel by its stages, after a warm-up; engines differ in the answer alone."""
    graph = graph_of_ir(ir)
    code, inputs = vector_of(graph)[None, :], inputs[None, :]
    spent = in_turn(
        {
            "graph": lambda: graph_of_ir(ir),
            "features": lambda: in_order(features_of(graph)),
            **{f"answer, {name}": partial(by, code, inputs) for name, by in known.items()},
        }
    )
    print(f"stages of the median kernel ({graph.nodes} nodes), warm: goal 5 ms together")
    for name, each in spent.items():
        print(f"  {name:15} {each:8.3f} ms")
    before = spent["graph"] + spent["features"]
    together = {name: before + spent[f"answer, {name}"] for name in known}
    for name, each in together.items():
        print(f"  together, {name:5} {each:8.3f} ms   {each / together['numpy']:.2f} of NumPy")


def compare_engines(code: Numbers, inputs: Numbers, known: dict[str, Answers]) -> None:
    """All engines on launches, features (N, F) and inputs (N, I): what they say, and how long it takes."""
    parts = ("share", "low", "high", "familiarity", "share_class")
    said = {
        name: np.array([[getattr(one, part) for part in parts] for one in by(code, inputs)])
        for name, by in known.items()
    }
    one = {f"one launch, {name}": partial(by, code[:1], inputs[:1]) for name, by in known.items()}
    every = {f"{len(code)} launches, {name}": partial(by, code, inputs) for name, by in known.items()}
    spent = {**in_turn(one), **in_turn(every), **{f"start, {name}": start(name) for name in known}}
    print("engines: answers without features, and a fresh process until it can answer; none loads torch")
    for name in known:
        difference = float(np.abs(said[name] - said["numpy"]).max())
        if difference > 1e-5:
            raise SystemExit(f"The answers of the engine {name} differ from NumPy's by {difference}")
        for words in ("one launch", f"{len(code)} launches", "start"):
            each = spent[f"{words}, {name}"]
            print(f"  {name:5} {words:13} {each:9.3f} ms   {each / spent[f'{words}, numpy']:.2f} of NumPy")
        if name != "numpy":
            gained = spent["one launch, numpy"] - spent[f"one launch, {name}"]
            later = spent[f"start, {name}"] - spent["start, numpy"]
            print(
                f"  {name}: answers differ from NumPy's by at most {difference:.0e}; its start is paid for "
                f"after {later / gained:,.0f} launches, one by one"
            )


def compare_compiler(examples: list[Example], rows: int, pair: str) -> None:
    """Answers from IR that was learned from, and from the same kernels compiled here."""
    model = forests_model("load-balance", model=f"{pair}-recall")
    moved, familiar, off, off_known = [], [], [], []
    drawn = np.random.default_rng(0).permutation(len(examples))[:rows]
    for example in (examples[number] for number in drawn.tolist()):
        try:
            source = Source(example.source, "opencl", "kernel.cl")
            again = describe(source, kernel="*", vectorized=model.vectorized)
        except ApportionError:
            continue
        if again.recovered is not None:
            continue
        inputs = inputs_of(example.bytes_moved, example.work_group)
        known, here = (
            model.estimate(code, inputs, confidence=CONFIDENCE)
            for code in (vector_of(graph_of_ir(example.ir)), again.code)
        )
        moved.append(abs(known.share - here.share))
        off.append(abs(here.share - example.cpu_share))
        off_known.append(abs(known.share - example.cpu_share))
        familiar.append(here.familiarity)
    strange = np.mean(np.array(familiar) < 0.1)
    print(
        f"compiler: {pair}, {len(moved)} of {len(drawn)} rows compile: shares move by {np.mean(moved):.1f} "
        f"percent and are {np.mean(off):.1f} from their labels ({np.mean(off_known):.1f} by archived IR); "
        f"familiarity {np.mean(familiar):.2f}, "
        f"{strange:.0%} are called strange"
    )


def data_folder() -> Path | None:
    """Where the CGO17 files are, if anywhere."""
    near = Path(__file__).parents[2] / "shared" / "data" / "cgo17"
    for folder in (dataset_called("cgo17").folder, near):
        if (folder / "nvidia.csv").exists():
            return folder
    return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", type=int, default=64, help="graphs that the port is timed on")
    parser.add_argument("--rows", type=int, default=150, help="rows that are compiled again")
    chosen = parser.parse_args()
    folder = data_folder()
    if folder is None:
        print("The CGO17 files are not here; `apportion data check cgo17` says how to get them.")
        return
    torch.set_num_threads(1)
    examples = list(read(folder, "cgo17-nvidia"))
    model = forests_model("load-balance", model="cgo17-nvidia-recall")
    graphs = {ir: graph_of_ir(ir) for ir in dict.fromkeys(example.ir for example in examples)}
    ordered = sorted(examples, key=lambda example: graphs[example.ir].nodes)
    middle = ordered[len(ordered) // 2]
    known = ready_engines(model)
    compare_stages(middle.ir, inputs_of(middle.bytes_moved, middle.work_group), known)
    wall, spent = cold(middle.ir)
    print(
        f"cold `apportion predict` of a .ll: {wall:.0f} ms by the clock, {spent:.0f} ms of CPU: goal 1000 ms"
    )

    all_inputs = np.array([inputs_of(e.bytes_moved, e.work_group) for e in examples])

    def batch() -> None:
        known = {ir: vector_of(graph) for ir, graph in graphs.items()}
        code = np.array([known[example.ir] for example in examples])
        model.estimates(code, all_inputs, confidence=CONFIDENCE)

    ours = clock(batch, least=3) / len(examples)
    port = Port().eval()
    drawn = [ordered[i] for i in np.linspace(0, len(ordered) - 1, chosen.graphs).astype(int)]
    fed = [port_inputs(graphs[example.ir], example) for example in drawn]

    def forward() -> None:
        with torch.no_grad():
            for one in fed:
                port(*one)

    theirs = clock(forward, least=3) / len(fed)
    nodes = [graphs[example.ir].nodes for example in drawn]
    print(
        f"batch of {len(examples)} rows, from graphs: {ours:.3f} ms a row; the port's forward pass: "
        f"{theirs:.2f} ms a graph ({np.mean(nodes):.0f} nodes on average): {theirs / ours:.0f}x, goal 20x"
    )
    for pair in ("cgo17-nvidia", "cgo17-amd"):
        compare_compiler(list(read(folder, pair)), chosen.rows, pair)
    code = np.array([vector_of(graphs[example.ir]) for example in examples])
    compare_engines(code, all_inputs, known)


if __name__ == "__main__":
    main()
