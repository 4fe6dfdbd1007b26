"""Public datasets, one reader each."""

from __future__ import annotations

from apportion.registry import Registry

datasets = Registry("dataset", {"deepdataflow": "apportion.data.published.deepdataflow:read"})
"A published dataset: the function that reads its folder."
