"""`apportion explain`, `apportion predict` on many launches, and `python -m reproduction unseen`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from apportion.cli import main
from reproduction.__main__ import main as reproduce

KERNEL = """
declare i64 @_Z13get_global_idj(i32)
define spir_kernel void @scale(float* %x) {
  %i = call i64 @_Z13get_global_idj(i32 0)
  %p = getelementptr float, float* %x, i64 %i
  %v = load float, float* %p
  %w = fmul float %v, 2.0
  store float %w, float* %p
  ret void
}
"""
LAUNCH = ("--local-size", "64", "--bytes", "4194304")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "scale.ll"
    path.write_text(KERNEL)
    return path


def run(*words: str, code: int = 0, command=main) -> None:
    with pytest.raises(SystemExit) as left:
        command(list(words))
    assert left.value.code == code


def test_explain_shows_parts_and_instructions_and_draws(kernel: Path, tmp_path: Path, capsys) -> None:
    picture = tmp_path / "why.svg"
    run("explain", str(kernel), *LAUNCH, "--lines", "3", "--picture", str(picture))
    out, err = capsys.readouterr()
    assert "before looking" in out
    assert "input: bytes moved" in out
    assert "CPU share" in out
    assert "more instructions" in err
    assert picture.read_text().startswith("<svg")


def test_the_parts_that_explain_prints_add_up_to_what_predict_prints(kernel: Path, capsys) -> None:
    run("explain", str(kernel), *LAUNCH, "--json")
    parts = json.loads(capsys.readouterr().out)
    run("predict", str(kernel), *LAUNCH, "--json")
    share = json.loads(capsys.readouterr().out)["cpu_share"]
    added = sum(line["added"] for line in parts["instructions"])
    groups = ("inputs", "nearest_launches", "whole", "absent")
    total = parts["base"] + added + sum(sum(parts[key].values()) for key in groups)
    assert total == pytest.approx(share, abs=2e-4)
    assert parts["cpu_share"] == share


def test_every_instruction_is_shown_in_order_on_request(kernel: Path, capsys) -> None:
    run("explain", str(kernel), *LAUNCH, "--every")
    out = capsys.readouterr().out
    assert out.index("getelementptr") < out.index("fmul") < out.index("store")


def test_a_global_size_adds_the_cut_to_the_answer(kernel: Path, capsys) -> None:
    run("predict", str(kernel), "--bytes", "4096", "--global-size", "1024x4", "--local-size", "32x2")
    assert "CPU work-items" in capsys.readouterr().out


def test_several_sources_get_a_line_each_and_failures_an_exit_status(
    kernel: Path, tmp_path: Path, capsys
) -> None:
    run("predict", str(kernel), str(tmp_path / "none.ll"), *LAUNCH, "--json", code=1)
    out, err = capsys.readouterr()
    first, second = (json.loads(line) for line in out.splitlines())
    assert first["source"] == str(kernel)
    assert "none.ll" in second["error"]
    assert "none.ll" in err


def test_a_table_of_launches_is_answered_at_once(
    kernel: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # the path of the kernel stands on one line
    table = tmp_path / "launches.csv"
    table.write_text("source,local_size,bytes\nscale.ll,64,1024\nscale.ll,64,1073741824\n")
    run("predict", "--batch", str(table))
    assert capsys.readouterr().out.count("scale.ll") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("predict",), "Give a source with --global-size, sources with --local-size and --bytes"),
        (("predict", "k.ll", "--batch", "x.csv"), "give either it or sources"),
        (("predict", "k.ll", *LAUNCH, "--global-size", "1000"), "is not made of whole work-groups"),
        (("predict", "k.ll", *LAUNCH, "--pair", "h200"), "No pair of devices called 'h200'"),
        (("explain", "k.ll", "--bytes", "1", "--local-size", "many"), "local_size must be written like 1024"),
    ],
)
def test_what_is_wrong_is_one_line(words: tuple[str, ...], message: str, capsys) -> None:
    run(*words, code=1)
    err = capsys.readouterr().err
    assert err.startswith("apportion: ")
    assert message in err
    assert err.count("\n") == 1


def test_unseen_kernels_get_a_page(kernel: Path, tmp_path: Path, capsys) -> None:
    table = tmp_path / "measured.csv"
    table.write_text("source,local_size,bytes,cpu_share\nscale.ll,64,4194304,0.4\n")
    page = tmp_path / "unseen.md"
    run("unseen", "--measured", str(table), "--out", str(page), "--json", command=reproduce)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    networks = {"gnn-load-balance", "gnn-load-balance-classes"}
    assert {line["pair"] for line in found} == {"cgo17-nvidia", "cgo17-amd", *networks}
    assert "cgo17-nvidia: 1 kernels" in page.read_text()


def test_a_damaged_row_of_a_table_fails_alone(kernel: Path, tmp_path: Path, capsys) -> None:
    table = tmp_path / "launches.csv"
    table.write_text(
        "source,local_size,bytes,kernel,global_size\nscale.ll,64,1024,,4096\nscale.ll,many,1,,\nscale.ll,8x8,9,,\n"
    )
    run("predict", "--batch", str(table), "--json", code=1)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["source"].endswith("scale.ll")
    assert (rows[0]["local_size"], rows[0]["global_size"], rows[0]["bytes"]) == ("64", "4096", 1024)
    assert rows[1]["error"].endswith(
        "launches.csv:3: local_size must be written like 1024 or 1024x64, not 'many'"
    )
    assert (rows[2]["local_size"], rows[2]["global_size"]) == ("8x8", None)


ROWS = """kernel void rows(global const float *a, global float *y, int n) {
  int i = get_global_id(0);
  float s = 0;
  for (int j = 0; j < n; j++)
    s += a[i * n + j];
  y[i] = s;
}
"""


def test_lines_of_the_source_are_shown(tmp_path: Path, capsys) -> None:
    (tmp_path / "rows.cl").write_text(ROWS)
    run("explain", str(tmp_path / "rows.cl"), *LAUNCH)
    out = capsys.readouterr().out
    assert "s += a[i * n + j];" in out
    assert "getelementptr" not in out
    run("explain", str(tmp_path / "rows.cl"), *LAUNCH, "--json")
    said = json.loads(capsys.readouterr().out)
    assert {5, 6} <= {each["line"] for each in said["lines"]}
    assert sum(each["added"] for each in said["lines"]) == pytest.approx(
        sum(each["added"] for each in said["instructions"]), abs=1e-4
    )
    run("explain", str(tmp_path / "rows.cl"), *LAUNCH, "--ir")
    assert "instruction" in capsys.readouterr().out


def test_models_of_times_are_explained_too(tmp_path: Path, capsys) -> None:
    (tmp_path / "rows.cl").write_text(ROWS)
    words = ("explain", str(tmp_path / "rows.cl"), *LAUNCH, "--pair", "xeon-h200")
    run(*words, "--global-size", "4096")
    out, err = capsys.readouterr()
    assert "Assumed: a=float32[" in err
    run(*words, "-n", "4096", "--arg", "n=16", "--json")
    assert not any("n=" in each for each in json.loads(capsys.readouterr().out)["assumed"])
    assert "gpu, ms" in out
    assert out.index("s += a[i * n + j];") < out.index("y[i] = s;")
    run(*words, code=1)
    assert "give its --global-size" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["explain", "explain --pair xeon-h200 -n 4096", "inspect -n 4096 -l 64"])
def test_lines_are_those_of_the_file_where_a_header_stands_in_it(verb: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "what.h").write_text("#define FIRST\n#define SECOND\n#define THIRD\n")
    (tmp_path / "rows.cl").write_text('#include "what.h"\n' + ROWS)
    name, *more = verb.split()
    run(name, str(tmp_path / "rows.cl"), *(LAUNCH if name == "explain" else ()), *more)
    out = capsys.readouterr().out
    assert "s += a[i * n + j];" in out
    assert "#define" not in out


def test_every_verb_that_looks_into_lines_takes_the_options_of_a_build(tmp_path: Path, capsys) -> None:
    (tmp_path / "given.cl").write_text("kernel void f(global T *x, int n) { x[get_global_id(0)] = n; }\n")
    words = ("inspect", str(tmp_path / "given.cl"), "-n", "4096", "--arg", "n=N")
    run(*words, "--build-options", "-DT=float -cl-fast-relaxed-math", "--std", "CL1.2")
    assert "x=float32[4096]" in capsys.readouterr().err
    run(*words, "--guess")
    assert "Guessed: -D T=float" in capsys.readouterr().err
