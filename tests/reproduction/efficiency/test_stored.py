"""The pages of co-execution are made again from the rows that were stored, without the devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.errors import UnreadableFile
from reproduction.__main__ import main
from reproduction.efficiency.run import write_page

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "co-execution"


@pytest.mark.parametrize("size", ["large", "usual"])
def test_a_page_made_again_is_the_page_that_is_there(size: str, tmp_path: Path):
    write_page(RESULTS / size, tmp_path)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["co-execution-curves.svg", "co-execution.md"]
    for name in made:
        assert (tmp_path / name).read_text() == (RESULTS / size / name).read_text()


def test_a_folder_without_rows_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(UnreadableFile, match="Cannot read"):
        write_page(tmp_path, tmp_path)
    with pytest.raises(SystemExit):
        main(["efficiency", "--stored"])
    assert "name it with --out" in capsys.readouterr().err
