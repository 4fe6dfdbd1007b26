"""Gavel's reference data, where it lies beside the checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data" / "gavel"


@pytest.fixture(scope="session")
def gavel_data():
    """The folder of Gavel's throughputs, traces and results."""
    if not (DATA / "given.json").exists():
        pytest.skip(f"Gavel's reference data is not at {DATA}")
    return DATA


@pytest.fixture(scope="session")
def given(gavel_data):
    return json.loads((gavel_data / "given.json").read_text())
