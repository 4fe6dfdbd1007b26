"""Tables of configurations from other tools."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.measure.tuning_table import read_table, space_of_t1


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_csv_file_has_parameters_and_a_time(tmp_path):
    text = "tile,mode,milliseconds,repeats\n8,a,2.5,2.4 2.6\n16,b,CompilationFailedConfig,\n"
    path = tmp_path / "blur-gpu.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    table = read_table(path)
    assert table.name == "blur-gpu"
    assert table.configurations == ({"tile": 8, "mode": "a"}, {"tile": 16, "mode": "b"})
    assert table.seconds[0] == pytest.approx(2.5e-3)
    assert math.isnan(table.seconds[1])
    assert table.rows[1].failure == "CompilationFailedConfig"
    assert table.rows[0].repeats == pytest.approx((2.4e-3, 2.6e-3))
    assert dict(table.space.values) == {"tile": (8, 16), "mode": ("a", "b")}
    assert table.best == pytest.approx(2.5e-3)


def test_a_cache_file_of_kernel_tuner_is_read(tmp_path):
    entry = {"x": 1, "y": 2, "time": 0.5, "times": [0.4, 0.6]}
    failed = {"x": 2, "y": 2, "time": "RuntimeFailedConfig"}
    said = {"tune_params_keys": ["x", "y"], "cache": {"1,2": entry, "2,2": failed}}
    table = read_table(written(tmp_path / "c.json", json.dumps(said)))
    assert table.configurations == ({"x": 1, "y": 2}, {"x": 2, "y": 2})
    assert table.seconds[0] == pytest.approx(5e-4)
    assert table.rows[1].failure == "RuntimeFailedConfig"


def test_results_in_t4_are_read(tmp_path):
    said = {"schema_version": "1.0.0", "results": [
        {"configuration": {"x": 1}, "invalidity": "correct", "objectives": ["time"],
         "measurements": [{"name": "time", "value": 7, "unit": "us"}], "times": {"runtimes": [6, 8]}},
        {"configuration": {"x": 2}, "invalidity": "compile", "measurements": []},
    ]}  # fmt: skip
    table = read_table(written(tmp_path / "t4.json", json.dumps(said)))
    assert table.seconds[0] == pytest.approx(7e-6)
    assert table.rows[1].failure == "compile"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.csv", "x,y\n1,2\n", "there is no column milliseconds or seconds"),
        ("a.csv", "x,seconds\n", "holds no configuration"),
        ("a.json", "{}", "neither 'cache' .* nor 'results'"),
        ("a.json", '{"cache": {"1": {}}, "tune_params_keys": ["x"]}', "this is no table of configurations"),
        ("a.json", "{", "this is no table of configurations"),
    ],
)
def test_another_file_is_refused_with_a_reason(tmp_path, name, text, problem):
    with pytest.raises((MalformedInput, InvalidSetting), match=problem):
        read_table(written(tmp_path / name, text))


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UnreadableFile, match="Cannot read"):
        read_table(tmp_path / "nothing.csv")


def test_a_space_is_read_from_t1_or_from_plain_lists(tmp_path):
    said = {"ConfigurationSpace": {
        "TuningParameters": [{"Name": "x", "Type": "int", "Values": "[1, 2, 4]"}, {"Name": "y", "Values": [1, 8]}],
        "Conditions": [{"Expression": "x * y <= 8", "Parameters": ["x", "y"]}],
    }}  # fmt: skip
    space = space_of_t1(written(tmp_path / "t1.json", json.dumps(said)))
    assert [tuple(one.values()) for one in space.configurations] == [(1, 1), (1, 8), (2, 1), (4, 1)]
    plain = space_of_t1(written(tmp_path / "s.json", '{"x": [1, 2]}'))
    assert len(plain.configurations) == 2
    for text in ("[", '{"x": 5}', '{"ConfigurationSpace": {}}'):
        with pytest.raises(MalformedInput):
            space_of_t1(written(tmp_path / "bad.json", text))
