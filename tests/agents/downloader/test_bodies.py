"""Large bodies go from the agent to the object store, and from there to the run."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import resource
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from apps.agents.downloader.addresses import ANSWER_SECONDS, AddressBook, NoAddress
from apps.agents.downloader.bodies import BodyStore
from apps.agents.downloader.vitals import AgentCounters
from tests.agents.downloader.agent_peer import AgentPeer, Unreliable, until
from tests.agents.downloader.conftest import Start
from tests.plugins.object_server import ServedFolder, issuing
from tests.plugins.s3_server import Bucket
from tests.yardkit.web_server import Seen, WebServer, page
from yardkit import topology
from yardkit.broker import Broker
from yardkit.clock import ManualClock, SystemClock
from yardkit.object_client import ObjectClient
from yardkit.objects import ObjectStore
from yardkit.protocol import (
    DownloadResult,
    DownloadResults,
    FailureKind,
    ObjectKind,
    StoredBody,
    unpack_objects,
)
from yardspider.transports.bodies import BodyFetcher, FiledResult

MiB = 1024 * 1024


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    if request.param == "folder":
        folder: ServedFolder = request.getfixturevalue("served_folder")
        return folder.store
    bucket: Bucket = request.getfixturevalue("s3_bucket")
    return bucket.open()


@pytest.fixture
def issued(broker: Broker, store: ObjectStore) -> Iterator[None]:
    with issuing(broker, store, "agent-1"):
        yield


@pytest.fixture
async def fetch() -> AsyncIterator[Any]:
    """Complete results as a run does."""
    ready = asyncio.Event()
    fetcher = BodyFetcher(run=7, ask=lambda keys: None, on_ready=ready.set, memory_bytes=16 * MiB)

    async def complete(result: DownloadResult) -> DownloadResult:
        assert fetcher.take(DownloadResults(run=7, agent="agent-1", items=[result])) is None
        async with asyncio.timeout(60):
            while True:
                for answer in fetcher.take_ready():
                    if isinstance(answer, DownloadResults):
                        return answer.items[0]
                ready.clear()
                await ready.wait()

    yield complete
    await fetcher.close(1)


@pytest.mark.covers("OB.1")
async def test_only_a_large_body_goes_beside_the_broker(
    start: Start,
    other: AgentPeer,
    site: WebServer,
    issued: None,
    broker: Broker,
    store: ObjectStore,
    fetch: Any,
) -> None:
    unreliable = Unreliable(broker)
    start(broker=unreliable)
    large = bytes(range(256)) * 400
    site.answers |= {"/large": page(large), "/small": page(b"x" * 64 * 1024)}
    await other.allocate(result_version=3)
    other.download([site.url("/small"), site.url("/large")])
    results = await other.results(2)
    assert (len(results[0].body), results[0].stored) == (64 * 1024, None)
    result = results[1]
    assert (result.status, result.body, result.failure) == (200, b"", FailureKind.NONE)
    assert result.stored is not None
    assert (result.stored.size, result.size) == (102_400, 102_400)
    assert result.stored.sha256 == hashlib.sha256(large).digest()
    (part,) = unpack_objects(result.stored.packed)
    assert part.key.startswith("bodies/p1/run-7/b")
    assert part.put == ""
    assert store.get(part.key) == large
    complete = await fetch(result)
    assert (complete.body, complete.stored, complete.url) == (large, None, site.url("/large"))
    await until(lambda: list(store.list("bodies/")) == [])
    sent = sum(len(one.body) for one in unreliable.published if b"large" in one.body)
    assert 0 < sent < 1200


@pytest.fixture
async def bodies(broker: Broker, issued: None) -> AsyncIterator[BodyStore]:
    """What stores bodies at an agent of run 7."""
    book = AddressBook(broker, "agent-1", SystemClock())
    await book.open()
    made = BodyStore(book, AgentCounters(), SystemClock())
    yield made
    await book.close()
    await made.close()


def result_with(number: int, stored: StoredBody) -> DownloadResult:
    return DownloadResult(number, 1, "http://a/", 200, [], b"", stored=stored)


@pytest.mark.covers("OB.1")
async def test_bodies_that_wait_for_the_store_are_one_object(
    bodies: BodyStore, store: ObjectStore, fetch: Any
) -> None:
    contents = [bytes([number]) * (100_000 + number) for number in range(5)]
    large = b"x" * (300 * 1024)
    alone, *joined = await asyncio.gather(
        *(bodies.store_joined(7, content) for content in (large, *contents))
    )
    assert (alone.bodies, alone.total, alone.offset) == (1, 0, 0)
    assert [one.size for one in joined] == [len(content) for content in contents]
    assert {(one.bodies, one.packed) for one in joined} == {(5, joined[0].packed)}
    assert len(list(store.list("bodies/"))) == 2
    assert (await fetch(result_with(9, alone))).body == large
    for number in (2, 0, 4, 1, 3):
        complete = await fetch(result_with(number, joined[number]))
        assert (complete.body, complete.stored) == (contents[number], None)
    await until(lambda: list(store.list("bodies/")) == [])


@pytest.mark.covers("OB.1")
async def test_an_object_with_several_bodies_is_checked_as_a_whole(
    bodies: BodyStore, store: ObjectStore, fetch: Any
) -> None:
    stored = await asyncio.gather(*(bodies.store_joined(7, b"x" * 100_000) for _ in range(2)))
    (part,) = unpack_objects(stored[0].packed)
    store.put(part.key, b"x" * 100_000 + b"y" * 100_000)
    for number in (0, 1):
        altered = await fetch(result_with(number, stored[number]))
        assert altered.failure is FailureKind.BODY_STORE
        assert "digest" in altered.error


@pytest.mark.covers("OB.1")
async def test_without_a_store_no_body_of_several_is_lost(
    start: Start, other: AgentPeer, site: WebServer, served_folder: ServedFolder, broker: Broker
) -> None:
    site.answers["/large"] = page(b"x" * 100_000)
    with issuing(broker, served_folder.store, "agent-1"):
        running = start()
        await other.allocate(result_version=4)
        other.download([site.url("/large")] * 8)
        stored = await other.results(8)
        assert all(one.stored is not None for one in stored.values())
        assert running.agent.counters.stored == 8
        served_folder.broken = 507
        other.download([site.url("/large")] * 8, first=8)
        results = await other.results(8)
        assert [len(results[number].body) for number in range(8, 16)] == [100_000] * 8


@pytest.mark.covers("OB.1")
async def test_runs_that_do_not_know_it_get_bodies_through_the_broker(
    start: Start, other: AgentPeer, site: WebServer, served_folder: ServedFolder, broker: Broker
) -> None:
    site.answers["/large"] = page(b"x" * 100_000)
    with issuing(broker, served_folder.store, "agent-1"):
        start()
        await other.allocate(result_version=2)
        other.download([site.url("/large")])
        assert len((await other.results(1))[0].body) == 100_000
    assert served_folder.files() == []
    assert not served_folder.requests


@pytest.mark.covers("OB.1")
async def test_without_a_center_or_a_store_bodies_that_fit_go_through_the_broker(
    start: Start, other: AgentPeer, site: WebServer, served_folder: ServedFolder, broker: Broker
) -> None:
    served_folder.broken = 507
    site.answers["/large"] = page(b"x" * 100_000)
    with issuing(broker, served_folder.store, "agent-1"):
        running = start()
        await other.allocate(result_version=3)
        for first in range(3):
            other.download([site.url("/large")], first=first)
            assert len((await other.results(1))[first].body) == 100_000
        # It is left alone for a moment.
        assert served_folder.requests["PUT"] == running.agent.counters.unstored == 1
    with issuing(broker, served_folder.store, "another agent"):
        other.run = 8
        await other.allocate(result_version=3)
        other.download([site.url("/large")], first=9)
        assert len((await other.results(1))[9].body) == 100_000


@pytest.mark.covers("OB.1")
async def test_a_body_that_fits_nowhere_fails_with_the_reason(
    start: Start,
    other: AgentPeer,
    site: WebServer,
    served_folder: ServedFolder,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apps.agents.downloader.bodies.PATIENCE_SECONDS", 0.0)
    served_folder.broken = 507
    site.answers["/huge"] = page(b"x" * (9 * MiB))
    with issuing(broker, served_folder.store, "agent-1"):
        start()
        await other.allocate(result_version=3, max_body_bytes=100 * MiB)
        other.download([site.url("/huge")])
        result = (await other.results(1))[0]
    assert result.failure is FailureKind.BODY_STORE
    assert "the disk is full" in result.error
    assert result.body == b""


@pytest.mark.slow("15 s")
@pytest.mark.covers("OB.1")
@pytest.mark.parametrize("encoding", ["", "gzip"])
async def test_a_body_of_any_size_is_streamed_in_parts(
    start: Start,
    other: AgentPeer,
    site: WebServer,
    issued: None,
    store: ObjectStore,
    fetch: Any,
    encoding: str,
) -> None:
    start()
    body = b"".join(b"%09d\n" % number for number in range(2_200_000))
    sent = gzip.compress(body, 1) if encoding else body
    sent = sent + (b"" if not encoding else gzip.compress(b"", 1))
    headers = {"Content-Encoding": encoding} if encoding else {}
    site.answers["/huge"] = page(sent, headers=headers)
    # Compressed it is below the size from which it is streamed; the first bytes decide then.
    await other.allocate(result_version=3, max_body_bytes=100 * MiB, timeout_seconds=60)
    other.download([site.url("/huge")])
    result = (await other.results(1))[0]
    assert (result.failure, result.error) == (FailureKind.NONE, "")
    assert result.stored is not None
    assert result.size == len(body)
    if not encoding:
        assert len(unpack_objects(result.stored.packed)) == 3
    complete = await fetch(result)
    assert isinstance(complete, FiledResult)
    assert complete.file is not None
    assert complete.size == len(body)
    assert b"".join(complete.file.chunks()) == body
    await until(lambda: list(store.list("bodies/")) == [])


@pytest.mark.covers("OB.1")
async def test_limits_hold_for_streamed_bodies(
    start: Start, other: AgentPeer, site: WebServer, served_folder: ServedFolder, broker: Broker
) -> None:
    site.answers["/huge"] = page(b"x" * (20 * MiB))
    with issuing(broker, served_folder.store, "agent-1"):
        start()
        await other.allocate(result_version=3, max_body_bytes=10 * MiB)
        other.download([site.url("/huge")])
        cut = (await other.results(1))[0]
        assert (cut.size, cut.truncated) == (10 * MiB, True)

        async def unfinished(seen: Seen) -> bytes:
            seen.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n")
            seen.writer.write(b"x" * (20 * MiB))
            await seen.writer.drain()
            seen.writer.close()
            return b""

        site.answers["/lost"] = unfinished
        other.run = 8
        await other.allocate(result_version=3, max_body_bytes=100 * MiB)
        other.download([site.url("/lost")], first=1)
        lost = (await other.results(1))[1]
        assert (lost.failure, lost.stored) == (FailureKind.DATA_LOSS, None)
        # What was stored of it is deleted; the body that was cut is there.
        assert all("run-7/" in key for key in served_folder.files())
        other.download([site.url("/huge")], first=2, max_bytes=9 * MiB)
        large = (await other.results(1))[2]
        assert large.failure is FailureKind.TOO_LARGE


@pytest.mark.covers("OB.1")
async def test_what_the_store_returns_is_checked(
    start: Start,
    other: AgentPeer,
    site: WebServer,
    served_folder: ServedFolder,
    fetch: Any,
    broker: Broker,
) -> None:
    site.answers["/large"] = page(b"x" * 100_000)
    deleter = ObjectClient()
    with issuing(broker, served_folder.store, "agent-1"), contextlib.closing(deleter):
        start()
        await other.allocate(result_version=3)
        other.download([site.url("/large"), site.url("/large")])
        results = await other.results(2)
        stored = [one for number in (0, 1) if (one := results[number].stored) is not None]
        first, second = (unpack_objects(one.packed)[0] for one in stored)
        served_folder.store.put(first.key, b"y" * 100_000)
        await asyncio.to_thread(deleter.delete, second.delete)
        altered, gone = [await fetch(results[number]) for number in (0, 1)]
    assert altered.failure is FailureKind.BODY_STORE
    assert "digest" in altered.error
    assert gone.failure is FailureKind.BODY_STORE
    assert "404" in gone.error


@pytest.mark.slow("3 s: 300 MB")
@pytest.mark.covers("OB.1")
async def test_memory_stays_flat(
    start: Start,
    other: AgentPeer,
    served_folder: ServedFolder,
    site: WebServer,
    broker: Broker,
    fetch: Any,
) -> None:
    size, piece = 300 * MiB, b"x" * MiB

    async def endless(seen: Seen) -> bytes:
        seen.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // MiB):
            seen.writer.write(piece)
            await seen.writer.drain()
        return b""

    site.answers["/huge"] = endless
    with issuing(broker, served_folder.store, "agent-1"):
        start()
        await other.allocate(result_version=3, max_body_bytes=10 * 1024**3, timeout_seconds=120)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        other.download([site.url("/huge")])
        result = (await other.results(1))[0]
        complete = await fetch(result)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert complete.size == size
    assert complete.file.size == size
    # Site, agent, object server and run are all in this process.
    assert after - before < 100 * 1024


async def test_a_lost_question_for_addresses_is_repeated_but_not_for_every_page(
    broker: Broker,
) -> None:
    clock = ManualClock()
    unreliable = Unreliable(broker)
    broker.declare(topology.CENTER_ADDRESSES)
    book = AddressBook(unreliable, "agent-1", clock)  # type: ignore[arg-type]
    await book.open()
    try:
        waiting = asyncio.ensure_future(book.take(7, ObjectKind.BODIES))
        await until(lambda: len(unreliable.published) == 1)
        clock.advance(ANSWER_SECONDS + 1)
        for _ in range(50):
            with pytest.raises(NoAddress, match="no center answers"):
                await book.take(7, ObjectKind.BODIES)
        await until(lambda: len(unreliable.published) > 1)
        await asyncio.sleep(0)
        assert len(unreliable.published) == 2
        waiting.cancel()
    finally:
        await book.close()
