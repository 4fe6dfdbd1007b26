"""Public datasets, one reader each."""

from __future__ import annotations

from apportion.registry import Registry

datasets = Registry(
    "dataset",
    {
        "aiwc": "apportion.data.published.aiwc:read",
        "cgo17": "apportion.data.published.cgo17:read",
        "deepdataflow": "apportion.data.published.deepdataflow:read",
        "tpugraphs": "apportion.data.published.tpugraphs:read",
    },
)
"A published dataset: the function that reads its folder."
