"""Tables of configurations from other tools."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest

from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile
from apportion.measure.space import Range, Space
from apportion.measure.tuning_table import Tried, TuningTable, read_table, space_of_t1, write_t1, write_t4


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


def schema_of(name: str) -> dict:
    """A schema of the autotuning community, as Kernel Tuner ships it."""
    package = pytest.importorskip("kernel_tuner", reason="kernel_tuner is not installed")
    return json.loads((Path(package.__file__).parent / "schema" / name).read_text())


KERNEL = {
    "Language": "OpenCL", "KernelName": "blur", "KernelFile": "blur.cl",
    "GlobalSize": {"X": "1024 // x"}, "LocalSize": {"X": "y"},
}  # fmt: skip


def test_a_space_survives_being_written_as_t1(tmp_path):
    space = Space(
        {"x": (1, 2, 4), "y": Range(1, 8), "z": (0.5, 1), "on": (True, False), "mode": ("a", "b")},
        "x * y <= 8",
    )
    write_t1(tmp_path / "t1.json", space)
    found = space_of_t1(tmp_path / "t1.json")
    assert found.configurations == space.configurations
    described = json.loads((tmp_path / "t1.json").read_text())["ConfigurationSpace"]
    assert [one["Type"] for one in described["TuningParameters"]] == ["int", "int", "float", "bool", "string"]
    assert described["Conditions"] == [{"Parameters": ["x", "y"], "Expression": "x * y <= 8"}]


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        (Space({"x": (1, 2)}, lambda x: x > 1), "T1 has expressions, no functions"),
        (Space({"x": (1, 2), "y": (1, 2)}, conditions={"y": "x == 1"}), "T1 has no parameters that sometimes"),
        (Space({"x": ((0, 1), (1, 0))}), "T1 has numbers, truths and words: x has the values"),
        (Space({"x": Range(0.0, 1.0)}), "x is a range of inf values: T1 has lists only"),
        (Space({"x": (1, 2)}, drawn=({"x": 1},)), "T1 has no configurations that were drawn"),
    ],
)  # fmt: skip
def test_what_t1_cannot_say_is_refused(tmp_path, space, problem):
    with pytest.raises(InvalidSetting, match=problem):
        write_t1(tmp_path / "t1.json", space)


def test_what_is_written_is_valid_by_the_schemas(tmp_path):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    write_t1(tmp_path / "t1.json", Space({"x": (1, 2), "y": (8, 16)}, "x < y"), kernel=KERNEL)
    jsonschema.validate(
        json.loads((tmp_path / "t1.json").read_text()), schema_of("T1/1.0.0/input-schema.json")
    )
    why = ("", "wrong result: element 1", "TimeoutExpired: 5 s", "CompilationFailedConfig", "ValueError: no")
    rows = [
        Tried({"x": n}, math.nan if failure else 0.5, failure, () if failure else (0.5,))
        for n, failure in enumerate(why)
    ]
    write_t4(tmp_path / "t4.json", TuningTable("blur", tuple(rows)))
    said = json.loads((tmp_path / "t4.json").read_text())
    jsonschema.validate(said, schema_of("T4/1.0.0/results-schema.json"))
    reasons = [one["invalidity"] for one in said["results"]]
    assert reasons == ["correct", "correctness", "timeout", "compile", "runtime"]
    assert [row.failure for row in read_table(tmp_path / "t4.json").rows] == ["", *reasons[1:]]
