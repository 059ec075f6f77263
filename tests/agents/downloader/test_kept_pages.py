"""Kept pages: WARC as warcio reads it, limits, kills, and stores that are away."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from apps.agents.downloader.kept import PageKeeper
from apps.agents.downloader.kept.keeper import UploadFailed
from apps.agents.downloader.kept.spool import PageSpool, Reason
from apps.agents.downloader.kept.warc import PageDownload
from tests.yardkit.web_server import Answer, Seen, page, redirect, serve
from yardkit.broker import Outgoing
from yardkit.clock import SystemClock
from yardkit.fetched import Fetched
from yardkit.fetcher import Fetcher
from yardkit.items.batches import read_batch
from yardkit.protocol import (
    DownloaderSettings,
    DownloadRequest,
    FailureKind,
    ItemBatch,
    KeepPages,
    PageCounters,
    PagePolicy,
    decode,
)

pytestmark = pytest.mark.covers("OB.2")
MANY = 1024 * 1024 * 1024


class Folder:
    """A store that is a folder; refuses or is away when told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: UploadFailed | None = None
        self.uploads = 0

    async def upload(self, run: int, token: str, path: Path) -> str:
        self.uploads += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        key = f"pages/p1/run-{run}/{path.name}"
        (self.path / key).parent.mkdir(parents=True, exist_ok=True)
        (self.path / key).write_bytes(path.read_bytes())
        return key


