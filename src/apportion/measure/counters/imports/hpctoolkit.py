"""HPCToolkit's databases: `experiment.xml` and `.metric-db` files, or the newer `meta.db`, `profile.db`."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from apportion.data.counter_table import SECONDS, Row
from apportion.errors import MalformedInput, UnreadableFile
from apportion.measure.counters.imports import hpctoolkit4
from apportion.measure.counters.imports.naming import ImportOptions, first_of, joined, rows_of

SOURCE = "hpctoolkit"
_UNITS = {"usec": 1e-6, "sec": 1.0}
_STATISTIC = re.compile(r"^(?P<event>.+?)(?::(?P<of>Sum|Mean|StdDev|CfVar|Min|Max)(?::[\w-]+)?)?(?: \(I\))?$")
"`PAPI_TOT_INS:Sum (I)`: an event, what was made of its values in all threads, and that calls are included."
_THREAD = re.compile(r"-(\d{6})-(\d{3})(?:-[\w-]*)?\.metric-db$")
"The rank and the thread in the name of a thread's file."
_SOURCES = re.compile(r":num-src \(I\)$")
_SHOWN = ("1", "2")  # the others are hidden, or for what a procedure itself does
_METRIC_DB = b"HPCPROF-metricdb__"


def read(path: Path, options: ImportOptions) -> list[Row]:
    """What a whole execution counted: one run. Events are added up over processes and threads.

    Its time is that of the thread that took longest, the clock's rather than the processor's. Where only the
    sum over threads is known it is missing. How many processes and threads there were is its size, so that
    executions with others are other runs; a database says nothing else of what was executed.
    """
    folder = path if path.is_dir() else path.parent
    experiment = path if path.suffix == ".xml" else folder / "experiment.xml"
    if path.suffix != ".xml" and (folder / "meta.db").exists():
        name, totals, longest, threads = hpctoolkit4.read(folder)
        counts = {"threads": threads}
    elif experiment.exists():
        name, totals, longest, counts = _experiment(experiment)
    else:
        raise UnreadableFile(
            f"{folder} holds neither experiment.xml nor meta.db: it is no database of HPCToolkit"
        )
    program = first_of(options.program, name, folder.name)
    size = first_of(options.size, " ".join(f"{what}={count}" for what, count in counts.items() if count))
    identity = (joined((program, size)), program, "", size, options.system)
    rows = rows_of(
        {event: (value, "sampled") for event, value in totals.items()}, identity, 0, SOURCE, options.mapping
    )
    if all(row.counter != SECONDS for row in rows) and (seconds := _seconds(longest)) is not None:
        rows.append(Row(*identity, 0, SECONDS, seconds, SOURCE, "sampled"))
    return rows


def _experiment(path: Path) -> tuple[str, dict[str, float], dict[str, float], dict[str, int]]:
    """The program's name; event → its sum over all threads, and its largest in one; how many there were."""
    try:
        root = ElementTree.parse(path).getroot()
    except OSError as error:
        raise UnreadableFile(f"Cannot read {path}: {error.strerror}") from error
    except ElementTree.ParseError as error:
        line, column = error.position
        raise MalformedInput(f"not XML ({error})", file=str(path), line=line, column=column) from error
    data = root.find(".//SecCallPathProfileData")
    if data is None:
        raise MalformedInput("it has no profile of call paths", file=str(path), line=1)
    values = _values(data, path)
    totals: dict[str, float] = {}
    longest: dict[str, float] = {}
    for metric in root.iterfind(".//MetricTable/Metric"):
        number, said = metric.get("i", ""), _STATISTIC.match(metric.get("n", ""))
        if said is None or metric.get("t") == "exclusive" or metric.get("show", "1") not in _SHOWN:
            continue
        if _formula(metric) not in ("", f"${number}"):
            continue  # made from other metrics when it is shown: what the file has is no value of it
        if said["of"] in (None, "Sum"):
            totals[said["event"]] = values.get(number, 0.0)  # what is zero is not written
        elif said["of"] == "Max":
            longest[said["event"]] = values.get(number, 0.0)
    if not values or not totals:
        message = "its root has no inclusive metric"
        if root.get("version", "").startswith("4"):
            message += ": this version keeps them in another file; `hpcprof` since 2022 writes meta.db"
        raise MalformedInput(message, file=str(path), line=1)
    header = root.find("Header")
    name = header.get("n", "") if header is not None else ""
    return name, totals, _of_threads(root, path) | longest, _counts(root, path, values)


