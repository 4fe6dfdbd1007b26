"""`apportion predict`, `apportion data` and `python -m reproduction` from the command line."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest

from apportion.cli import main
from reproduction.__main__ import main as reproduce

KERNELS = Path(__file__).parents[1] / "kernels"
LL = "define void @f() {\n  ret void\n}\n"


def reproduced(*words: str) -> None:
    with pytest.raises(SystemExit) as left:
        reproduce(list(words))
    assert not left.value.code


def run(*words: str) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 0


def test_predict_prints_json_on_stdout_and_warnings_on_stderr(tmp_path: Path, capsys) -> None:
    (tmp_path / "f.ll").write_text(LL)
    run("predict", str(tmp_path / "f.ll"), "--local-size", "64", "--bytes", "4194304", "--json")
    out, err = capsys.readouterr()
    assert 0 <= json.loads(out)["cpu_share"] <= 1
    assert "Warning: the kernel never asks for" in err


def test_predict_reads_opencl_c(capsys) -> None:
    pytest.importorskip("ziglang")
    run("predict", str(KERNELS / "saxpy.cl"), "--local-size", "64", "--bytes", "4194304")
    assert "faster device" in capsys.readouterr().out


def test_a_wrong_size_is_one_line_and_exit_status_1(capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main(["predict", str(KERNELS / "saxpy.cl"), "--local-size", "0", "--bytes", "1"])
    assert left.value.code == 1
    assert capsys.readouterr().err == "apportion: local_size must be 1 to 65536 work-items, not 0\n"


def test_an_unknown_pair_and_an_empty_file_are_one_line_and_exit_status_1(tmp_path: Path, capsys) -> None:
    (tmp_path / "empty.ll").write_text("")
    (tmp_path / "f.ll").write_text(LL)
    launch = ("--local-size", "64", "--bytes", "1")
    for words, said in (
        (("empty.ll",), "empty.ll: it defines no function"),
        (("f.ll", "--pair", "voodoo"), "No pair of devices called 'voodoo'. There are: cgo17-amd"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["predict", str(tmp_path / words[0]), *words[1:], *launch])
        assert left.value.code == 1
        err = capsys.readouterr().err
        assert said in err
        assert "Traceback" not in err


def test_a_kernel_of_fifty_thousand_lines_of_opencl_c_is_answered(tmp_path: Path, capsys) -> None:
    pytest.importorskip("ziglang")
    body = "\n".join(f"  v = v * {number}.5f + x[i];" for number in range(50_000))
    text = f"__kernel void k(__global float* x) {{ int i = get_global_id(0); float v = 0;\n{body}\n  x[i] = v; }}"
    (tmp_path / "long.cl").write_text(text)
    run("predict", str(tmp_path / "long.cl"), "--local-size", "64", "--bytes", "4194304", "--json")
    out, err = capsys.readouterr()
    assert json.loads(out)["familiarity"] < 0.1
    assert "unlike what the model learned from" in err


def test_predict_reads_bitcode(tmp_path: Path, capsys) -> None:
    binding = pytest.importorskip("llvmlite.binding", reason="bitcode needs the extra 'bitcode'")
    # Closed here: a module that is collected after its context takes the process with it.
    with binding.parse_assembly(LL, context=binding.create_context()) as module:
        (tmp_path / "f.bc").write_bytes(module.as_bitcode())
    (tmp_path / "f.ll").write_text(LL)
    launch = ("--local-size", "64", "--bytes", "4194304", "--json")
    shares = []
    for name in ("f.bc", "f.ll"):
        run("predict", str(tmp_path / name), *launch)
        shares.append(json.loads(capsys.readouterr().out)["cpu_share"])
    assert shares[0] == shares[1]


def test_data_says_what_there_is_and_where_it_belongs(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("APPORTION_DATA", "/data")
    run("data", "path", "cgo17")
    assert capsys.readouterr().out == "/data/cgo17\n"
    monkeypatch.setenv("COLUMNS", "300")
    run("data", "list")
    out = capsys.readouterr().out
    assert "GPL-3.0" in out
    assert "0076271192aa9a0a7c21aa9a637e34cd4460f8e21e756215dd23ffb2ae62dc62" in out


def test_checking_a_dataset_that_is_not_there_says_how_to_get_it(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main(["data", "check", "cgo17", "--folder", str(tmp_path), "--json"])
    assert left.value.code == 1
    out, err = capsys.readouterr()
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["missing"] * 3
    assert "amd.csv: download https://raw.githubusercontent.com/ChrisCummins/phd/" in err


def test_reproduce_without_data_says_how_to_get_it(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit) as left:
        reproduce(["predictor", "--data", str(tmp_path)])
    assert left.value.code == 1
    assert "amd.csv: missing. To get it, download" in capsys.readouterr().err


def test_reproduce_writes_its_page(shared_data: Path, tmp_path: Path, capsys) -> None:
    settings = tmp_path / "small.toml"
    settings.write_text(
        'task = "load-balance"\npairs = ["cgo17-nvidia"]\n[repetitions]\nthesis = 2\n'
        '[[rows]]\nname = "always 50"\nlearner = "constant"\nvalue = 50.0\n'
        '[[rows]]\nname = "median"\nlearner = "median"\n'
    )
    page = tmp_path / "page.md"
    reproduced(
        "load-balance", "--settings", str(settings), "--data", str(shared_data / "cgo17"),
        "--results", str(tmp_path / "r.jsonl"), "--out", str(page),
    )  # fmt: skip
    assert "680 of 680 rows used" in page.read_text()
    # The published level of always answering one half.
    assert "| always 50 | 20.20 |" in page.read_text()
    assert "mae, cgo17-nvidia" in capsys.readouterr().out


def test_device_mapping_shows_the_network_of_its_table_or_says_how_to_train_it(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    settings, page = tmp_path / "small.toml", tmp_path / "page.md"
    settings.write_text(
        'task = "device-mapping"\npairs = ["cgo17-amd", "cgo17-nvidia"]\n[repetitions]\nthesis = 1\n'
        '[[rows]]\nname = "always CPU"\nlearner = "constant"\ntarget = "device"\n'
    )
    networks = tmp_path / "networks"
    asked = (
        "device-mapping", "--settings", str(settings), "--data", str(shared_data / "cgo17"),
        "--results", str(tmp_path / "r.jsonl"), "--out", str(page), "--networks", str(networks),
    )  # fmt: skip
    reproduced(*asked)
    assert "## Table 4.2\n\nIts network was not trained here" in page.read_text()
    assert "`python -m reproduction ablation --form device-mapping` trains it" in capsys.readouterr().err
    with tarfile.open(root / "experiments" / "ablation-units.tar.xz") as archive:
        archive.extract("programl-device-mapping.device-mapping.amd.thesis.32.json", networks, filter="data")
    reproduced(*asked)
    assert "| the thesis' port, published | random (leaks) | 15.0 | 21.0 |" in page.read_text()
    assert re.search(r"\| ProGraML, device mapping \| random \(leaks\) \| [\d.]+ \(", page.read_text())


def test_where_a_header_lies_is_told_to_whoever_typed_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (tmp_path / "src" / "kernels").mkdir(parents=True)
    (tmp_path / "include" / "shared").mkdir(parents=True)
    (tmp_path / "include" / "shared" / "types.h").write_text("typedef float value;\n")
    file = tmp_path / "src" / "kernels" / "f.cl"
    file.write_text('#include "shared/types.h"\nkernel void f(global value *x) { *x = 1; }\n')
    monkeypatch.chdir(tmp_path / "src")
    words = ["predict", "kernels/f.cl", "--local-size", "64", "--bytes", "64", "--pair", "cgo17-amd"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1
    err = capsys.readouterr().err
    assert err.startswith("apportion: kernels/f.cl:1:10: 'shared/types.h' file not found.")
    assert err.rstrip().endswith("One lies there with: -I ../include")
    with pytest.raises(SystemExit) as ended:
        main([*words, "-I", "../include"])
    assert ended.value.code == 0


def test_predicted_times_have_as_many_digits_as_are_known(tmp_path: Path, capsys) -> None:
    file = tmp_path / "f.cl"
    file.write_text("kernel void f(global float *x, int n) { x[get_global_id(0)] = n; }\n")
    with pytest.raises(SystemExit):
        main(["inspect", str(file), "-n", "65536", "--json"])
    said = json.loads(capsys.readouterr().out)
    times = [device["milliseconds"] for machine in said["machines"] for device in machine["devices"]]
    times += [time for line in said["lines"] for time in line["milliseconds"].values()]
    assert times
    assert all(time == float(f"{time:.6g}") for time in times)
