"""Launches to be predicted, and files of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion.advise.queries import Query, read_queries, size_of
from apportion.errors import InvalidSetting, MalformedInput, UnreadableFile


def test_sizes_are_written_in_one_dimension_or_in_each() -> None:
    assert size_of("1024") == 1024
    assert size_of("16x4") == size_of("16,4") == (16, 4)
    with pytest.raises(InvalidSetting, match="local_size must be written like 1024 or 1024x64, not '16;4'"):
        size_of("16;4", "local_size")


def test_a_share_is_cut_between_work_groups() -> None:
    query = Query("k.cl", 64, 0, global_size=640)
    assert [query.cut(share) for share in (0.0, 0.44, 0.46, 1.0)] == [0, 256, 320, 640]
    assert Query("k.cl", 64, 0).cut(0.5) is None


@pytest.mark.parametrize("local", [0, -64, 1 << 17, (512, 512), (-8, -8)])
def test_impossible_work_groups_are_refused(local: int | tuple[int, ...]) -> None:
    with pytest.raises(InvalidSetting, match="local_size must be 1 to 65536 work-items"):
        Query("k.cl", local, 0)


def test_impossible_byte_counts_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="bytes must not be negative"):
        Query("k.cl", 64, -1)
    with pytest.raises(InvalidSetting, match=r"at most 2\^60"):
        Query("k.cl", 64, 1 << 61)


def test_a_table_of_launches_is_read(tmp_path: Path) -> None:
    path = tmp_path / "launches.csv"
    path.write_text(
        "source,local_size,bytes,kernel,global_size,share\na.ll,16x4,4096,k,64x64,0.5\nb.ll,8,1,,,\n"
    )
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.ll").write_text("")
    first, second = read_queries(path, folder=tmp_path / "elsewhere", needed=("share",))
    assert first.query == Query(tmp_path / "a.ll", (16, 4), 4096, "k", (64, 64))
    assert (first.number("share"), second.number("share")) == (0.5, None)
    assert second.query.source == tmp_path / "elsewhere" / "b.ll"


def test_what_is_wrong_with_a_table_is_said_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "launches.csv"
    path.write_text("source,bytes\na.ll,1\n")
    with pytest.raises(
        MalformedInput, match="lacks the column 'local_size'; it needs source, local_size, bytes"
    ):
        read_queries(path)
    path.write_text("source,local_size,bytes\na.ll,64,1\nb.ll,64,many\n")
    with pytest.raises(MalformedInput, match=r"launches\.csv:3: .*'many'"):
        read_queries(path)
    with pytest.raises(UnreadableFile, match="Cannot read"):
        read_queries(tmp_path / "none.csv")
