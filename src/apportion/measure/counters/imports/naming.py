"""From another tool's names to ours: events that mean a counter of ours, and ratios that follow from two."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from apportion.data.counter_table import SECONDS, Row
from apportion.errors import InvalidSetting, MalformedInput

KNOWN = {
    "instructions": "instructions", "PAPI_TOT_INS": "instructions", "inst_retired.any": "instructions",
    "perf::INSTRUCTIONS": "instructions",
    "smsp__inst_executed.sum": "instructions", "sm__inst_executed.sum": "instructions",
    "page-faults": "page_faults", "faults": "page_faults", "perf::PAGE-FAULTS": "page_faults",
    "launch__grid_size": "warp_blocks",
}  # fmt: skip
"What other tools call a counter of ours."

RATIOS = {
    "control_ratio": (("branches", "instructions"), ("PAPI_BR_INS", "PAPI_TOT_INS")),
    "branch_miss_ratio": (("branch-misses", "branches"), ("PAPI_BR_MSP", "PAPI_BR_INS"),
                          ("perf::BRANCH-MISSES", "perf::BRANCHES")),
    "mem_ratio": (("PAPI_LST_INS", "PAPI_TOT_INS"),),
    "fp_ratio": (("PAPI_FP_INS", "PAPI_TOT_INS"), ("PAPI_FP_OPS", "PAPI_TOT_INS")),
    "int_ratio": (("PAPI_INT_INS", "PAPI_TOT_INS"),),
}  # fmt: skip
"A counter of ours → pairs of events whose ratio it is; the first pair that is there counts."

MISSES = {
    "l1_miss_hit_ratio": (("L1-dcache-load-misses", "L1-dcache-loads"), ("PAPI_L1_DCM", "PAPI_LST_INS")),
    "ll_miss_hit_ratio": (("LLC-load-misses", "LLC-loads"), ("cache-misses", "cache-references"),
                          ("PAPI_L3_TCM", "PAPI_L3_TCA"), ("perf::CACHE-MISSES", "perf::CACHE-REFERENCES")),
}  # fmt: skip
"Likewise: misses and accesses, of which misses over hits are made."


_WRITTEN = re.compile(r"[-+]?[\d.,]*\d")
_SPACES = re.compile(r"[\s'\u2019\u00a0\u202f]")


@dataclass(frozen=True)
class NameMap:
    """What a file of TOML says about names: `[counters]` renames, `[columns]` is for plain tables."""

    counters: Mapping[str, str] = field(default_factory=dict)
    "The file's name of a counter → ours."
    columns: Mapping[str, str] = field(default_factory=dict)
    "Ours (`run`, `program`, `kernel`, `size`, `system`, `repeat`, `counter`, `value`) → the table's column."
    seconds: Mapping[str, float] = field(default_factory=dict)
    "A column or counter that is a time → how many seconds its unit is."


@dataclass(frozen=True)
class ImportOptions:
    """What a file may not say of itself."""

    program: str = ""
    system: str = ""
    size: str = ""
    mapping: NameMap = field(default_factory=NameMap)

    def __post_init__(self) -> None:
        for counter, factor in self.mapping.seconds.items():
            if not factor > 0:
                raise InvalidSetting(f"The unit of {counter} must be more than 0 seconds, not {factor}")


def rows_of(
    values: Mapping[str, tuple[float | None, str]],
    identity: tuple[str, str, str, str, str],
    repeat: int,
    source: str,
    mapping: NameMap,
) -> list[Row]:
    """Rows for the events of one execution: each under its own name, and what follows for counters of ours.

    Args:
        values: event → its value and exactness.
        identity: run, program, kernel, size, system.
    """
    renamed = {**KNOWN, **mapping.counters}
    found: dict[str, tuple[float | None, str]] = {}
    for event, (value, exactness) in values.items():
        plain = event.split(":")[0] if event.split(":")[-1] in ("u", "k", "uk", "ku") else event
        if event in mapping.seconds:
            found[SECONDS] = (None if value is None else value * mapping.seconds[event], exactness)
        else:
            found[renamed.get(event, renamed.get(plain, event))] = (value, exactness)
    plain_values = {event.split(":u")[0]: value for event, value in values.items()}
    for ratios, turned in ((RATIOS, _ratio), (MISSES, _missed)):
        for counter, pairs in ratios.items():
            pair = next((pair for pair in pairs if all(event in plain_values for event in pair)), None)
            if pair is not None and counter not in found:
                (part, exactness), (whole, _) = plain_values[pair[0]], plain_values[pair[1]]
                found[counter] = (turned(part, whole), exactness)
    return [
        Row(*identity, repeat, counter, value, source, exactness)
        for counter, (value, exactness) in found.items()
    ]


def decimal_mark(texts: Iterable[str]) -> str:
    """The mark before the decimals, "." or ",", of numbers that one program wrote.

    `1.234,5` and `65,77` have a comma, `1,234.5` and `65.77` a point. `117.344` alone may be either; a point
    is taken where nothing says otherwise.
    """
    for text in texts:
        if not _WRITTEN.fullmatch(text):
            continue
        marks = [mark for mark in text if mark in ",."]
        if len(set(marks)) == 2:
            return marks[-1]
        if len(marks) > 1:
            return "," if marks[0] == "." else "."
        if marks and len(text.rpartition(marks[0])[2]) != 3:
            return marks[0]
        if marks and text.lstrip("-+").startswith("0" + marks[0]):
            return marks[0]
    return "."


def number_in(text: str, file: str, line: int, what: str, *, decimal: str = ".") -> float:
    """A number, which may have marks or spaces between its thousands.

    Args:
        decimal: the mark before the decimals.
    """
    thousands = "," if decimal == "." else "."
    try:
        return float(_SPACES.sub("", text).replace(thousands, "").replace(decimal, "."))
    except ValueError:
        raise MalformedInput(f"{what} is {text!r}, which is no number", file=file, line=line) from None


def first_of(*texts: str) -> str:
    """The first that is not empty; empty where all are."""
    return next((text for text in texts if text), "")


def joined(parts: Iterable[str]) -> str:
    """A run's name: its parts that are not empty."""
    return " ".join(part for part in parts if part)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _missed(misses: float | None, accesses: float | None) -> float | None:
    if misses is None or accesses is None or accesses <= misses:
        return None
    return misses / (accesses - misses)
