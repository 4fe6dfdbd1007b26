"""Where datasets belong, and whether they are whole."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from apportion.data.catalogue import Dataset, File, check, dataset_called, fetch, instructions
from apportion.errors import InvalidSetting, UnknownName, UnreadableFile

CONTENT = b"0123456789" * 50
SHA = hashlib.sha256(CONTENT).hexdigest()


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
            if start == len(CONTENT):
                self.send_error(416)
                return
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Length", str(len(CONTENT) - start))
            self.end_headers()
            # At this address, the first answer breaks off.
            broken = self.path == "/broken" and not wanted
            self.wfile.write(CONTENT[start : 100 if broken else None])

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


def test_data_belongs_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPORTION_DATA", "/data")
    assert dataset_called("cgo17").folder == Path("/data/cgo17")
    with pytest.raises(UnknownName, match=r"No dataset called 'cgo71'\. Did you mean 'cgo17'"):
        dataset_called("cgo71")


def test_the_data_beside_the_checkout_is_whole(shared_data: Path) -> None:
    for name in ("cgo17", "chai"):
        assert {c.state for c in check(dataset_called(name), shared_data / name)} == {"good"}
