"""`apportion counters`, as a user types it."""

from __future__ import annotations

import json
import platform

import pytest

from apportion.cli import main
from apportion.data.counter_table import CounterTable

linux = pytest.mark.skipif(platform.system() != "Linux", reason="commands are counted on Linux")


def run(*words) -> int:
    """The exit status of a command."""
    with pytest.raises(SystemExit) as left:
        main(["counters", *map(str, words)])
    return left.value.code


@linux
def test_collect_writes_a_table_and_prints_what_it_cost(tmp_path, capsys):
    out = tmp_path / "true.parquet"
    options = ("--source", "proc", "--source", "trace", "--out", out, "--system", "here")
    assert run("collect", *options, "--", "true") == 0
    printed = capsys.readouterr().out
    assert "page_faults" in printed
    assert "times the command's own" in printed
    table = CounterTable.read(out)
    assert list(table.systems) == ["here"]
    assert set(table.frame["source"]) == {"clock", "proc", "trace"}


@linux
def test_collect_adds_to_a_table_and_leaves_another_file_alone(tmp_path, capsys):
    out, other = tmp_path / "table.parquet", tmp_path / "notes.txt"
    options = ("--source", "proc", "--system", "here", "--out")
    for command in ("true", "ls", "true"):
        assert run("collect", *options, out, "--", command) == 0
    frame = CounterTable.read(out).frame
    repeats = frame.select("program", "repeat").unique().rows()
    assert sorted(repeats) == [("ls", 0), ("true", 0), ("true", 1)]
    assert "values of 2 runs now" in capsys.readouterr().err
    other.write_text("mine")
    assert run("collect", *options, other, "--", "true") == 1
    assert other.read_text() == "mine"


@linux
def test_collect_keeps_finished_repeats_when_a_later_one_fails(tmp_path, capsys):
    out, flag = tmp_path / "table.parquet", tmp_path / "flag"
    text = f"[ ! -e {flag} ] && : > {flag}"
    assert run("collect", "--source", "proc", "--repeat", 3, "--out", out, "--", "sh", "-c", text) == 1
    assert "sh ended with exit status 1" in capsys.readouterr().err
    assert set(CounterTable.read(out).frame["repeat"]) == {0}


@linux
def test_collect_hands_options_of_the_command_on(capsys):
    assert run("collect", "--source", "proc", "--json", "--", "sh", "-c", "exit 0", "--repeat") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["size"] == "-c exit 0 --repeat"
    assert {row["counter"] for row in rows} >= {"seconds", "page_faults", "io_bytes_read"}


def test_an_unknown_source_is_named(capsys):
    assert run("collect", "--source", "prf", "--", "true") == 1
    assert "Did you mean 'perf'?" in capsys.readouterr().err


def test_kernel_counts_a_launch(tmp_path, capsys):
    pytest.importorskip("llvmlite")
    pytest.importorskip("ziglang")
    source, out = tmp_path / "scale.cl", tmp_path / "scale.parquet"
    source.write_text("__kernel void scale(__global float* x, float a) { x[get_global_id(0)] *= a; }")
    options = ("-n", 256, "-l", 32, "--arg", "a=2.5", "--json", "--out", out)
    assert run("kernel", source, *options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kernel"] == "scale"
    assert found["counters"]["workitems"] == 256
    assert found["opcodes"]["fmul"] == 256
    assert run("kernel", source, "-n", 512, *options[2:]) == 0
    assert CounterTable.read(out).frame["size"].unique(maintain_order=True).to_list() == ["256/32", "512/32"]


def test_import_adds_to_a_table_or_leaves_it_alone(tmp_path, capsys):
    out, first, second = (tmp_path / name for name in ("table.parquet", "a.csv", "b.csv"))
    first.write_text("program,system,seconds\nbfs,a,1\n")
    second.write_text("program,system,seconds\nbfs,b,oops\n")
    assert run("import", first, "--out", out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 1
    assert run("import", second, "--out", out) == 1
    assert "b.csv:2: seconds is 'oops'" in capsys.readouterr().err
    assert len(CounterTable.read(out).frame) == 1
    second.write_text("program,system,seconds\nbfs,b,2\n")
    assert run("import", second, "--out", out) == 0
    assert CounterTable.read(out).times().seconds.tolist() == [[1.0, 2.0]]