class Yields:
    """What the keeper publishes, decoded."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.batches: list[ItemBatch] = []
        self.counters: dict[str, PageCounters] = {}

    async def deliver(self, messages: Sequence[Outgoing], what: str, requests: int) -> bool:
        for outgoing in messages:
            message = decode(outgoing.body)
            if isinstance(message, ItemBatch):
                self.batches.append(message)
                self.rows += [item.data for item in read_batch(message)]
            elif isinstance(message, PageCounters):
                self.counters[message.boot] = message
        return True

    @property
    def chosen(self) -> int:
        return sum(one.chosen for one in self.counters.values())

    @property
    def not_kept(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in self.counters.values():
            for reason, count in one.not_kept.items():
                found[reason] = found.get(reason, 0) + count
        return found


def keeper_in(folder: Path, store: Folder, yields: Yields, **options: Any) -> PageKeeper:
    given = {"max_bytes": MANY, "file_seconds": 0.0, "retry_seconds": 0.05} | options
    return PageKeeper(
        folder=folder / "agents" / "pages" / "agent-1",
        agent="agent-1",
        deliver=yields.deliver,
        store=store,
        clock=SystemClock(),
        **given,
    )


def kept(
    number: int = 1, body: bytes = b"x" * 1000, status: int = 500, **facts: Any
) -> PageDownload:
    url = f"https://shop.example/{number}"
    fetched = Fetched(
        url,
        status,
        [(b"Content-Type", b"text/html")],
        body,
        FailureKind.NONE,
        "",
        5.0,
        False,
        **facts,
    )
    return PageDownload(number, 1, DownloadRequest(url=url), fetched, time.time(), "agent-1")


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)


def records(path: Path) -> list[tuple[str, Any, bytes]]:
    with path.open("rb") as file:
        return [
            (record.rec_type, record, record.raw_stream.read())
            for record in ArchiveIterator(file, no_record_parse=True)
        ]


@pytest.mark.parametrize(
    ("keep", "sample", "status", "failure", "chosen"),
    [
        (KeepPages.NONE, 1, 500, FailureKind.NONE, False),
        (KeepPages.FAILED, 1, 200, FailureKind.NONE, False),
        (KeepPages.FAILED, 1, 404, FailureKind.NONE, True),
        (KeepPages.FAILED, 1, 200, FailureKind.DATA_LOSS, True),
        (KeepPages.FAILED, 1, 0, FailureKind.TIMEOUT, False),
        (KeepPages.ALL, 1, 200, FailureKind.NONE, True),
        (KeepPages.ALL, 1, 0, FailureKind.DNS, False),
        (KeepPages.SAMPLE, 1, 200, FailureKind.NONE, True),
    ],
)
def test_a_policy_chooses_responses(
    keep: KeepPages, sample: int, status: int, failure: FailureKind, chosen: bool
) -> None:
    policy = PagePolicy(keep=keep, sample=sample)
    assert policy.chooses("https://shop.example/", status, failure) is chosen


def test_a_sample_holds_the_same_addresses_in_every_run() -> None:
    policy = PagePolicy(keep=KeepPages.SAMPLE, sample=10)
    urls = [f"https://shop.example/{number}" for number in range(10_000)]
    chosen = [url for url in urls if policy.chooses(url, 200, FailureKind.NONE)]
    assert 800 < len(chosen) < 1200
    assert chosen == [url for url in urls if policy.chooses(url, 404, FailureKind.NONE)]


async def broken_off(seen: Seen) -> bytes:
    seen.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
    await seen.writer.drain()
    seen.writer.close()
    return b""


async def test_warcio_reads_pages_as_they_were_received(tmp_path: Path) -> None:
    packed = gzip.compress(b"<p>hello</p>")
    answers: dict[str, Answer] = {
        "/packed": page(packed, headers={"Content-Encoding": "gzip", "X-Odd": "  two  words"}),
        "/chunked": b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\nX-Latin: caf\xe9\r\n"
        b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "/old": redirect("/packed"),
        "/lost": broken_off,
    }
    store, yields = Folder(tmp_path), Yields()
    keeper = keeper_in(tmp_path, store, yields)
    settings = DownloaderSettings(
        allowed_networks=["127.0.0.0/8"],
        pages=PagePolicy(keep=KeepPages.ALL),
        cookies={"session": "secret"},
    )
    async with serve(answers) as site:
        fetcher = Fetcher(settings)
        for number, path in enumerate(answers):
            request = DownloadRequest(
                url=site.url(path), method="POST", body=b"a=1", headers={"X-Mine": "yes"}
            )
            fetched = await fetcher.fetch(request)
            keeper.keep(7, "t", PageDownload(number, 2, request, fetched, time.time(), "agent-1"))
        await fetcher.close()
        keeper.start()
        await until(lambda: len(yields.rows) == 4)
        await keeper.close(2.0)
    rows = {row["url"].removeprefix(f"http://127.0.0.1:{site.port}"): row for row in yields.rows}
    (path,) = (tmp_path / "pages/p1/run-7").iterdir()
    found = records(path)
    assert [kind for kind, _, _ in found] == ["warcinfo", *["request", "response"] * 4]
    blocks = {
        record.rec_headers["WARC-Target-URI"]: block
        for kind, record, block in found
        if kind == "response"
    }
    head, _, body = blocks[site.url("/packed")].partition(b"\r\n\r\n")
    assert body == packed
    assert head == (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Encoding: gzip\r\nX-Odd: two  words"
        % len(packed)
    )
    head, _, body = blocks[site.url("/chunked")].partition(b"\r\n\r\n")
    assert body == b"hello"
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 Fine",
        b"X-Archive-Orig-Transfer-Encoding: chunked",
        b"X-Latin: caf\xe9",
        b"Set-Cookie: a=1",
        b"Set-Cookie: b=2",
    ]
    request = next(block for kind, _, block in found if kind == "request")
    assert request.startswith(b"POST /packed HTTP/1.1\r\n")
    assert request.endswith(b"\r\n\r\na=1")
    assert b"X-Mine: yes\r\n" in request
    assert b"Cookie: *\r\n" in request
    assert all(b"secret" not in block for _, _, block in found)
    moved = next(
        record
        for kind, record, _ in found
        if record.rec_headers["WARC-Target-URI"] == site.url("/old") and kind == "response"
    )
    assert moved.rec_headers["Crawlyard-Final-URI"] == site.url("/packed")
    assert moved.rec_headers["WARC-IP-Address"] == "127.0.0.1"
    assert rows["/old"]["final_url"] == site.url("/packed")
    assert (rows["/lost"]["failure"], rows["/lost"]["truncated"]) == ("data_loss", True)
    assert (rows["/packed"]["size"], rows["/packed"]["method"]) == (len(packed), "POST")
    assert (rows["/packed"]["request"], rows["/packed"]["attempt"]) == (0, 2)
    # The index leads to the record alone.
    content = path.read_bytes()
    for row in yields.rows:
        part = content[row["offset"] : row["offset"] + row["length"]]
        record = next(iter(ArchiveIterator(io.BytesIO(part))))
        assert record.rec_headers["WARC-Target-URI"] == row["url"]
        assert record.http_headers.get_statuscode() == str(row["status"])
    # warcio decodes the body by its headers.
    part = content[rows["/packed"]["offset"] :]
    assert next(iter(ArchiveIterator(io.BytesIO(part)))).content_stream().read() == b"<p>hello</p>"
    assert (yields.chosen, yields.not_kept) == (4, {})
    assert not list((tmp_path / "agents/pages/agent-1").glob("run-*"))


async def test_bodies_that_a_fetcher_has_decoded_are_marked(tmp_path: Path) -> None:
    store, yields = Folder(tmp_path), Yields()
    keeper = keeper_in(tmp_path, store, yields)
    fetched = Fetched(
        "https://a.example/",
        200,
        [(b"content-encoding", b"br"), (b"Content-Type", b"text/html; charset=utf-8")],
        b"<p>",
        FailureKind.NONE,
        "",
        1.0,
        True,
        screenshot=b"\xff\xd8\xff image",
    )
    keeper.keep(
        7,
        "t",
        PageDownload(1, 1, DownloadRequest(url="https://a.example/"), fetched, time.time(), "a"),
    )
    keeper.start()
    await until(lambda: yields.rows)
    await keeper.close(1.0)
    (path,) = (tmp_path / "pages/p1/run-7").iterdir()
    (_, _, (_, response, block), (kind, shot, image)) = records(path)
    assert b"X-Archive-Orig-content-encoding: br\r\n" in block
    assert response.rec_headers["WARC-Truncated"] == "length"
    assert (kind, image) == ("resource", b"\xff\xd8\xff image")
    assert shot.rec_headers["WARC-Target-URI"] == "urn:screenshot:https://a.example/"
    row = yields.rows[0]
    assert row["type"] == "text/html"
    start = row["screenshot_offset"]
    shown = path.read_bytes()[start : start + row["screenshot_length"]]
    assert next(iter(ArchiveIterator(io.BytesIO(shown)))).content_stream().read() == image


async def test_what_does_not_fit_on_the_agent_is_counted(tmp_path: Path) -> None:
    store, yields = Folder(tmp_path), Yields()
    store.error = UploadFailed("away")
    keeper = keeper_in(tmp_path, store, yields, max_bytes=20_000)
    keeper.start()
    for number in range(100):
        keeper.keep(7, "t", kept(number, os.urandom(1000)))
    await until(lambda: yields.not_kept and store.uploads)
    written = 100 - yields.not_kept[Reason.FULL]
    assert 5 < written < 20
    store.error = None
    await until(lambda: len(yields.rows) == written)
    # Once there is room again, pages are kept again.
    keeper.keep(7, "t", kept(200))
    await until(lambda: len(yields.rows) == written + 1)
    await keeper.close(1.0)
    assert yields.chosen == 101 == len(yields.rows) + sum(yields.not_kept.values())


async def test_a_store_that_refuses_costs_the_page_and_no_download(tmp_path: Path) -> None:
    store, yields = Folder(tmp_path), Yields()
    store.error = UploadFailed("403", refused=True)
    keeper = keeper_in(tmp_path, store, yields)
    keeper.start()
    keeper.keep(7, "t", kept())
    keeper.keep(7, "t", kept(2, b"y" * (33 * 1024 * 1024)))
    keeper.keep(7, "t", kept(3))
    await until(lambda: sum(yields.not_kept.values()) == 3)
    assert yields.not_kept == {Reason.REFUSED: 2, Reason.LARGE: 1}
    await keeper.close(1.0)


@pytest.mark.slow("2 s")
async def test_waiting_pages_do_not_fill_the_memory(tmp_path: Path) -> None:
    yields = Yields()
    keeper = keeper_in(tmp_path, Folder(tmp_path), yields)
    for number in range(70):
        keeper.keep(7, "t", kept(number, b"z" * 1024 * 1024))
    keeper.start()
    await until(lambda: len(yields.rows) + sum(yields.not_kept.values()) == 70)
    assert yields.not_kept == {Reason.BUSY: 6}
    await keeper.close(1.0)


_WRITER = """
import resource, sys
from pathlib import Path
from apps.agents.downloader.kept.spool import PageSpool
from tests.agents.downloader.test_kept_pages import kept, MANY
from yardkit import failpoints
failpoints.configure()
spool = PageSpool(Path(sys.argv[1]), "agent-0", MANY)
if sys.argv[2] != "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
found = spool.write(7, "3.s1.abc", [kept(number) for number in range(5)])
print(sum(found.not_kept.values()), flush=True)
spool.close()
"""


def written_by_another(
    folder: Path, limit: int = 0, failpoint: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WRITER, str(folder), str(limit)],
        env={**os.environ, "FAILPOINTS": failpoint, "PYTHONPATH": ".:platform"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow("2 s")
async def test_pages_of_a_killed_agent_are_uploaded_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "pages" / "agent-0"
    died = written_by_another(folder, failpoint="agent.page_written=kill@3")
    assert died.returncode == -signal.SIGKILL, died.stderr
    (left,) = folder.glob("run-7/*.open")
    # The kill may also come in the middle of a record.
    with left.open("ab") as file:
        file.write(gzip.compress(b"WARC/1.1\r\nWARC-Type: response\r\n")[:-5])
    store, yields = Folder(tmp_path), Yields()
    keeper = keeper_in(tmp_path, store, yields)
    keeper.start()
    await until(lambda: yields.rows)
    await keeper.close(1.0)
    assert [row["url"] for row in yields.rows] == [f"https://shop.example/{n}" for n in range(3)]
    assert {batch.token for batch in yields.batches} == {"3.s1.abc"}
    assert {batch.boot for batch in yields.batches} == {left.name.removesuffix(".open")}
    (path,) = (tmp_path / "pages/p1/run-7").iterdir()
    assert len(records(path)) == 7
    assert not list(tmp_path.glob("agents/pages/*/run-*"))


async def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    base = tmp_path / "agents" / "pages"
    busy = PageSpool(base / "agent-2", "agent-2", MANY)
    busy.write(9, "t", [kept()])
    other = PageSpool(base / "agent-1", "agent-1", MANY)
    assert other.leftovers() == []
    busy.close()
    assert [file.run for file in other.leftovers()] == [9]
    other.close()


async def test_a_full_disk_costs_pages_and_leaves_whole_files(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "pages" / "agent-0"
    ended = written_by_another(folder, limit=1700)
    assert ended.returncode == 0, ended.stderr
    lost = int(ended.stdout)
    assert 0 < lost < 5
    spool = PageSpool(folder, "agent-0", MANY)
    (file,) = spool.leftovers()
    assert len(spool.index(file)) == 5 - lost
    assert len(records(file.path)) == 1 + 2 * (5 - lost)
    spool.close()
