"""A replay answers as the fetcher would have, and connects to nothing."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.yardkit.recordings.writers import WarcRecorder
from yardkit.fetched import Fetched
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind
from yardkit.recordings import open_recording
from yardkit.recordings.replay import Replay, ReplayFetcher

pytestmark = pytest.mark.covers("OB.5")

SHOP = "https://shop.example"


@pytest.fixture
def warc(tmp_path: Path) -> WarcRecorder:
    return WarcRecorder(tmp_path / "a.warc.gz")


def answer(tmp_path: Path, url: str, *, settings: Any = None, **request: Any) -> Fetched:
    replay = Replay(open_recording(tmp_path), DownloaderSettings(**(settings or {})))
    return replay.answer(DownloadRequest(url=SHOP + url, **request))


def test_each_fetch_gets_the_next_response_and_the_last_one_remains(
    tmp_path: Path, warc: WarcRecorder
) -> None:
    warc.add(f"{SHOP}/", status="503 Busy")
    warc.add(f"{SHOP}/", b"now")
    recording = open_recording(tmp_path)
    for _ in range(2):
        replay = Replay(recording, DownloaderSettings())
        given = [replay.answer(DownloadRequest(url=f"{SHOP}/")) for _ in range(3)]
        assert [each.status for each in given] == [503, 200, 200]


def test_redirects_are_followed_if_the_run_wants_them(tmp_path: Path, warc: WarcRecorder) -> None:
    moved = (("Location", "/form?a=1"),)
    warc.add(f"{SHOP}/old", status="302 Found", headers=moved, method="POST", sent=b"x")
    warc.add(f"{SHOP}/form?a=1", b"form")
    warc.add(f"{SHOP}/loop", status="301 Moved", headers=(("Location", "/loop"),))
    warc.add(f"{SHOP}/lost", status="301 Moved", headers=(("Location", "/nowhere"),))
    followed = answer(tmp_path, "/old", method="POST", body=b"x")
    assert (followed.status, followed.body, followed.url) == (200, b"form", f"{SHOP}/form?a=1")
    settings = {"follow_redirects": False}
    as_is = answer(tmp_path, "/old", method="POST", body=b"x", settings=settings)
    assert (as_is.status, as_is.url) == (302, f"{SHOP}/old")
    assert answer(tmp_path, "/loop").failure is FailureKind.TOO_MANY_REDIRECTS
    lost = answer(tmp_path, "/lost")
    assert (lost.failure, lost.error) == ("not_recorded", f"GET {SHOP}/nowhere is not recorded")


def test_the_recorders_own_redirects_are_known(tmp_path: Path, warc: WarcRecorder) -> None:
    warc.add(f"{SHOP}/a", b"x", Crawlyard_Final_URI=f"{SHOP}/b")
    assert answer(tmp_path, "/a").url == f"{SHOP}/b"


def test_bodies_are_decoded_unless_the_run_wants_them_raw(
    tmp_path: Path, warc: WarcRecorder
) -> None:
    packed = gzip.compress(b"<p>text</p>" * 100)
    warc.add(f"{SHOP}/", packed, headers=(("Content-Encoding", "gzip"),))
    assert answer(tmp_path, "/").body == b"<p>text</p>" * 100
    cut = answer(tmp_path, "/", settings={"max_body_bytes": 500})
    assert (len(cut.body), cut.truncated) == (500, True)
    raw = answer(tmp_path, "/", settings={"raw_bodies": True})
    assert raw.body == packed
    assert (b"Content-Encoding", b"gzip") in raw.raw_headers


def test_limits_and_partial_bodies(tmp_path: Path, warc: WarcRecorder) -> None:
    warc.add(f"{SHOP}/stated", b"x" * 100, headers=(("Content-Length", "100"),))
    warc.add(f"{SHOP}/unstated", b"x" * 100)
    warc.add(f"{SHOP}/part", b"par", WARC_Truncated="disconnect")
    warc.add(f"{SHOP}/cut", b"cut", WARC_Truncated="length")
    stated = answer(tmp_path, "/stated", max_bytes=50)
    assert (stated.failure, stated.status, stated.body) == ("too_large", 200, b"")
    assert stated.error == "the body has 100 bytes; the request takes 50"
    assert answer(tmp_path, "/unstated", max_bytes=99).failure is FailureKind.TOO_LARGE
    assert answer(tmp_path, "/unstated", max_bytes=100).failure is FailureKind.NONE
    assert answer(tmp_path, "/unstated", max_bytes=0).body == b"x" * 100
    part = answer(tmp_path, "/part")
    assert (part.failure, part.body) == ("data_loss", b"par")
    cut = answer(tmp_path, "/cut")
    assert (cut.failure, cut.truncated) == ("", True)


def test_head_takes_the_headers_of_get(tmp_path: Path, warc: WarcRecorder) -> None:
    warc.add(f"{SHOP}/", b"body", headers=(("X-A", "1"),))
    found = answer(tmp_path, "/", method="HEAD")
    assert (found.status, found.body, found.headers) == (200, b"", [("X-A", "1")])


def test_failures_are_answers(tmp_path: Path, warc: WarcRecorder) -> None:
    warc.add(f"{SHOP}/broken", b"no gzip", headers=(("Content-Encoding", "gzip"),))
    assert answer(tmp_path, "/broken").failure is FailureKind.BAD_CONTENT
    replay = Replay(open_recording(tmp_path), DownloaderSettings())
    bad = replay.answer(DownloadRequest(url="http://[bad/"))
    assert bad.failure is FailureKind.BAD_REQUEST


class _Live:
    """Fetches everything; counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.closed = False

    async def fetch(self, request: DownloadRequest) -> Fetched:
        self.asked.append(request.url)
        return Fetched(request.url, 200, [], b"live", FailureKind.NONE, "", 1.0, False)

    async def close(self) -> None:
        self.closed = True


async def test_what_is_not_recorded_is_fetched_by_choice(
    tmp_path: Path, warc: WarcRecorder
) -> None:
    warc.add(f"{SHOP}/1", b"recorded")
    live = _Live()
    fetcher = ReplayFetcher(open_recording(tmp_path), DownloaderSettings(), live)
    assert (await fetcher.fetch(DownloadRequest(url=f"{SHOP}/1"))).body == b"recorded"
    assert (await fetcher.fetch(DownloadRequest(url=f"{SHOP}/2"))).body == b"live"
    await fetcher.close()
    assert (live.asked, live.closed) == ([f"{SHOP}/2"], True)
