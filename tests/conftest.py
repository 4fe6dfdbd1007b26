"""What every test has: a cache of its own, third-party data where it is there, and steady Hypothesis."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline: a busy machine is no bug. In CI the examples are always the same: a failure is the change's.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache folder of this test run, in place of the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APPORTION_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def no_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that run side by side inherit a COLUMNS from their runner, which would fold the tables they read."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Third-party data beside the checkout; it is never copied into it."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"third-party data is not at {folder}")
    return folder
