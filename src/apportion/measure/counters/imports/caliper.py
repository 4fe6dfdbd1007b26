"""Caliper's `.cali` files: nodes that build attributes and paths, and records that hold values at a path.

A line is `__rec=KIND,key=value,…`; lists are joined by `=`, and `\\` protects a comma or an equals sign.
Attributes are nodes themselves: one whose own attribute is 8 (a name) is an attribute, described by the nodes
above it: their type (nodes 0 to 7), their properties (attribute 10), and what else is said of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from apportion.data.counter_table import SECONDS, Row
from apportion.errors import MalformedInput, UnreadableFile
from apportion.measure.counters.imports.naming import ImportOptions, first_of, joined, rows_of

SOURCE = "caliper"
_NAME, _PROPERTIES = 8, 10
_NESTED = 256  # a property: values of such attributes form the path of regions
_UNITS = {"sec": 1.0, "s": 1.0, "msec": 1e-3, "ms": 1e-3, "usec": 1e-6, "us": 1e-6, "nsec": 1e-9, "ns": 1e-9}
_TIMES = (
    "avg#inclusive#sum#time.duration", "sum#inclusive#sum#time.duration", "inclusive#sum#time.duration",
    "avg#sum#time.duration", "sum#sum#time.duration", "sum#time.duration", "time.duration",
    "avg#sum#time.duration.ns", "sum#sum#time.duration.ns", "sum#time.duration.ns", "time.duration.ns",
)  # fmt: skip
"Attributes that are the time of a region, the most telling first."
_OF_THE_EXPERIMENT = re.compile(
    r"rank|numproc|num_?tasks|jobsize|world\.size|threads|problem|size|elements|iterations|compiler|opts?$|flags"
    r"|build_?type|version|variant|tuning|figure_of|input|deck|cmdline"
)
"Of what kind metadata are (Caliper's and Adiak's names) that tell experiments apart."
_OF_ONE_EXECUTION = re.compile(
    r"caliper|^cali\.|date|time|elapsed|jobid|job_id|uid|user|host|hash|seed|pid|figure|walltime|cputime|fom"
    r"|executable|path|cluster|systime|hwthreads_available|os\."
)
_COMMA = re.compile(r"(?<!\\)((?:\\\\)*),")
_EQUALS = re.compile(r"(?<!\\)((?:\\\\)*)=")


@dataclass(frozen=True)
class _Node:
    attribute: int
    data: str
    parent: int


@dataclass
class _File:
    """What the lines of a file have said so far."""

    nodes: dict[int, _Node] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    "What holds for the whole run: attribute → value."
    records: list[tuple[tuple[str, ...], dict[str, float]]] = field(default_factory=list)
    "A path, and what was counted there."

    def name_of(self, attribute: int) -> str:
        """The name of an attribute."""
        node = self.nodes[attribute]
        if node.attribute != _NAME:
            raise KeyError(attribute)
        return node.data

    def said_of(self, attribute: int, what: str) -> str:
        """Something else that is said of an attribute, such as its unit."""
        for node in self._upwards(self.nodes[attribute].parent):
            if node.attribute in self.nodes and self.nodes[node.attribute].data == what:
                return node.data
        return ""

    def values(self, references: list[int]) -> list[tuple[int, str]]:
        """Attribute and value of nodes and of all above them, the outermost first."""
        found = []
        for reference in references:
            above = [(node.attribute, node.data) for node in self._upwards(reference)]
            found += list(reversed(above))
        return found

    def is_nested(self, attribute: int) -> bool:
        """Whether an attribute's values are regions within regions."""
        for node in self._upwards(self.nodes[attribute].parent):
            if node.attribute == _PROPERTIES:
                return bool(int(node.data) & _NESTED)
        return False

    def _upwards(self, reference: int) -> list[_Node]:
        found: list[_Node] = []
        while reference in self.nodes and len(found) <= len(self.nodes):
            found.append(self.nodes[reference])
            reference = self.nodes[reference].parent
        return found


