from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.cli import main

pytest.importorskip("pyopencl")


def _done(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert not stopped.value.code


def test_every_device_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    _done(["devices", "--json", "--pocl-instances", "2", "--quick"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    cpus = [line for line in lines if line["kind"] == "cpu"]
    assert [line["id"] for line in cpus][:2] == ["cpu", "cpu2"]
    assert all(line["shares_memory"] and line["compute_units"] >= 1 and line["driver"] for line in cpus)


def test_calibration_is_measured_shown_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    _done(["devices", "--calibrate", "--json", "--pocl-instances", "1", "--threads", "1"])
    measured = json.loads(capsys.readouterr().out.splitlines()[0])["calibration"]
    worth, latency = measured["worth"], measured["latency"]
    rates = {name: value for name, value in measured.items() if name not in ("worth", "latency", "left_out")}
    assert set(rates) == {"to_device", "from_device", "memory", "arithmetic", "launch_seconds"}
    assert all(value > 0 for value in rates.values())
    assert worth["angles"] > 5 * worth["integer operations"] > 0  # whatever else the machine does meanwhile
    assert worth["powers"] > 5 * worth["double operations"] > 0
    assert latency["angles"] > 5 * latency["integer operations"] > 0
    for more in ([], ["--quick"]):
        _done(["devices", "--json", "--pocl-instances", "1", "--threads", "1", *more])
        assert json.loads(capsys.readouterr().out.splitlines()[0])["calibration"] == measured


def test_a_device_that_was_never_measured_is_measured_unless_it_must_be_quick(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPORTION_CACHE", str(tmp_path))
    _done(["devices", "--json", "--pocl-instances", "1", "--threads", "1", "--quick"])
    assert json.loads(capsys.readouterr().out.splitlines()[0])["calibration"] is None
    _done(["devices", "--json", "--pocl-instances", "1", "--threads", "1"])
    said = json.loads(capsys.readouterr().out.splitlines()[0])
    assert said["calibration"]["memory"] > 0
    assert "OpenCL C" in said["compiler"]


def test_the_table_names_devices_on_stdout_and_faults_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _done(["devices", "--pocl-instances", "1", "--quick"])
    said = capsys.readouterr()
    assert "Portable Computing Language" in said.out
    assert "miscompile" in said.err


def test_names_are_whole_on_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _done(["devices", "--pocl-instances", "1", "--quick"])
    said = capsys.readouterr().out
    assert "Portable Computing Language" in said
    assert "OpenCL C" in said
    assert max(map(len, said.splitlines())) <= 80
