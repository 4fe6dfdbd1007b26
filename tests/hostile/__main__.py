"""Run every hostile kernel, and write the page of what was tried: `python -m tests.hostile OUT.md`."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from tests.hostile.kernels import ATTEMPTS

_CASE = re.compile(r"\[(?P<driver>\w+)-(?P<category>\w+): .*\]$|\[(?P<first>\w+): .*-(?P<last>\w+)\]$")
_DRIVERS = {"pocl": "PoCL 3", "intel": "Intel's runtime"}


def main(out: Path) -> int:
    """Write the page; the exit status of the tests."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "tests/hostile/test_kernels.py",
            f"--junitxml={report}",
        ]
        status = subprocess.run(command, check=False).returncode
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    out.write_text(page(cases, time.monotonic() - started))
    return status


def page(cases: list[ElementTree.Element], seconds: float) -> str:
    """The table of what was tried and survived, and the list of attempts."""
    tried: Counter[tuple[str, str]] = Counter()
    survived: Counter[tuple[str, str]] = Counter()
    for case in cases:
        found = _CASE.search(case.get("name", ""))
        if found is None or case.find("skipped") is not None:
            continue
        key = (found["driver"] or found["last"], found["category"] or found["first"])
        tried[key] += 1
        survived[key] += case.find("failure") is None and case.find("error") is None
    drivers = [name for name in _DRIVERS if any(driver == name for driver, _ in tried)]
    categories = list(dict.fromkeys(one.category for one in ATTEMPTS))
    lines = [
        "# Hostile kernels", "",
        f"`python -m tests.hostile docs/results/hostile.md`, {datetime.now(UTC).date()}, Linux "
        f"{platform.release()}, {seconds:.0f} s. A kernel is *survived* when what it tried failed or its launch "
        "was ended, the user's files are as they were, and the next kernel of the same worker gives the right "
        "result. Cases are tried / survived.", "",
        "| category | " + " | ".join(_DRIVERS[name] for name in drivers) + " |",
        "|---|" + "---:|" * len(drivers),
    ]  # fmt: skip
    for category in categories:
        cells = [f"{tried[name, category]} / {survived[name, category]}" for name in drivers]
        lines.append(f"| {category} | " + " | ".join(cells) + " |")
    sums = [
        f"**{sum(n for (driver, _), n in tried.items() if driver == name)} / "
        f"{sum(n for (driver, _), n in survived.items() if driver == name)}**"
        for name in drivers
    ]
    lines += [
        "| all | " + " | ".join(sums) + " |",
        "",
        _REST,
        "",
        "| category | what is tried |",
        "|---|---|",
    ]
    lines += [f"| {one.category} | {one.name} |" for one in ATTEMPTS]
    return "\n".join(lines) + "\n"


_REST = """\
They go round every check of the source: they are handed to the driver's compiler as they are, with system calls in inline
assembly, as a fault in a driver would allow. On an H200 nothing of this has been tried; a GPU's kernel cannot make system calls,
and what the driver's own process may do there is in [SECURITY.md](../../SECURITY.md).

What does not hold: a kernel that takes all descriptors costs the launch after its own too, and a kernel can lower the priority of
other processes of the same user.

Other hostile input, each with its test:

| what | test |
|---|---|
| answers of a worker that are no answers | `tests/runtime/opencl/test_pipe.py` |
| one construct of a source, repeated 50,000 times | `tests/program/test_include_growth.py` |
| mutated IR | [fuzzing.md](fuzzing.md) |
| damaged, cut and oversized archives | `tests/data/test_archives.py` |
| two to eight processes on one output | `tests/jobs/test_holding.py` |

The attempts:"""


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