def _values(data: ElementTree.Element, path: Path) -> dict[str, float]:
    """A metric's number → its value at the root of the calls."""
    found = {}
    for value in data.findall("M"):
        try:
            found[value.get("n", "")] = float(value.get("v", ""))
        except ValueError:
            raise MalformedInput(
                f"metric {value.get('n')} is {value.get('v')!r}, which is no number", file=str(path), line=1
            ) from None
    return found


def _formula(metric: ElementTree.Element) -> str:
    """What is shown for a metric, such as `$7 / $8` for a mean: the file itself has sums only."""
    for formula in metric.findall("MetricFormula"):
        if formula.get("t", "finalize") != "combine":
            return formula.get("frm", "")
    return ""


def _of_threads(root: ElementTree.Element, path: Path) -> dict[str, float]:
    """Event → its largest value in one thread, by the files that `hpcprof-mpi` writes for each."""
    longest: dict[str, float] = {}
    for metric in root.iterfind(".//MetricDBTable/MetricDB"):
        said = _STATISTIC.match(metric.get("n", ""))
        if said is None or metric.get("t") != "inclusive" or "db-glob" not in metric.attrib:
            continue
        files = sorted(path.parent.glob(metric.attrib["db-glob"]))
        if files:
            longest[said["event"]] = max(_of_thread(file, metric.get("db-id", "0")) for file in files)
    return longest


def _counts(root: ElementTree.Element, path: Path, values: Mapping[str, float]) -> dict[str, int]:
    """Ranks and threads: by the names of threads' files, or by how many values the statistics are made of."""
    globs = {one.get("db-glob", "") for one in root.iterfind(".//MetricDBTable/MetricDB")} - {""}
    files = {file for glob in globs for file in path.parent.glob(glob)}
    named = {(match[1], match[2]) for file in files if (match := _THREAD.search(file.name))}
    if named:
        return {"ranks": len({rank for rank, _ in named}), "threads": len(named)}
    sources = [
        int(values.get(metric.get("i", ""), 0))
        for metric in root.iterfind(".//MetricTable/Metric")
        if _SOURCES.search(metric.get("n", ""))
    ]
    return {"threads": max(sources, default=0)}


def _of_thread(file: Path, column: str) -> float:
    """A thread's value of a metric at the root: after the header, the first row of a table of doubles."""
    try:
        with file.open("rb") as stream:
            start = stream.read(32)
            tag, order, _, metrics = struct.unpack(">18s5xcii", start)
            number = int(column)
            if tag != _METRIC_DB or order != b"b" or not 0 <= number < metrics:
                raise ValueError(f"it starts with {start!r}")
            stream.seek(32 + 8 * number)
            (value,) = struct.unpack(">d", stream.read(8))
    except OSError as error:
        raise UnreadableFile(f"Cannot read {file}: {error.strerror}") from error
    except (ValueError, struct.error) as error:
        raise MalformedInput(f"not the metrics of a thread ({error})", file=str(file)) from error
    return float(value)


def _seconds(longest: Mapping[str, float]) -> float | None:
    """The time, where an event such as `CPUTIME (usec)` is one."""
    for clock in ("REALTIME", "CPUTIME"):
        for unit, factor in _UNITS.items():
            if (value := longest.get(f"{clock} ({unit})")) is not None:
                return value * factor
    return None
