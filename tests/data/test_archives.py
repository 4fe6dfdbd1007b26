"""Archives from elsewhere: damaged ones, and those that are larger than they look."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from apportion.data import archives
from apportion.data.archives import files_in
from apportion.errors import ApportionError, LimitExceeded, MalformedInput, UnreadableFile

TEXTS = {f"corpus/{number:03}.ll": f"; {number}\n".encode() * (number + 1) for number in range(300)}


def tar_of(texts: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name, data in texts.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return whole.getvalue()


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_files_come_out_as_they_went_in(compress: object, tmp_path: Path) -> None:
    path = tmp_path / "corpus.tar"
    path.write_bytes(compress(tar_of(TEXTS)))  # type: ignore[operator]
    assert dict(files_in(path)) == TEXTS
    assert dict(files_in(path, {".ll"})) == TEXTS
    assert dict(files_in(path, {".c"})) == {}


def test_links_folders_and_devices_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "corpus.tar"
    with tarfile.open(path, "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"odd-{kind!r}.ll")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert list(files_in(path)) == []


def test_no_flipped_bit_of_a_compressed_corpus_goes_unnoticed(tmp_path: Path) -> None:
    whole = gzip.compress(tar_of(TEXTS), mtime=0)
    path = tmp_path / "corpus.tar.gz"
    draw = random.Random(0)
    for _ in range(200):
        data = bytearray(whole)
        data[draw.randrange(10, len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        with suppress(ApportionError):
            assert dict(files_in(path)) == TEXTS  # some bits mean nothing


def test_a_damaged_header_in_the_middle_is_no_end(tmp_path: Path) -> None:
    whole = bytearray(tar_of(TEXTS))
    whole[1024 * 100 + 100] ^= 0xFF  # each of the first files takes two blocks
    path = tmp_path / "corpus.tar"
    path.write_bytes(whole)
    with pytest.raises(MalformedInput, match=r"damaged|cut short"):
        list(files_in(path))


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.97])
def test_a_corpus_that_was_cut_short_is_an_error(part: float, tmp_path: Path) -> None:
    for name, whole in (("a.tar", tar_of(TEXTS)), ("a.tar.gz", gzip.compress(tar_of(TEXTS)))):
        (tmp_path / name).write_bytes(whole[: int(part * len(whole))])
        with pytest.raises(MalformedInput, match=r"damaged|cut short"):
            list(files_in(tmp_path / name))


def test_a_bomb_does_not_go_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gzip.compress(tar_of({f"{number}.ll": bytes(1 << 20) for number in range(30)}), 9))
    assert path.stat().st_size < 1 << 17
    with pytest.raises(LimitExceeded, match=r"more than .* bytes when it is unpacked"):
        list(files_in(path))
    with pytest.raises(LimitExceeded):  # also where nothing of it is wanted
        list(files_in(path, {".c"}))


def test_a_file_that_claims_to_be_enormous_is_not_read(tmp_path: Path) -> None:
    member = tarfile.TarInfo("x.ll")
    member.size = 1 << 50
    (tmp_path / "a.tar").write_bytes(member.tobuf() + bytes(2048))
    with pytest.raises(LimitExceeded):
        list(files_in(tmp_path / "a.tar"))


@pytest.mark.parametrize(
    "data", [b"", b"no archive at all", b"\x1f\x8b" + bytes(40), b"\xfd7zXZ\0" + bytes(40)]
)
def test_what_is_no_archive_is_an_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(MalformedInput, match="No archive, damaged, or cut short"):
        list(files_in(tmp_path / "a.tar"))
    with pytest.raises(UnreadableFile, match="No such file"):
        list(files_in(tmp_path / "absent.tar"))
