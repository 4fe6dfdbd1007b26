"""What policies believe about times: the truth, the truth with errors, or predictions from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from apportion.errors import InvalidSetting, MalformedInput, UnknownName
from apportion.schedule.relative_lines import read_relative_lines
from apportion.schedule.trace import PREDICTED, SIGMA, Floats, JobTrace, numbers_of, read_table

MOST_SIGMA = 2.0
"Of log2: who is less sure than a factor of 4 is not believed, and the fallback decides."


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Predicted times of each job on each system, with how sure they are."""

    seconds: Floats  # (N, S); infinite where the job cannot run; any positive number where it abstains
    sigma: Floats | None = None  # (N, S): of log2; None: exact
    abstains: NDArray[np.bool_] | None = None  # (N,): no prediction is worth using
    anchored: bool = True
    "Whether the times are absolute. Otherwise only ratios between systems mean something."

    def __post_init__(self) -> None:
        if (np.isnan(self.seconds) | (self.seconds <= 0)).any():
            raise InvalidSetting("Predicted times must be positive")
        if self.sigma is not None and not (np.isfinite(self.sigma) & (self.sigma >= 0)).all():
            raise InvalidSetting("The sigma of a prediction must be 0 or more")


def exact(trace: JobTrace) -> Beliefs:
    """The truth itself, as the oracle has it."""
    return Beliefs(_where_eligible(trace, trace.seconds))


def with_errors(trace: JobTrace, sigma: float, seed: int) -> Beliefs:
    """The truth times 2^e, with e normal of this sigma for each program on each system; seeded."""
    if not (np.isfinite(sigma) and sigma >= 0):
        raise InvalidSetting(f"sigma is 0 or more, not {sigma}")
    if sigma == 0:
        return exact(trace)
    drawing = np.random.default_rng([seed, 10])
    error = drawing.normal(0, sigma, (len(trace.programs), len(trace.systems)))
    seconds = trace.seconds * np.exp2(error)[trace.program]
    return Beliefs(_where_eligible(trace, seconds), np.full(trace.seconds.shape, sigma))


def of_table(trace: JobTrace) -> Beliefs:
    """The predictions that came with the trace."""
    if trace.predicted is None:
        raise InvalidSetting(
            f"The trace has no predictions. Add columns {PREDICTED}NAME, or give --predictions"
        )
    return _with_gaps(trace, trace.predicted, trace.sigma)


def of_file(trace: JobTrace, path: Path, *, anchor: str | None = None) -> Beliefs:
    """Predictions by job or by class: a table (CSV, Parquet) with `job` or `class`, `predicted:NAME` and
    perhaps `sigma:NAME`, or the lines that `apportion relative predict --json` prints.

    Args:
        anchor: the system on which a run of each class was measured; it turns relative performance into
        seconds.

    Raises:
        UnreadableFile, MalformedInput: there is no such file, or it holds something else.
        UnknownName: there is no such system.
    """
    if path.suffix in (".json", ".jsonl"):
        return _of_relative(trace, path, anchor)
    table = read_table(path)
    key = next((name for name in ("job", "class") if name in table.columns), None)
    if key is None:
        raise MalformedInput("predictions have a column job or class", file=str(path))
    there = [name for name in trace.names if f"{PREDICTED}{name}" in table.columns]
    for name in trace.names:
        if name not in there:
            raise MalformedInput(f"predictions need a column {PREDICTED}NAME for each system; that of "
                                 f"{name} is missing", file=str(path))  # fmt: skip
    said = np.stack(
        [numbers_of(table, f"{PREDICTED}{name}", path, empty=np.nan) for name in trace.names], axis=1
    )
    if (said <= 0).any():
        row = int((said <= 0).any(axis=1).argmax())
        raise MalformedInput("a predicted time must be positive; leave it empty where there is none",
                             file=str(path), line=row + 2)  # fmt: skip
    rows = _rows_of(trace, key, [str(name) for name in table[key].to_list()], path)
    sigma = None
    if any(f"{SIGMA}{name}" in table.columns for name in trace.names):
        columns = [
            numbers_of(table, f"{SIGMA}{name}", path, empty=0.0)
            if f"{SIGMA}{name}" in table.columns
            else np.zeros(len(table))
            for name in trace.names
        ]
        sigma = _taken(np.stack(columns, axis=1), rows, 0.0)
    return _with_gaps(trace, _taken(said, rows, np.nan), sigma)


