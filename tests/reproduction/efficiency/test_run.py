from __future__ import annotations

from pathlib import Path

import pytest

from reproduction.__main__ import main as reproduce

pytest.importorskip("pyopencl")
pytest.importorskip("ziglang")


def test_efficiency_goes_on_where_it_stopped_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["efficiency", "triad", "--small", "--budget", "0.1", "--repeat", "5", "--threads", "1",
             "--devices", "cpu,cpu2", "--out", str(tmp_path / "out")]  # fmt: skip
    with pytest.raises(SystemExit) as stopped:
        reproduce(words)
    assert not stopped.value.code
    assert "triad" in capsys.readouterr().out
    rows = (tmp_path / "out" / "efficiency.jsonl").read_text()
    assert len(rows.splitlines()) == 1
    text = (tmp_path / "out" / "co-execution.md").read_text()
    assert text.startswith("# One kernel on two devices")
    assert "co-execution-curves.svg" in text
    with pytest.raises(SystemExit):
        reproduce([*words, "--json"])
    assert (tmp_path / "out" / "efficiency.jsonl").read_text() == rows
    (tmp_path / "out" / "efficiency.jsonl").write_text('{"problem": 3}\n')
    with pytest.raises(SystemExit) as stopped:
        reproduce(words)
    assert stopped.value.code == 1
    assert "not a table of efficiencies" in capsys.readouterr().err
