"""Bodies that a run gets from the object store: addresses that have expired, files, timeouts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.plugins.object_server import SECRET, ServedFolder
from yardkit.object_client import sha256_of
from yardkit.objects.signing import AddressSigner
from yardkit.protocol import (
    Addresses,
    DownloadResult,
    DownloadResults,
    DownloadsHeld,
    FailureKind,
    ObjectKind,
    SignedObject,
    StoredBody,
    pack_objects,
)
from yardspider.response import Response
from yardspider.transports.bodies import BodyFetcher, BodyFile, FiledResult

KEY = "bodies/p1/run-7/b1"
BODY = b"0123456789" * 10_000


class Fetching:
    """A fetcher, and what it has asked for and completed."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[list[str]] = []
        self.held: list[DownloadsHeld] = []
        self._ready = asyncio.Event()
        self.fetcher = BodyFetcher(
            run=7,
            ask=self.asked.append,
            on_ready=self._ready.set,
            memory_bytes=len(BODY),
            folder=folder,
        )

    def take(self, stored: StoredBody) -> None:
        result = DownloadResult(1, 1, "http://a/", 200, [], b"", stored=stored)
        other = DownloadResult(2, 1, "http://a/", 200, [], b"small")
        message = DownloadResults(run=7, agent="a1", items=[result, other])
        ready = self.fetcher.take(message)
        assert ready is not None
        assert [one.body for one in ready.items] == [b"small"]

    async def result(self) -> DownloadResult:
        async with asyncio.timeout(20):
            while True:
                for answer in self.fetcher.take_ready():
                    if isinstance(answer, DownloadResults):
                        assert (answer.run, answer.agent) == (7, "a1")
                        return answer.items[0]
                    self.held.append(answer)
                self._ready.clear()
                await self._ready.wait()


@pytest.fixture
async def fetching(tmp_path: Path) -> AsyncIterator[Fetching]:
    made = Fetching(tmp_path)
    yield made
    await made.fetcher.close(1)


@pytest.fixture
def stored(served_folder: ServedFolder) -> Callable[..., StoredBody]:
    """Store a body of ``parts`` parts, with addresses valid for some seconds."""

    def store(parts: int = 1, seconds: int = 60) -> StoredBody:
        signer = AddressSigner(served_folder.url, SECRET)
        objects = []
        size = len(BODY) // parts
        for number in range(parts):
            key = f"{KEY}-{number}"
            served_folder.store.put(key, BODY[number * size : (number + 1) * size])
            until = int(time.time()) + seconds
            objects.append(
                SignedObject(
                    key,
                    get=signer.sign("GET", key, until),
                    delete=signer.sign("DELETE", key, until),
                )
            )
        return StoredBody(len(BODY), sha256_of(BODY), pack_objects(objects))

    return store


@pytest.mark.covers("OB.1")
async def test_expired_addresses_are_asked_for_again(
    fetching: Fetching, stored: Callable[..., StoredBody], served_folder: ServedFolder
) -> None:
    fetching.take(stored(parts=2, seconds=-1))
    async with asyncio.timeout(10):
        while not fetching.asked:
            await asyncio.sleep(0.01)
    assert fetching.asked == [[f"{KEY}-0", f"{KEY}-1"]]
    sign = served_folder.store.sign
    fresh = [
        SignedObject(key, get=sign("GET", key, 60), delete=sign("DELETE", key, 60))
        for key in fetching.asked[0]
    ]
    fetching.fetcher.take_addresses(
        Addresses(run=7, kind=ObjectKind.BODIES, packed=pack_objects(fresh), seconds=60)
    )
    assert (await fetching.result()).body == BODY
    await fetching.fetcher.close(5)
    assert served_folder.files() == []


@pytest.mark.covers("OB.1")
async def test_without_fresh_addresses_the_request_fails_and_may_be_retried(
    fetching: Fetching, stored: Callable[..., StoredBody], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yardspider.transports.bodies._ADDRESSES_SECONDS", 0.01)
    monkeypatch.setattr("yardspider.transports.bodies._AWAY_SECONDS", 0.0)
    fetching.take(stored(seconds=-1))
    result = await fetching.result()
    assert (result.status, result.failure) == (0, FailureKind.BODY_STORE)
    assert "the center gave no fresh addresses" in result.error


@pytest.mark.covers("OB.1")
async def test_a_store_that_is_away_is_tried_again_and_the_timeout_is_put_off(
    fetching: Fetching,
    stored: Callable[..., StoredBody],
    served_folder: ServedFolder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("yardspider.transports.bodies._HELD_AFTER_SECONDS", 0.0)
    monkeypatch.setattr("yardspider.transports.bodies._FIRST_RETRY_SECONDS", 0.05)
    served_folder.broken = 503
    fetching.take(stored())
    async with asyncio.timeout(10):
        while served_folder.requests["GET"] < 2:
            await asyncio.sleep(0.01)
    served_folder.broken = 0
    assert (await fetching.result()).body == BODY
    assert fetching.held[0].items == [(1, 1)]
    assert fetching.held[0].wait_seconds > 10


@pytest.mark.covers("OB.1")
async def test_a_body_over_the_limit_of_the_memory_is_a_file(
    served_folder: ServedFolder, stored: Callable[..., StoredBody], tmp_path: Path
) -> None:
    fetching = Fetching(tmp_path)
    fetching.fetcher._memory_bytes = 1000
    fetching.take(stored(parts=4))
    result = await fetching.result()
    await fetching.fetcher.close(1)
    assert isinstance(result, FiledResult)
    assert (result.body, result.size) == (b"", len(BODY))
    response = Response("http://a/", file=result.file)
    assert (response.size, response.body, response.text) == (len(BODY), BODY, BODY.decode())
    assert list(response.chunks(60_000)) == [BODY[:60_000], BODY[60_000:]]
    assert response.save(tmp_path / "saved") == len(BODY)
    assert (tmp_path / "saved").read_bytes() == BODY
    response.body = b"other"
    assert (response.body, response.size, list(response.chunks(3))) == (
        b"other",
        5,
        [b"oth", b"er"],
    )
    # Nothing of it has a name on the disk.
    assert {path.name for path in tmp_path.iterdir()} == {"objects", "saved"}


def test_a_full_disk_of_the_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        BodyFile(tmp_path / "missing")