def _of_relative(trace: JobTrace, path: Path, anchor: str | None) -> Beliefs:
    lines = read_relative_lines(path)
    if anchor is not None and anchor not in trace.names:
        raise UnknownName("system", anchor, trace.names)
    shape = len(lines), len(trace.names)
    vectors = np.array([line.vector.get(name, np.nan) for line in lines for name in trace.names]).reshape(
        shape
    )
    sigmas = np.array([line.sigma.get(name, 0.0) for line in lines for name in trace.names]).reshape(shape)
    rows = _rows_of(trace, "class", [line.run for line in lines], path)
    vector, sigma_of = _taken(vectors, rows, np.nan), _taken(sigmas, rows, 0.0)
    if anchor is None:
        believed = _with_gaps(trace, np.exp2(vector), sigma_of)
        return Beliefs(believed.seconds, believed.sigma, believed.abstains, anchored=False)
    at = trace.names.index(anchor)
    if not np.isfinite(trace.seconds[:, at]).all():
        row = int((~np.isfinite(trace.seconds[:, at])).argmax())
        raise InvalidSetting(f"Job {trace.job[row]} cannot run on {anchor}, so that system is no anchor")
    sigma_of[:, at] = 0
    return _with_gaps(trace, trace.seconds[:, [at]] * np.exp2(vector - vector[:, [at]]), sigma_of)


def _rows_of(trace: JobTrace, key: str, names: list[str], path: Path) -> NDArray[np.int64]:
    """Each job's row among the predictions; -1 where there is none."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedInput(f"{key} {twice!r} is predicted twice", file=str(path))
    ours = (
        pl.Series(trace.job).cast(pl.String) if key == "job" else pl.Series(trace.programs, dtype=pl.String)
    )
    place = pl.DataFrame({"name": names, "row": np.arange(len(names))}, schema_overrides={"name": pl.String})
    rows = ours.alias("name").to_frame().join(place, on="name", how="left", maintain_order="left")["row"]
    found = rows.fill_null(-1).to_numpy().astype(np.int64)
    if (found < 0).all():
        raise MalformedInput(f"no {key} of the trace is predicted", file=str(path))
    return found if key == "job" else found[trace.program]


def _taken(values: Floats, rows: NDArray[np.int64], empty: float) -> Floats:
    return np.where(rows[:, None] >= 0, values[rows], empty)


def _with_gaps(trace: JobTrace, seconds: Floats, sigma: Floats | None) -> Beliefs:
    """Beliefs where some are missing: a job without a time on a system where it can run abstains."""
    able = trace.eligible()
    abstains: NDArray[np.bool_] = np.asarray((np.isnan(seconds) & able).any(axis=1))
    if sigma is not None:
        abstains = abstains | (np.where(able, sigma, 0) > MOST_SIGMA).any(axis=1)
    guess = _guess(trace, seconds, abstains)
    filled = np.where(np.isnan(seconds), guess[:, None], seconds)
    return Beliefs(_where_eligible(trace, filled), sigma, abstains if abstains.any() else None)


def _guess(trace: JobTrace, seconds: Floats, abstains: NDArray[np.bool_]) -> Floats:
    """For the bookkeeping of queues alone: the time limit, else the median of what is predicted of others."""
    known = seconds[~abstains]
    known = known[np.isfinite(known)]
    usual = float(np.median(known)) if len(known) else 3600.0
    limit = np.full(len(trace), np.inf) if trace.limit is None else trace.limit
    return np.where(np.isfinite(limit), limit, usual)


def _where_eligible(trace: JobTrace, seconds: Floats) -> Floats:
    return np.ascontiguousarray(np.where(trace.eligible(), seconds, np.inf))
