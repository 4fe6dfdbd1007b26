"""Systems from a few runs: read, fitted, kept, listed and forgotten."""

from __future__ import annotations

import json

import numpy as np
import pytest

from apportion.advise.relative_answers import shipped
from apportion.advise.systems import (
    KnownSystem,
    Sample,
    fit_of,
    keep,
    kept_system,
    kept_systems,
    read_samples,
    remove,
)
from apportion.data.counter_table import AIWC, CounterTable, Row
from apportion.errors import InvalidSetting, MalformedInput, UnknownName, UnreadableFile


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("APPORTION_SYSTEMS", str(tmp_path / "systems"))
    return tmp_path / "systems"


def samples_like(system: str, count: int, factor: float = 0.5) -> tuple[Sample, ...]:
    reference = shipped().reference
    times = 2 ** reference.log_times[:, reference.systems.index(system)] * factor
    chosen = np.random.default_rng(1).permutation(len(times))[:count]
    return tuple(Sample(reference.runs[i], float(times[i])) for i in chosen)


def test_a_system_is_told_from_five_runs_and_better_from_twenty() -> None:
    few, more = (fit_of(KnownSystem("mine", samples_like("k40c", count)), shipped()) for count in (5, 20))
    assert few.samples == 5
    assert "k40c" in more.likeness
    assert more.likeness["k40c"] == max(more.likeness.values())
    assert more.error < 15
    assert more.error <= few.error + 5


def test_runs_of_ones_own_come_with_counters_and_known_times() -> None:
    reference = shipped().reference
    at = reference.systems.index("gtx1080")
    samples = [
        Sample(f"mine/{row}", 2 ** float(reference.log_times[row, at]) * 2,
               dict(zip(reference.counters, reference.values[row].tolist(), strict=True)),
               {"gtx1080": 2 ** float(reference.log_times[row, at]), "elsewhere": 1.0})
        for row in range(0, 60, 6)
    ]  # fmt: skip
    known, log_times = KnownSystem("mine", tuple(samples)).measured(shipped())
    # The time on the system that is known fixes the scale of the others.
    np.testing.assert_allclose(known.log_times[:, at] + 1, log_times, atol=1e-9)
    strange = KnownSystem("mine", tuple(Sample(f"strange/{row}", 1.0) for row in range(5)))
    with pytest.raises(UnknownName, match="No run called 'strange/0'"):
        strange.measured(shipped())


def test_a_system_is_kept_and_forgotten(folder) -> None:
    assert kept_systems() == {}
    system = KnownSystem("my-gpu", samples_like("titanx", 6))
    path = keep(system)
    assert path == folder / "my-gpu.json"
    assert kept_system("my-gpu") == system
    with pytest.raises(UnknownName, match=r"No added system called 'my_gpu'. Did you mean 'my-gpu'"):
        kept_system("my_gpu")
    remove("my-gpu")
    assert kept_systems() == {}
    path.write_text("{")
    with pytest.raises(MalformedInput, match="is not JSON"):
        kept_systems()
    path.write_text(json.dumps({"name": "my-gpu", "samples": [], "colour": 1}))
    with pytest.raises(InvalidSetting, match="colour"):
        kept_systems()


def test_names_and_numbers_of_runs_are_checked() -> None:
    with pytest.raises(InvalidSetting, match="4 measured runs are too few; at least 5"):
        KnownSystem("mine", samples_like("knl", 4))
    with pytest.raises(InvalidSetting, match=r"not '\.\./mine'"):
        KnownSystem("../mine", samples_like("knl", 5))
    with pytest.raises(InvalidSetting, match="The time of r must be positive, not -1"):
        Sample("r", -1.0)


def test_samples_are_read_from_csv_and_from_tables(tmp_path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("run,seconds,comment\na,0.5,x\nb,2,\n")
    assert read_samples(path, "mine") == (Sample("a", 0.5), Sample("b", 2.0))
    path.write_text("run,seconds\na,0.5\nb,soon\n")
    with pytest.raises(MalformedInput, match=r"runs\.csv:3: not a run and its seconds"):
        read_samples(path, "mine")
    path.write_text("run,time\na,1\n")
    with pytest.raises(MalformedInput, match=r"runs\.csv:1: the columns 'run' and 'seconds'"):
        read_samples(path, "mine")
    with pytest.raises(UnreadableFile):
        read_samples(tmp_path / "absent.csv", "mine")
    rows = [Row("r", "p", "k", "1", "", 0, AIWC[0], 2.0, "aiwc", "exact")]
    rows += [Row("r", "p", "k", "1", name, 0, "seconds", 3.0, "clock", "exact") for name in ("mine", "knl")]
    CounterTable.of(rows).write(tmp_path / "runs.parquet")
    assert read_samples(tmp_path / "runs.parquet", "mine") == (
        Sample("r", 3.0, {AIWC[0]: 2.0}, {"knl": 3.0}),
    )
    with pytest.raises(UnknownName, match="No system called 'yours'"):
        read_samples(tmp_path / "runs.parquet", "yours")


def test_a_name_that_is_taken_is_refused(folder) -> None:
    known = shipped().reference.systems
    with pytest.raises(InvalidSetting, match=f"{known[0]} is a system of the model's own; choose another"):
        keep(KnownSystem(known[0], samples_like(known[0], 6)), taken=known)
    assert kept_systems() == {}
    first = KnownSystem("mine", samples_like(known[0], 6))
    keep(first, taken=known)
    with pytest.raises(
        InvalidSetting, match="added system called mine; choose another name, or give --replace"
    ):
        keep(KnownSystem("mine", samples_like(known[0], 7)))
    assert kept_system("mine") == first
    keep(KnownSystem("mine", samples_like(known[0], 7)), replace=True)
    assert len(kept_system("mine").samples) == 7
