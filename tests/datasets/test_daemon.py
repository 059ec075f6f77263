"""From the queue into the store, when the world around the writer fails."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError
from django.utils import timezone

from apps.datasets import daemon as module
from apps.datasets.daemon import BATCH, DatasetWriter
from apps.datasets.engine.reader import ItemQuery
from apps.datasets.models import Dataset, DatasetRun, StoredFile
from apps.datasets.queries.items import open_reader
from apps.datasets.services import ingestion
from apps.datasets.services.files import content
from apps.datasets.services.leases import LEASE, hold, release_dead
from apps.jobs.models import Run
from apps.runtime.models import DeadLetter
from apps.runtime.services import store_dead_letters, subscribe_dead_letters
from tests.datasets.deliveries import make_delivery
from tests.datasets.factories import make_batch, make_chunks, make_dataset, make_items
from tests.jobs.factories import make_project, make_run
from tests.outages import tables_away
from yardkit import failpoints, topology
from yardkit.broker import Broker, Delivery, Outgoing
from yardkit.broker.gateway import GATEWAY
from yardkit.clock import SystemClock
from yardkit.objects import ObjectStoreUnavailable
from yardkit.protocol import AnyMessage, ItemBatch, RunQueued, encode

pytestmark = pytest.mark.django_db(transaction=True)

POINTS = [
    "datasets.before_put",
    "datasets.after_put",
    "datasets.before_commit",
    "datasets.after_commit",
    "datasets.before_ack",
]


@pytest.fixture
def writer(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[DatasetWriter]:
    # What runs beside the queue has tests of its own.
    monkeypatch.setattr(module, "LOOPS", {})
    writer = DatasetWriter(broker=broker, clock=SystemClock())
    writer.setup()
    yield writer
    writer.teardown()
    failpoints.configure({})


@pytest.fixture
def run() -> Run:
    return make_run()


def send(broker: Broker, *messages: AnyMessage | bytes) -> None:
    bodies = [one if isinstance(one, bytes) else encode(one) for one in messages]
    broker.publish([Outgoing(body=body, key=topology.ITEMS.name) for body in bodies]).result(9)


def until(writer: DatasetWriter, happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        writer.step()


def settled(broker: Broker) -> bool:
    depth = broker.depth(topology.ITEMS.name)
    return depth.ready == 0 and depth.unacked == 0


def dead_letters(broker: Broker, count: int) -> list[str]:
    """The reasons of so many dead letters, in order of the alphabet."""
    dead = subscribe_dead_letters(broker)
    deadline = time.monotonic() + 60
    while DeadLetter.objects.count() < count and time.monotonic() < deadline:
        store_dead_letters(dead, timeout=0.1)
    return sorted(DeadLetter.objects.values_list("reason", flat=True))


def numbers() -> list[int]:
    """The seqs of all stored items, in the order of storing."""
    with open_reader(Dataset.objects.get()) as reader:
        return [item.seq for item in reader.page(ItemQuery(limit=1000)).items]


def one_by_one(run: Run, count: int) -> list[ItemBatch]:
    return [make_batch(run, make_items(1, seq), first=seq) for seq in range(1, count + 1)]


@pytest.mark.covers("DS.1", "DS.12")
def test_items_and_files_come_through_the_queue_into_the_store(
    writer: DatasetWriter, broker: Broker, run: Run
) -> None:
    send(broker, make_batch(run, make_items(10)), *make_chunks(run, "a/b.txt", b"hello"))
    until(writer, lambda: settled(broker))
    assert numbers() == list(range(1, 11))
    assert b"".join(content(StoredFile.objects.get())) == b"hello"
    assert writer.detail() == {"away": {}}


@pytest.mark.fault
@pytest.mark.covers("DS.1")
def test_items_that_come_while_the_database_is_away_are_stored_later(
    writer: DatasetWriter, broker: Broker, run: Run
) -> None:
    # More than it may hold unacknowledged at once.
    count = 3 * BATCH
    send(broker, *one_by_one(run, count))
    with tables_away("datasets_dataset"):
        for _ in range(6):
            with contextlib.suppress(DatabaseError):
                writer.step()
    until(writer, lambda: settled(broker))
    assert sorted(numbers()) == list(range(1, count + 1))


class _Away:
    """An object store that does not answer."""

    def put(self, key: str, _content: bytes) -> None:
        raise ObjectStoreUnavailable(f"{key}: no answer")


@pytest.mark.covers("DS.1")
def test_items_wait_in_the_queue_while_the_object_store_is_away(
    writer: DatasetWriter, broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, *one_by_one(run, 5))
    with monkeypatch.context() as patch:
        patch.setattr(ingestion, "shared_objects", _Away)
        for _ in range(3):
            assert writer.step()
        assert "no answer" in writer.detail()["away"]["object store"]
        # Nothing is in its hands, so that another writer may take it.
        assert broker.depth(topology.ITEMS.name).ready == 5
    until(writer, lambda: settled(broker))
    assert sorted(numbers()) == [1, 2, 3, 4, 5]
    assert writer.detail() == {"away": {}}
    assert DatasetRun.objects.get().duplicates == 0


def test_a_writer_that_runs_once_says_that_the_object_store_is_away(
    broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "shared_objects", _Away)
    writer = DatasetWriter(broker=broker, clock=SystemClock(), once=True)
    writer.setup()
    send(broker, *one_by_one(run, 1))
    with pytest.raises(ObjectStoreUnavailable):
        writer.step()
    writer.teardown()
    assert broker.depth(topology.ITEMS.name).ready == 1


@pytest.mark.fault
@pytest.mark.covers("DS.1")
@pytest.mark.parametrize("point", POINTS)
def test_a_defect_between_taking_and_acknowledging_loses_nothing(
    writer: DatasetWriter, broker: Broker, run: Run, point: str
) -> None:
    failpoints.configure({"FAILPOINTS": f"{point}=raise@1"})
    send(broker, make_batch(run, make_items(7)))
    until(writer, lambda: settled(broker))
    assert numbers() == list(range(1, 8))


def test_a_message_that_always_breaks_the_store_costs_only_itself(
    writer: DatasetWriter, broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(*, messages: Sequence[ItemBatch], now: datetime) -> list[ingestion.RefusedItems]:
        if any(message.first == 3 for message in messages):
            raise RuntimeError("a defect")
        return ingestion.store_items(messages=messages, now=now)

    monkeypatch.setattr(module, "store_items", store)
    send(broker, *one_by_one(run, 5))
    until(writer, lambda: settled(broker))
    assert sorted(numbers()) == [1, 2, 4, 5]
    assert dead_letters(broker, 1) == ["RuntimeError: a defect"]


@pytest.mark.covers("DS.1")
def test_rubbish_becomes_dead_letters_with_reasons_and_the_rest_is_stored(
    writer: DatasetWriter, broker: Broker, run: Run
) -> None:
    pickled = b"\x80\x04\x95\x1f\x00\x00\x00"
    (chunk,) = make_chunks(run, "../secret", b"x")
    bad: list[AnyMessage | bytes] = [
        b"",
        pickled,
        RunQueued(run=run.pk),
        make_batch(987654, make_items(1)),
        make_batch(run, make_items(1), token=""),
        chunk,
    ]
    send(broker, *bad, make_batch(run, make_items(1), first=3))
    until(writer, lambda: settled(broker))
    words = [
        "'../secret' is no name of a file",
        "RunQueued has no items",
        "not a message",
        "not a message",
        "run 987654 does not exist",
        f"the token is not that of run:{run.pk}",
    ]
    for reason, word in zip(dead_letters(broker, 6), words, strict=True):
        assert word in reason
    assert numbers() == [3]


@pytest.mark.parametrize(
    ("producer", "boot", "problem"),
    [
        ("run:7", "b1", ""),
        ("run:8", "b1", "run.7.b1 speaks for run.8.b1"),
        ("run:7", "b2", "run.7.b1 speaks for run.7.b2"),
        ("biz:1/news", "b1", "run.7.b1 sends items of biz:1/news"),
    ],
)
def test_the_account_of_a_run_sends_only_items_of_its_own(
    producer: str, boot: str, problem: str
) -> None:
    values: dict[str, Any] = dict.fromkeys(Delivery.__dataclass_fields__)
    values |= {"exchange": GATEWAY, "key": "items.run.7.b1", "reply_to": ""}
    batch = make_batch(7, make_items(1), producer=producer, boot=boot)
    assert module._sender_problem(Delivery(**values), batch) == problem
    assert module._sender_problem(Delivery(**(values | {"exchange": ""})), batch) == ""


def test_a_setup_that_is_tried_again_leaves_no_consumer_behind(
    writer: DatasetWriter, broker: Broker
) -> None:
    writer.setup()
    assert broker.depth(topology.ITEMS.name).consumers == 1


def test_at_its_end_it_stores_what_has_come(
    writer: DatasetWriter, broker: Broker, run: Run
) -> None:
    send(broker, *one_by_one(run, 2))
    writer.teardown()
    assert sorted(numbers()) == [1, 2]
    assert settled(broker)


def test_an_end_before_the_beginning_is_quiet(broker: Broker) -> None:
    DatasetWriter(broker=broker, clock=SystemClock()).teardown()


def test_loops_run_beside_the_queue_and_outlive_their_errors(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    called = threading.Semaphore(0)
    calls = []

    def step(*, now: datetime) -> bool:
        calls.append(now)
        called.release()
        if len(calls) == 1:
            raise RuntimeError("a defect")
        if len(calls) == 2:
            raise ObjectStoreUnavailable("no answer")
        return len(calls) == 3

    monkeypatch.setattr(module, "LOOPS", {"made up": step})
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    writer = DatasetWriter(broker=broker, clock=SystemClock())
    writer.setup()
    writer.setup()
    for _ in range(5):
        assert called.acquire(timeout=30)
    writer.teardown()
    assert not any(thread.name == "made up" for thread in threading.enumerate())
    assert "thread made up failed" in caplog.text
    assert caplog.text.count("Traceback") == 1
    assert "made up works again" in caplog.text


def test_a_writer_that_runs_once_does_the_work_of_the_loops(
    broker: Broker, run: Run, monkeypatch: pytest.MonkeyPatch, objects: Path
) -> None:
    left = [True, True, False]
    monkeypatch.setattr(module, "LOOPS", {"made up": lambda *, now: left.pop(0)})
    writer = DatasetWriter(broker=broker, clock=SystemClock(), once=True)
    writer.setup()
    send(broker, *one_by_one(run, 2))
    while writer.step():
        pass
    writer.teardown()
    assert (left, settled(broker)) == ([], True)
    assert len(list(objects.rglob("*.parquet"))) >= 1


@pytest.mark.covers("DS.10")
def test_a_restarted_process_takes_over_what_a_killed_one_held(writer: DatasetWriter) -> None:
    """At once: a lease that nobody ends lasts for minutes."""
    dataset = make_dataset(make_project())
    delivery = make_delivery(dataset)
    host = socket.gethostname()
    with subprocess.Popen(["true"]) as ended:
        pass
    until = timezone.now() + LEASE
    for rows in (Dataset.objects.all(), type(delivery).objects.all()):
        rows.update(owner=f"{host} {ended.pid}", leased_until=until)
    with hold(dataset.pk, timezone.now()) as held:
        assert held is None
    assert release_dead(now=timezone.now()) == 2
    with hold(dataset.pk, timezone.now()) as held:
        assert held is not None
        # Others keep theirs: of other hosts, and of processes that live.
        for owner in (f"other-{host} {ended.pid}", f"{host} {os.getppid()}", "people"):
            Dataset.objects.update(owner=owner)
            assert release_dead(now=timezone.now()) == 0
