"""Where datasets belong, and whether they are whole."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from apportion.data.catalogue import Dataset, File, check, dataset_called, fetch, instructions
from apportion.errors import InvalidSetting, LimitExceeded, MalformedInput, UnknownName, UnreadableFile

CONTENT = b"0123456789" * 50
SHA = hashlib.sha256(CONTENT).hexdigest()


def archive_of(*members: tuple[str, bytes | str]) -> bytes:
    """A packed archive: files with their contents, links with what they point to."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:bz2") as written:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                written.addfile(member, io.BytesIO(content))
            else:
                member.type, member.linkname = tarfile.SYMTYPE, content
                written.addfile(member)
    return packed.getvalue()


ARCHIVE = archive_of(("graphs/a.pb", CONTENT), ("train/a.pb", "../graphs/a.pb"))


def packed_dataset(url: str = "") -> Dataset:
    file = File("all.tar.bz2", "", url, "ask its author", size=len(ARCHIVE), unpacked=len(CONTENT))
    return Dataset("d", "what", "origin", "licence", (file,))


def dataset(url: str = "", sha256: str = SHA) -> Dataset:
    return Dataset("d", "what", "origin", "licence", (File("f.bin", sha256, url, "ask its author"),))


@pytest.fixture
def server():
    """A server of CONTENT that goes on where it is asked to; `asked` keeps the ranges."""
    asked: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            asked.append(wanted)
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            content = ARCHIVE if self.path.endswith(".tar.bz2") else CONTENT
            if start == len(content):
                self.send_error(416)
                return
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            # At these addresses, the first answer breaks off.
            broken = self.path.startswith("/broken") and not wanted
            self.wfile.write(content[start : 100 if broken else None])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/f.bin", asked
        running.shutdown()
        thread.join()


def test_a_file_is_good_missing_or_wrong(tmp_path: Path) -> None:
    assert [c.state for c in check(dataset(), tmp_path)] == ["missing"]
    (tmp_path / "f.bin").write_bytes(CONTENT)
    assert [c.state for c in check(dataset(), tmp_path)] == ["good"]
    (tmp_path / "f.bin").write_bytes(b"other")
    assert [c.state for c in check(dataset(), tmp_path)] == ["wrong checksum"]


def test_a_download_goes_on_where_it_stopped(tmp_path: Path, server) -> None:
    url, asked = server
    (tmp_path / "f.bin.part").write_bytes(CONTENT[:123])
    assert [c.state for c in fetch(dataset(url), tmp_path)] == ["good"]
    assert (tmp_path / "f.bin").read_bytes() == CONTENT
    assert asked == ["bytes=123-"]
    assert [c.state for c in fetch(dataset(url), tmp_path)] == ["good"]
    assert len(asked) == 1


def test_what_a_broken_connection_brought_is_kept_and_gone_on_from(tmp_path: Path, server) -> None:
    url, asked = server
    broken = url.replace("/f.bin", "/broken")
    with pytest.raises(UnreadableFile, match="broken off after 100 of 500 bytes; the same command goes on"):
        list(fetch(dataset(broken), tmp_path))
    assert [c.state for c in fetch(dataset(broken), tmp_path)] == ["good"]
    assert asked == [None, "bytes=100-"]


def test_a_download_that_only_was_not_put_in_place_is(tmp_path: Path, server) -> None:
    (tmp_path / "f.bin.part").write_bytes(CONTENT)
    assert [c.state for c in fetch(dataset(server[0]), tmp_path)] == ["good"]
    assert [path.name for path in tmp_path.iterdir()] == ["f.bin"]


