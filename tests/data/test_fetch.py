"""Downloads from a real server on this machine that cuts connections, ignores ranges or sends the wrong bytes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from atoll.data import published as known
from atoll.data.fetch import fetch
from atoll.data.published import Published
from atoll.errors import DataError
from atoll.rng import stream
from refusals import refused

CONTENT = stream(0).bytes(300_000)


@dataclass
class Manner:
    """How the server behaves, and what it was asked."""

    cuts: int = 0  # answers that break off after 100,000 bytes
    ranges: bool = True
    silent_after: int = 1 << 30  # bytes of the file beyond which it announces more but sends nothing
    content: bytes = CONTENT
    asked: list[str | None] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    manner: Manner

    def do_GET(self) -> None:
        manner = self.manner
        wanted = self.headers.get("Range")
        manner.asked.append(wanted)
        if not self.path.endswith("/images.bin"):
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and manner.ranges else 0
        if start and start >= len(manner.content):
            self.send_error(416)
            return
        body = manner.content[start:]
        sent = manner.content[start : manner.silent_after]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if manner.cuts > 0:
            manner.cuts -= 1
            sent = sent[:100_000]
        self.wfile.write(sent)

    def log_message(self, format: str, *arguments: object) -> None:
        """Silence."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Manner]]:
    monkeypatch.setattr("atoll.data.fetch.PAUSE", 0.0)
    manner = Manner()
    listening = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Handler,), {"manner": manner}))
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listening.server_port}/data"
    files = {"images.bin": f"md5:{hashlib.md5(CONTENT).hexdigest()}"}
    monkeypatch.setitem(known.PUBLISHED, "made", Published(f"{address}/", files))
    yield address, manner
    listening.shutdown()
    listening.server_close()
    thread.join()


def test_a_whole_file_with_progress_and_not_twice(server: tuple[str, Manner], tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    paths = fetch("made", tmp_path, progress=lambda *step: seen.append(step))
    assert paths == [tmp_path / "made" / "images.bin"] and paths[0].read_bytes() == CONTENT
    assert seen[-1] == ("images.bin", 300_000, 300_000)
    assert [step[1] for step in seen] == sorted(step[1] for step in seen)
    fetch("made", tmp_path)
    assert server[1].asked == [None]
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["images.bin"]


def test_a_cut_download_goes_on_where_it_was(server: tuple[str, Manner], tmp_path: Path) -> None:
    server[1].cuts = 2
    (path,) = fetch("made", tmp_path)
    assert path.read_bytes() == CONTENT
    assert server[1].asked == [None, "bytes=100000-", "bytes=200000-"]


def test_a_later_call_continues_and_a_mirror_will_do(server: tuple[str, Manner], tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "images.bin.part").write_bytes(CONTENT[:123_456])
    (path,) = fetch("made", tmp_path, base=server[0].replace("/data", "/mirror"))
    assert path.read_bytes() == CONTENT and server[1].asked == ["bytes=123456-"]


def test_a_server_without_ranges_starts_again(server: tuple[str, Manner], tmp_path: Path) -> None:
    server[1].cuts, server[1].ranges = 1, False
    (path,) = fetch("made", tmp_path)
    assert path.read_bytes() == CONTENT and len(server[1].asked) == 2


def test_a_finished_part_is_only_checked(server: tuple[str, Manner], tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "images.bin.part").write_bytes(CONTENT)
    (path,) = fetch("made", tmp_path)
    assert path.read_bytes() == CONTENT


def test_wrong_bytes_are_thrown_away(server: tuple[str, Manner], tmp_path: Path) -> None:
    server[1].content = bytes(300_000)
    with refused(DataError, "wrong-checksum", tmp_path / "made" / "images.bin"):
        fetch("made", tmp_path)
    assert list((tmp_path / "made").iterdir()) == []
    server[1].content = CONTENT
    assert fetch("made", tmp_path)[0].read_bytes() == CONTENT


def test_a_damaged_file_is_replaced(server: tuple[str, Manner], tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "images.bin").write_bytes(b"half")
    assert fetch("made", tmp_path)[0].read_bytes() == CONTENT


def test_a_server_that_never_sends_is_given_up_and_the_part_kept(server: tuple[str, Manner], tmp_path: Path) -> None:
    server[1].silent_after = 150_000
    with refused(DataError, "download-interrupted", server[0]):
        fetch("made", tmp_path)
    assert (tmp_path / "made" / "images.bin.part").read_bytes() == CONTENT[:150_000]
    assert server[1].asked == [None] + ["bytes=150000-"] * 5


def test_addresses_that_do_not_answer(server: tuple[str, Manner], tmp_path: Path) -> None:
    known.PUBLISHED["made"].files["other.bin"] = "md5:0"
    with refused(DataError, "download-refused", "other.bin", "404"):
        fetch("made", tmp_path)
    with refused(DataError, "download-interrupted", "http://127.0.0.1:1/"):
        fetch("made", tmp_path / "new", base="http://127.0.0.1:1/")
    with refused(DataError, "dataset-not-fetchable", "'made_up'", "'made'"):
        fetch("made_up", tmp_path)


def test_a_folder_that_cannot_be_written(server: tuple[str, Manner], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with refused(DataError, "folder-not-writable", tmp_path / "file"):
        fetch("made", tmp_path / "file")
