"""`python -m reproduction`: make a published table or a results page again; a line here for each."""

from __future__ import annotations

import sys

from cyclopts import App

from apportion import __version__
from apportion.cli import serve

app = App(
    name="reproduction",
    version=__version__,
    help="Make a published table or a results page again.",
    suppress_keyboard_interrupt=False,
)

REPRODUCTIONS = {
    "pages": (
        "reproduction.pages.run:results_pages",
        "Every results page again, from what is stored of it, without the hardware.",
    ),
    "dataflow": (
        "reproduction.dataflow.run:dataflow",
        "Networks that learn the five data-flow analyses (thesis, Table 4.1).",
    ),
    "device-mapping": (
        "reproduction.kernels.run:device_mapping",
        "Which device is faster for a kernel (thesis, Table 4.2).",
    ),
    "load-balance": (
        "reproduction.kernels.run:load_balance",
        "The CPU's share of a kernel's work, by classical predictors.",
    ),
    "ablation": (
        "reproduction.ablation.run:ablation",
        "Every network of the thesis' Chapter 5 (Tables 5.1, 5.2 and Figure 5.3).",
    ),
    "unseen": (
        "reproduction.unseen.run:unseen",
        "The shipped models on kernels never seen (thesis, Table 5.3).",
    ),
    "relative-programs": (
        "reproduction.relative.programs:relative_programs",
        "Relative performance of our own programs on six systems.",
    ),
    "relative-performance": (
        "reproduction.relative.run:relative_performance",
        "Which systems are faster for a run, from its counters (Nichols, Yeom and Bhatele, Figures 2 to 5).",
    ),
    "predictor": (
        "reproduction.kernels.run:predictor",
        "Fit the models that `apportion predict` uses, and check their intervals.",
    ),
    "networks": (
        "reproduction.ship.networks:networks",
        "Train the thesis' networks on all rows and make them ready to answer.",
    ),
    "rankers": (
        "reproduction.ship.rankers:rankers",
        "Train a ranker for each collection and make them ready to order configurations.",
    ),
    "ranker-starts": (
        "reproduction.ship.ranker_starts:ranker_starts",
        "What a search gains by starting from a ranker's order, on recorded runtimes.",
    ),
    "campaign": (
        "reproduction.campaign.run:campaign",
        "Launches on a Xeon with an H200, and how well their best cuts are predicted.",
    ),
    "efficiency": (
        "reproduction.efficiency.run:efficiency",
        "How near co-execution comes to the best cut of each bundled kernel.",
    ),
    "energy": (
        "reproduction.energy.run:energy",
        "Time and power of each bundled kernel under cuts of its work, and the cut for each objective.",
    ),
    "programs": (
        "reproduction.programs.run:programs",
        "Programs of many kernels in a session, beside one device, the best assignment and StarPU.",
    ),
    "first-launches": (
        "reproduction.efficiency.first_launches:first_launches_again",
        "What forecasts choose for first launches that were measured, without the devices.",
    ),
    "policies": (
        "reproduction.policies.run:policies",
        "What policies lose over the best cut, launch after launch, on recordings.",
    ),
    "corpus-opencl": (
        "reproduction.corpus_opencl.run:corpus_opencl",
        "Kernels of published packages: how many compile, are predicted, are shared and run.",
    ),
    "collect": (
        "reproduction.collect.run:collect_app",
        "Measure configurations of kernels on this machine, in TpuGraphs' form.",
    ),
    "tensor-ranking": (
        "reproduction.ranking.run:tensor_ranking",
        "Compiler configurations of tensor programs (TPU runtime prediction, Tables 3 to 5).",
    ),
    "ranking-curves": (
        "reproduction.ranking.converged:ranking_curves",
        "The paper's rankers on tiles, trained until they stop learning, and their accuracy meanwhile.",
    ),
    "tuning": (
        "reproduction.tuning.run:tuning",
        "What few measurements find: our search and its peers on fully measured spaces.",
    ),
    "faults": (
        "reproduction.faults.run:faults",
        "What failing writes, syncs and renames do to each verb that writes.",
    ),
    "kills": (
        "reproduction.faults.run:kills",
        "What `kill -9` at random moments does to each verb that writes.",
    ),
    "scheduling": (
        "reproduction.scheduling.run:scheduling",
        "Scheduling policies: parity with Gavel, what wrong predictions cost, 50,000 measured jobs.",
    ),
}
"A page: the function that makes it, and its line in the help. Each lives in a file of its own."

for _name, (_target, _help) in REPRODUCTIONS.items():
    app.command(_target, name=_name, help=_help)


def main(arguments: list[str] | None = None) -> None:
    """Run a reproduction, by default the one that the command line names."""
    serve(app, REPRODUCTIONS, sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    main()
