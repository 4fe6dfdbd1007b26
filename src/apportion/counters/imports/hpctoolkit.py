"""HPCToolkit's databases: `experiment.xml` is read here, the newer `meta.db` through hatchet (an extra)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from apportion.counters.imports.naming import ImportOptions, first_of, joined, rows_of
from apportion.data.counters import SECONDS, Row
from apportion.errors import MalformedInput, MissingPackage, UnreadableFile

SOURCE = "hpctoolkit"
_TIMES = {"usec": 1e-6, "sec": 1.0}


def read(path: Path, options: ImportOptions) -> list[Row]:
    """The metrics of a whole execution, summed over its processes and threads: one run."""
    folder = path if path.is_dir() else path.parent
    if (folder / "experiment.xml").exists():
        name, values = _experiment(folder / "experiment.xml")
    elif (folder / "meta.db").exists():
        name, values = _database(folder)
    else:
        raise UnreadableFile(
            f"{folder} holds neither experiment.xml nor meta.db: it is no database of HPCToolkit"
        )
    program = first_of(options.program, name, folder.name)
    identity = (joined((program, options.size)), program, "", options.size, options.system)
    kept: dict[str, tuple[float | None, str]] = {
        metric: (value, "sampled") for metric, value in values.items()
    }
    rows = rows_of(kept, identity, 0, SOURCE, options.mapping)
    if all(row.counter != SECONDS for row in rows) and (seconds := _seconds(values)) is not None:
        rows.append(Row(*identity, 0, SECONDS, seconds, SOURCE, "sampled"))
    return rows


def _experiment(path: Path) -> tuple[str, dict[str, float]]:
    """The program's name, and each inclusive metric of its root."""
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
    names = {
        metric.get("i", ""): metric.get("n", "")
        for metric in root.iterfind(".//MetricTable/Metric")
        if metric.get("t", "inclusive") != "exclusive"
    }
    found: dict[str, float] = {}
    for value in data.findall("M"):
        if (metric := names.get(value.get("n", ""))) is not None:
            try:
                found[metric] = float(value.get("v", ""))
            except ValueError:
                raise MalformedInput(
                    f"{metric} is {value.get('v')!r}, which is no number", file=str(path), line=1
                ) from None
    if not found:
        raise MalformedInput("its root has no inclusive metric", file=str(path), line=1)
    header = root.find("Header")
    return (header.get("n", "") if header is not None else ""), found


def _database(folder: Path) -> tuple[str, dict[str, float]]:
    try:
        import hatchet  # a large package that only this needs
    except ImportError as error:
        raise MissingPackage("llnl-hatchet", "hpctoolkit", "Reading HPCToolkit's meta.db") from error
    try:
        frame: Any = hatchet.GraphFrame.from_hpctoolkit_latest(str(folder))
        totals = frame.dataframe.loc[list(frame.graph.roots)]
        inclusive = [str(name) for name in frame.inc_metrics]
        return "", {name: float(totals[name].sum()) for name in inclusive}
    except Exception as error:  # whatever hatchet raises on a database that it cannot read
        raise MalformedInput(f"hatchet cannot read it ({error!r})", file=str(folder / "meta.db")) from error


def _seconds(values: dict[str, float]) -> float | None:
    """The time, where a metric such as `CPUTIME (usec):Sum (I)` is one."""
    for metric, value in values.items():
        for unit, factor in _TIMES.items():
            if "TIME" in metric.upper() and f"({unit})" in metric:
                return value * factor
    return None
