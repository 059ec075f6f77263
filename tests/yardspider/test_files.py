"""``self.files``: files of a run, kept beside its items; in virtual time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.yardspider.crawls import FAST, changed
from tests.yardspider.item_brokers import ItemCenter, ItemRun, item_run
from tests.yardspider.test_item_publisher import page
from yardkit.items.files import LINK, MAX_FILE_BYTES
from yardkit.protocol import CHUNK_BYTES, FileChunk
from yardspider import Response, Spider
from yardspider.testing import run_spider


class Keeper(Spider):
    """Keeps the page, and a file on disk if its argument ``path`` says so."""

    settings = FAST
    start_urls = ["http://h/a.png"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"image": self.files.put("images/a.png", response.body)}


def content(chunks: list[FileChunk]) -> bytes:
    """The file of all chunks, which must be whole."""
    first = chunks[0]
    assert [chunk.part for chunk in chunks] == list(range(first.parts))
    data = b"".join(chunk.data for chunk in chunks)
    for chunk in chunks:
        assert (chunk.size, chunk.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    return data


@pytest.mark.covers("DS.12")
def test_a_file_is_kept_and_linked() -> None:
    center = ItemCenter(page, seconds=3)
    outcome = item_run(Keeper, center)
    assert (outcome.state, outcome.counters.success) == ("exited", 1)
    (chunk,) = center.chunks
    assert (chunk.name, chunk.content_type, chunk.data) == ("images/a.png", "image/png", b"x")
    assert center.items() == [{"image": LINK + "images/a.png"}]
    assert any(report.items and not report.success for report in center.reports)


@pytest.mark.covers("DS.12")
@pytest.mark.parametrize("size", [0, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_a_file_on_disk_is_sent_in_parts_and_may_be_deleted_at_once(
    tmp_path: Path, size: int
) -> None:
    path = tmp_path / "large"
    made = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    class Large(Keeper):
        def parse(self, response: Response) -> Iterator[Any]:
            path.write_bytes(made)
            self.files.put("large.bin", path, "application/x-large")
            path.unlink()
            yield {"n": 1}

    center = ItemCenter(page)
    outcome = item_run(Large, center)
    assert (outcome.state, outcome.counters.success) == ("exited", 1)
    assert content(center.chunks) == made
    assert center.chunks[0].content_type == "application/x-large"


@pytest.mark.slow("2 s")
@pytest.mark.covers("DS.12")
async def test_large_files_travel_no_faster_than_they_are_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 10 * CHUNK_BYTES)

    class Large(Spider):
        settings = changed(unconfirmed_bytes=CHUNK_BYTES - 1, concurrency=1)
        start_urls = ["http://h/1", "http://h/2"]

        def parse(self, response: Response) -> None:
            self.files.put(response.url[-1], path)

    center = ItemCenter(page, seconds=None)
    run = ItemRun(Large(), center)
    running = asyncio.create_task(run.engine.run())
    for part in range(1, 21):
        while not center.open:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.005)
        assert len(center.open) == 1, "more is on its way than may be unconfirmed"
        assert len(center.requests) == (1 if part <= 10 else 2)
        center.confirm(center.open[0])
    assert (await running).counters.success == 2
    assert content(center.chunks[:10]) == content(center.chunks[10:]) == path.read_bytes()


@pytest.mark.covers("DS.12")
async def test_a_coroutine_waits_for_room() -> None:
    class Many(Spider):
        settings = changed(unconfirmed_bytes=1000)
        start_urls = ["http://h/"]

        async def parse(self, response: Response) -> None:
            for number in range(50):
                self.files.put(str(number), b"x" * 900)
                await self.files.room()

    center = ItemCenter(page, seconds=0.1)
    outcome = await ItemRun(Many(), center).engine.run()
    assert outcome.counters.success == 1
    assert len(center.chunks) == 50
    assert center.most_open_bytes <= 3000


@pytest.mark.covers("DS.12")
def test_a_file_that_becomes_shorter_fails_the_run(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 3 * CHUNK_BYTES)

    class Cut(Keeper):
        def parse(self, response: Response) -> Iterator[Any]:
            self.files.put("log", path)
            with path.open("r+b") as file:
                file.truncate(CHUNK_BYTES)
            yield {"n": 1}

    outcome = item_run(Cut, ItemCenter(page))
    assert (outcome.state, outcome.counters.success) == ("failed", 0)
    assert outcome.reason == "cannot read log: log has become shorter while it was sent"


@pytest.mark.covers("DS.12")
@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "a/../b", "..", "a//b", "./a", "a/", "a\nb", "a\x7fb", "\ud800", "x" * 501],
)
def test_names_that_could_leave_the_folder_fail_the_request(name: str) -> None:
    class Odd(Keeper):
        def parse(self, response: Response) -> Iterator[Any]:
            yield {"file": self.files.put(name, b"x")}

    center = ItemCenter(page)
    outcome = item_run(Odd, center)
    assert (outcome.counters.failed, center.messages) == (1, [])
    assert "cannot name a file" in outcome.failures[0].reason


@pytest.mark.covers("DS.12")
def test_files_that_cannot_be_kept_fail_the_request(tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    arguments: list[tuple[Any, ...]] = [
        ("huge", huge),
        ("gone", tmp_path / "gone"),
        ("type", b"x", "text/plain\r\nSet-Cookie: a=b"),
        ("none", None),
    ]

    class Odd(Keeper):
        start_urls = [f"http://h/{number}" for number in range(len(arguments))]

        def parse(self, response: Response) -> Iterator[Any]:
            yield {"file": self.files.put(*arguments[int(response.url[-1])])}

    center = ItemCenter(page)
    outcome = item_run(Odd, center)
    assert (outcome.counters.failed, center.messages) == (len(arguments), [])
    reasons = sorted(note.reason for note in outcome.failures)
    for said in (f"huge: {MAX_FILE_BYTES + 1} bytes", "FileNotFoundError", "is no media type"):
        assert any(said in reason for reason in reasons), reasons


@pytest.mark.covers("DS.12")
def test_files_in_a_test() -> None:
    result = run_spider(Keeper, page)
    assert result.files == {"images/a.png": b"x"}
    assert result.items == [{"image": "crawlyard-file:images/a.png"}]
