"""Files that are damaged, or made to harm: each verb that reads them says one line and ends with status 1."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from apportion.cli import main

DEEP = "[" * 100_000 + "]" * 100_000
DIGITS = "9" * 5000
KERNEL = "kernel void twice(global float *x, int n) { if (get_global_id(0) < n) x[get_global_id(0)] *= 2; }"


def _told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert said.startswith("apportion: ")
    assert said.count("\n") == 1
    assert len(said) < 500
    return said


@pytest.mark.parametrize("text", [DEEP, DIGITS], ids=["deep", "digits"])
@pytest.mark.parametrize(
    "words",
    [
        ("dataset", "show"),
        ("dataset", "verify"),
        ("rank", "show"),
        ("relative", "predict", "runs.json", "--model"),
    ],
    ids=" ".join,
)
def test_a_folder_that_describes_itself_in_json_that_cannot_be_used(
    words: tuple[str, ...], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("store.json", "artifact.json"):
        (tmp_path / name).write_text(text)
    assert str(tmp_path) in _told(capsys, *words, tmp_path)


@pytest.mark.parametrize("text", [DEEP, DIGITS], ids=["deep", "digits"])
def test_an_experiment_that_cannot_be_used(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(f"seed = {text}\n")
    assert "experiment.toml: is not TOML" in _told(capsys, "train", file)


HEADERS = {
    "more than there is": "(1000000000000,)",
    "more than can be counted": "(9223372036854775807, 9223372036854775807)",
    "digits": f"({DIGITS},)",
    "less than nothing": "(-5,)",
    "no header": "((((((((((",
}


@pytest.mark.parametrize("shape", HEADERS.values(), ids=HEADERS)
def test_an_array_whose_header_is_wrong(
    shape: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ziglang")
    (tmp_path / "k.cl").write_text(KERNEL)
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    array = tmp_path / "x.npy"
    array.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64))
    said = _told(capsys, "run", tmp_path / "k.cl", "-n", "64", "--arg", f"x={array}", "--arg", "n=3")
    assert f"Cannot read the array {array}" in said


@pytest.mark.parametrize(
    "option", [("-n", DIGITS), ("-n", "64", "--arg", f"n={DIGITS}")], ids=["range", "argument"]
)
def test_a_number_of_thousands_of_digits(
    option: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ziglang")
    (tmp_path / "k.cl").write_text(KERNEL)
    _told(capsys, "run", tmp_path / "k.cl", *option)
