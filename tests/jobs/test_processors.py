"""The processors that a process may use: affinity masks and control groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from apportion.jobs.processors import processors

ALL = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "count"), [("max 100000", ALL), ("50000 100000", 1), ("100001 100000", min(ALL, 2)), ("x", ALL)]
)
def test_a_control_groups_quota_counts_in_whole_processors(quota: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "self").write_text("0::/service/job\n")
    (tmp_path / "service" / "job").mkdir(parents=True)
    (tmp_path / "service" / "cpu.max").write_text(quota)  # of the group above
    assert processors(membership=tmp_path / "self", groups=tmp_path) == count


def test_the_older_kind_of_control_groups_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("5:memory:/x\n4:cpu,cpuacct:/job\n")
    (tmp_path / "cpu" / "job").mkdir(parents=True)
    (tmp_path / "cpu" / "job" / "cpu.cfs_quota_us").write_text("-1")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("100000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert processors(membership=tmp_path / "self", groups=tmp_path) == 1


def test_a_process_that_is_bound_has_no_more_than_that() -> None:
    code = "import os; from apportion.jobs.processors import processors; os.sched_setaffinity(0, {0}); print(processors())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "1\n"