def read(path: Path, options: ImportOptions) -> list[Row]:
    """Every region of a file, one run each; several records of a region, of ranks or threads, are repeats."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"Cannot read {path}: {error}") from error
    file = _File()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            _take(line, file)
        except (KeyError, ValueError, IndexError) as error:
            raise MalformedInput(
                f"not a record of Caliper ({error!r})", file=str(path), line=number
            ) from error
    if not file.records:
        raise MalformedInput("it holds no value", file=str(path), line=max(1, len(lines)))
    executable = Path(first_of(file.known.get("executablepath", ""), file.known.get("executable", ""))).name
    program = first_of(options.program, executable, path.stem)
    system = first_of(options.system, file.known.get("cluster", ""), file.known.get("hostname", ""))
    size = first_of(options.size, experiment_of(file.known))
    rows: list[Row] = []
    repeats: dict[str, int] = {}
    for regions, counts in file.records:
        kernel = "/".join(regions)
        repeat = repeats.get(kernel, 0)
        repeats[kernel] = repeat + 1
        identity = (joined((program, kernel, size)), program, kernel, size, system)
        values: dict[str, tuple[float | None, str]] = {
            name: (value, "exact") for name, value in counts.items()
        }
        rows += rows_of(values, identity, repeat, SOURCE, options.mapping)
    return rows


def experiment_of(known: Mapping[str, str]) -> str:
    """What tells one experiment from another: ranks, threads, sizes, the compiler, and numbers of the user's.

    What differs from one execution of the same experiment to the next (dates, job numbers, hosts, Caliper's
    own settings) is left out: such executions are repeats.
    """
    words = []
    for name, value in sorted(known.items()):
        plain = name.lower()
        if not value or _OF_ONE_EXECUTION.search(plain):
            continue
        if _OF_THE_EXPERIMENT.search(plain) or _number(value) is not None:
            words.append(f"{name}={value}")
    return " ".join(words)


def _take(line: str, file: _File) -> None:
    fields = dict(_split(part, _EQUALS, 1) for part in _split(line, _COMMA))
    kind = fields["__rec"]
    if kind == "node":
        file.nodes[int(fields["id"])] = _Node(
            int(fields["attr"]), _plain(fields.get("data", "")), int(fields.get("parent", -1))
        )
        return
    references = [int(part) for part in _split(fields.get("ref", ""), _EQUALS) if part]
    above = file.values(references)
    attributes = [int(part) for part in _split(fields.get("attr", ""), _EQUALS) if part]
    data = [_plain(part) for part in _split(fields.get("data", ""), _EQUALS)] if attributes else []
    if len(attributes) != len(data):
        raise ValueError(f"{len(attributes)} attributes, {len(data)} values")
    immediate = list(zip(attributes, data, strict=True))
    if kind == "globals":
        file.known |= {file.name_of(attribute): value for attribute, value in above + immediate}
    elif kind == "ctx":
        regions = tuple(value for attribute, value in above if file.is_nested(attribute))
        counts = {}
        for attribute, value in immediate:
            number = _number(value)
            if number is not None:
                counts[file.name_of(attribute)] = number
        time = next((name for name in _TIMES if name in counts), None)
        if time is not None:
            unit = next(
                file.said_of(number, "attribute.unit")
                for number in attributes
                if file.name_of(number) == time
            )
            factor = 1e-9 if time.endswith(".ns") else 1.0
            counts[SECONDS] = counts[time] * (factor if factor != 1.0 else _UNITS.get(unit, 1.0))
        if regions and counts:
            file.records.append((regions, counts))
    else:
        raise ValueError(f"the kind {kind!r}")


def _split(text: str, separator: re.Pattern[str], most: int = 0) -> list[str]:
    """The parts of a list; a separator behind a backslash is none."""
    parts, start = [], 0
    for match in separator.finditer(text):
        parts.append(text[start : match.end() - 1])
        start = match.end()
        if most and len(parts) == most:
            break
    return [*parts, text[start:]]


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