def test_what_has_another_checksum_is_not_kept(tmp_path: Path, server) -> None:
    with pytest.raises(InvalidSetting, match="does not have the checksum"):
        list(fetch(dataset(server[0], "0" * 64), tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_message_says_what_to_do(tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9/f.bin"
    with pytest.raises(
        UnreadableFile, match=rf"On a machine with a network, download {nobody} and put it at"
    ):
        list(fetch(dataset(nobody), tmp_path, seconds=2))


def test_without_a_network_every_file_is_named(tmp_path: Path) -> None:
    files = [File(name, SHA, f"http://127.0.0.1:9/{name}") for name in ("a.bin", "b.bin")]
    whole = Dataset("d", "what", "origin", "licence", (*files, File("c.bin", SHA, by_hand="ask its author")))
    tried = fetch(whole, tmp_path, seconds=2)
    assert next(tried).file.name == "c.bin"
    with pytest.raises(UnreadableFile, match=r"(?s)download \S+/a\.bin .*download \S+/b\.bin "):
        next(tried)


def test_a_file_without_an_address_is_got_by_hand(tmp_path: Path) -> None:
    (condition,) = fetch(dataset(), tmp_path)
    assert condition.state == "missing"
    assert instructions(condition).startswith("ask its author and put it at")


def test_an_archive_is_gone_on_with_verified_by_what_came_first_and_unpacked_once(
    tmp_path: Path, server
) -> None:
    url, asked = server
    broken = packed_dataset(url.replace("/f.bin", "/broken.tar.bz2"))
    with pytest.raises(UnreadableFile, match="broken off after 100 of"):
        list(fetch(broken, tmp_path))
    (condition,) = fetch(broken, tmp_path)
    assert asked == [None, "bytes=100-"]
    assert condition.in_words == "good (as it came first: no checksum of it is known)"
    assert (tmp_path / "train/a.pb").read_bytes() == CONTENT
    assert (tmp_path / "train/a.pb").is_symlink()
    (tmp_path / "graphs/a.pb").write_bytes(b"changed by hand")
    assert [one.state for one in fetch(broken, tmp_path)] == ["good"]
    assert (tmp_path / "train/a.pb").read_bytes() == b"changed by hand"
    assert len(asked) == 2
    (tmp_path / "all.tar.bz2").write_bytes(ARCHIVE[:-1])
    assert [one.state for one in check(broken, tmp_path)] == ["wrong checksum"]


def test_files_are_taken_from_a_folder_where_there_is_no_network(tmp_path: Path) -> None:
    carried, place = tmp_path / "carried", tmp_path / "place"
    carried.mkdir()
    nobody = "http://127.0.0.1:9/f.bin"
    with pytest.raises(UnreadableFile, match=r"carried has no f\.bin: download http://127"):
        list(fetch(dataset(nobody), place, source=carried))
    (carried / "f.bin").write_bytes(b"something else")
    with pytest.raises(InvalidSetting, match="does not have the checksum"):
        list(fetch(dataset(nobody), place, source=carried))
    assert not (place / "f.bin").exists()
    (carried / "f.bin").write_bytes(CONTENT)
    assert [one.state for one in fetch(dataset(nobody), place, source=carried)] == ["good"]
    (carried / "all.tar.bz2").write_bytes(ARCHIVE)
    assert [one.state for one in fetch(packed_dataset(nobody), place, source=carried)] == ["good"]
    assert (place / "graphs/a.pb").read_bytes() == CONTENT


def test_a_file_that_was_put_there_by_hand_is_unverified_until_it_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "all.tar.bz2").write_bytes(ARCHIVE)
    assert [one.state for one in check(packed_dataset(), tmp_path)] == ["unverified"]
    assert [one.state for one in fetch(packed_dataset(), tmp_path)] == ["good"]
    assert [one.state for one in check(packed_dataset(), tmp_path)] == ["good"]


@pytest.mark.parametrize(
    ("members", "error", "words"),
    [
        ((("zeros", bytes(80 << 20)),), LimitExceeded, "more than it is known to hold"),
        ((("../out", b"x"),), MalformedInput, "leads out of the folder"),
        ((("/out", b"x"),), MalformedInput, "leads out of the folder"),
        ((("link", "../../out"),), MalformedInput, "leads out of the folder"),
        ((("link", "/etc"), ("link/passwd", b"x")), MalformedInput, "leads out of the folder"),
    ],
)
def test_an_archive_that_is_a_bomb_or_leads_out_is_refused(
    tmp_path: Path, members, error: type[Exception], words: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "all.tar.bz2").write_bytes(archive_of(*members))
    with pytest.raises(error, match=words):
        list(fetch(packed_dataset(), place))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place"]
    assert not (place / "all.tar.bz2.unpacked").exists()


def test_only_the_files_that_are_named_are_fetched(tmp_path: Path, server) -> None:
    files = tuple(File(name, SHA, server[0]) for name in ("a.bin", "b.bin"))
    whole = Dataset("d", "what", "origin", "licence", files)
    assert [one.file.name for one in fetch(whole, tmp_path, only=("b.bin",))] == ["b.bin"]
    with pytest.raises(UnknownName, match=r"No file of d called 'c\.bin'"):
        list(fetch(whole, tmp_path, only=("c.bin",)))


def test_data_belongs_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPORTION_DATA", "/data")
    assert dataset_called("cgo17").folder == Path("/data/cgo17")
    with pytest.raises(UnknownName, match=r"No dataset called 'cgo71'\. Did you mean 'cgo17'"):
        dataset_called("cgo71")


def test_the_data_beside_the_checkout_is_whole(shared_data: Path) -> None:
    for name in ("cgo17", "chai"):
        assert {c.state for c in check(dataset_called(name), shared_data / name)} == {"good"}
