"""`apportion reproduce`: make a published table again, into a results page; a line here for each."""

from __future__ import annotations

from cyclopts import App

reproduce = App(name="reproduce", help="Make a published table again, into a results page.")

REPRODUCTIONS = {
    "dataflow": (
        "apportion.cli.reproducedataflow:dataflow",
        "Networks that learn the five data-flow analyses (thesis, Table 4.1).",
    ),
    "device-mapping": (
        "apportion.cli.reproducekernels:device_mapping",
        "Which device is faster for a kernel (thesis, Table 4.2).",
    ),
    "load-balance": (
        "apportion.cli.reproducekernels:load_balance",
        "The CPU's share of a kernel's work, by classical predictors.",
    ),
    "ablation": (
        "apportion.cli.reproduceablation:ablation",
        "Every network of the thesis' Chapter 5 (Tables 5.1, 5.2 and Figure 5.3).",
    ),
    "unseen": (
        "apportion.cli.reproduceunseen:unseen",
        "The shipped models on kernels never seen (thesis, Table 5.3).",
    ),
    "relative-performance": (
        "apportion.cli.reproducerelative:relative_performance",
        "Which systems are faster for a run, from its counters (the second seed, Figures 2 to 5).",
    ),
    "predictor": (
        "apportion.cli.reproducekernels:predictor",
        "Fit the models that `apportion predict` uses, and check their intervals.",
    ),
    "campaign": (
        "apportion.cli.reproducecampaign:campaign",
        "Launches on a Xeon with an H200, and how well their best cuts are foretold.",
    ),
    "tensor-ranking": (
        "apportion.cli.reproduceranking:tensor_ranking",
        "Compiler configurations of tensor programs (TPU runtime prediction, Tables 3 to 5).",
    ),
}
"A page: the function that makes it, and its line in the help. Each lives in a file of its own."

for _name, (_target, _help) in REPRODUCTIONS.items():
    reproduce.command(_target, name=_name, help=_help)
