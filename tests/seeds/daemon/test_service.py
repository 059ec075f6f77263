"""The service when the world around it fails, and how it ends."""

from __future__ import annotations

import logging
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from django.conf import settings

from apps.seeds.daemon import SeedDaemon
from apps.seeds.daemon.service import EXPIRE_SECONDS, GRACE_SECONDS, SeedStoreAway
from apps.seeds.engine.errors import SeedStoreUnavailable
from apps.seeds.models import Frontier, SegmentReport
from apps.seeds.stores.factory import open_store
from tests.plugins.measurements import Measured
from tests.seeds.daemon.call_helpers import Later, ask, ended, keys, refused, seeds, token, until
from tests.seeds.daemon.conftest import Service, on_both_brokers, on_rocks
from yardkit import failpoints, topology
from yardkit.broker import Broker, Outgoing
from yardkit.broker.base import DEAD_QUEUE, HEADER_REASON
from yardkit.clock import SystemClock
from yardkit.daemon import CannotStart
from yardkit.protocol import AddSeeds, LeaseSeeds, RunQueued, SeedsLeased, encode
from yardkit.seeds import CallRefused, SeedClient

pytestmark = pytest.mark.django_db(transaction=True)


def lease_call(frontier: Frontier, **others: object) -> LeaseSeeds:
    return LeaseSeeds(frontier=frontier.pk, token=token(frontier), owner="w1", **others)  # type: ignore[arg-type]


def test_a_repeated_lease_gets_the_same_seeds(
    service: Service, client: SeedClient, asker: Broker, frontier: Frontier
) -> None:
    client.add(seeds("a", "b", "c"))
    first = ask(asker, lease_call(frontier, limit=2, call="c1"))
    assert isinstance(first, SeedsLeased)
    again = ask(asker, lease_call(frontier, limit=2, call="c1", again=True))
    assert (again.generation, again.seeds) == (first.generation, first.seeds)
    # Of another call, of another owner, or over.
    assert keys(ask(asker, lease_call(frontier, call="c2", again=True))) == ["c"]
    client.finish(ended(first))
    assert keys(ask(asker, lease_call(frontier, call="c1", again=True))) == []


def test_a_client_without_an_answer_asks_for_what_it_may_have_been_given(
    service: Service, client: SeedClient, asker: Broker, frontier: Frontier
) -> None:
    client.add(seeds("a", "b"))
    client._unanswered.append("lost")
    ask(asker, lease_call(frontier, limit=1, call="lost"))
    assert [keys(client.lease(1)), keys(client.lease(1))] == [["a"], ["b"]]


@on_both_brokers
@on_rocks
def test_what_is_no_call_becomes_a_dead_letter_and_is_answered(
    service: Service, client: SeedClient, asker: Broker, frontier: Frontier
) -> None:
    assert refused(ask(asker, b"\xc1 garbage")) == "bad_call"
    half = encode(AddSeeds(frontier=1, token="t", seeds=seeds("abc"))).replace(b"abc", b"a\xffc")
    assert refused(ask(asker, half)) == "bad_call"
    assert refused(ask(asker, RunQueued(run=1))) == "bad_call"
    silent = encode(AddSeeds(frontier=frontier.pk, token=token(frontier), seeds=seeds("a")))
    asker.publish([Outgoing(silent, key=topology.SEEDS.name)]).result(20)
    until(lambda: asker.depth(DEAD_QUEUE).ready == 4, "four dead letters")
    dead = asker.subscribe(DEAD_QUEUE)
    reasons = [str(one.headers[HEADER_REASON]) for one in dead.take(10, 20.0)]
    dead.close()
    assert reasons[2:] == [
        "RunQueued is no call of the seed service",
        "AddSeeds without an address for its answer",
    ]
    assert [one.code for one in client.add(seeds("a"))] == ["new"]


@on_rocks
@pytest.mark.covers("S3.18")
def test_calls_after_the_stop_are_refused_with_a_line(
    service: Service, asker: Broker, frontier: Frontier, caplog: pytest.LogCaptureFixture
) -> None:
    # The loop ends, and the queue goes on to deliver.
    service.pause()
    call = AddSeeds(frontier=frontier.pk, token=token(frontier), seeds=seeds("a"))
    later = Later(partial(ask, asker, call))
    until(lambda: service.broker.depth(topology.SEEDS.name).unacked == 1, "the call has come")
    with caplog.at_level(logging.WARNING):
        service.stop()
    answer = later.answer()
    assert (refused(answer), answer.retry_seconds) == ("stopping", 1.0)
    assert "the seed service stops: 1 calls are refused" in caplog.text
    # It was not done, and is asked again.
    service.start()
    assert [one.code for one in ask(asker, call).answers] == ["new"]


def test_a_store_that_fails_is_opened_again(
    service: Service, client: SeedClient, frontier: Frontier
) -> None:
    client.add(seeds("a"))
    later = Later(partial(client.lease, 5, seconds=10))
    assert keys(later.answer()) == ["a"]
    service.store.close()
    with pytest.raises(CallRefused) as caught:
        client.add(seeds("b"))
    assert (caught.value.code, caught.value.retry_seconds) == ("store_unavailable", 1.0)
    until(lambda: len(service.opened) == 2, "the store is opened again")
    assert [one.code for one in client.add(seeds("a", "b"))] == ["duplicate", "new"]
    # Who could not prolong meanwhile loses nothing.
    service.clock.advance(GRACE_SECONDS - 1)
    assert client.look_up(seeds("a")[0]).known.owner == "w1"  # type: ignore[union-attr]


@on_rocks
def test_a_store_that_cannot_be_opened_fails_the_step(
    service: Service, client: SeedClient, tmp_path: Path
) -> None:
    service.pause()
    (tmp_path / "seeds").rename(tmp_path / "away")
    (tmp_path / "seeds").write_text("no folder")
    service.daemon._note_failure(service.store, SeedStoreUnavailable("RocksDB: disk full"))
    for _ in range(2):
        with pytest.raises(SeedStoreAway, match="the seed store cannot be opened"):
            service.daemon.step()
    (tmp_path / "seeds").unlink()
    (tmp_path / "away").rename(tmp_path / "seeds")
    service.daemon.step()
    assert len(service.opened) == 2


@pytest.mark.slow("1 s")
@on_rocks
def test_a_store_that_fails_as_it_is_opened_is_opened_again(
    service: Service, client: SeedClient
) -> None:
    client.add(seeds("a", "b"))
    assert keys(client.lease(1, seconds=10)) == ["a"]
    service.stop()
    # Its leases are prolonged first of all.
    failpoints.configure({"FAILPOINTS": "seeds.extend.before_write=raise@1"})
    with pytest.raises(failpoints.FailpointError):
        service.start()
    service.daemon.setup()
    service.resume()
    assert keys(client.lease(1)) == ["b"]


@pytest.mark.slow("2 s")
@on_rocks
def test_a_second_owner_is_refused_in_one_line(service: Service, broker: Broker) -> None:
    other = SeedDaemon(
        broker=broker,
        clock=SystemClock(),
        open_store=partial(open_store, service.store_url),
        secret=settings.SECRET_KEY,
        shared=False,
        threads=False,
    )
    with pytest.raises(CannotStart, match="belongs to another seed service that is running"):
        other.setup()
    other.teardown()


@pytest.mark.fault
def test_a_clock_that_is_set_forward_takes_no_lease_from_anybody(
    service: Service, client: SeedClient, frontier: Frontier, measured: Measured
) -> None:
    client.add(seeds("a", "b"))
    lease = client.lease(1, seconds=60)
    service.clock.jump(24 * 3600)
    # One look at the leases, and another.
    for _ in range(2):
        service.clock.advance(EXPIRE_SECONDS)
        until(lambda: service.daemon._timers.left("expiry") > 0, "a look")
    assert {one.code for one in client.finish(ended(lease)).answers} == {"finished"}
    (segment,) = service.store.segments(frontier.pk)
    measured(of=1, lost=segment.books.expired)
    assert segment.books.expired == 0
    # Who is gone has no more than the time of grace.
    assert keys(client.lease(1, seconds=60)) == ["b"]
    service.clock.advance(GRACE_SECONDS + 1)
    until(lambda: service.store.segments(frontier.pk)[0].books.expired == 1, "it comes back")


@on_rocks
@pytest.mark.fault
def test_a_clock_that_goes_back_is_refused(
    service: Service, client: SeedClient, frontier: Frontier, measured: Measured
) -> None:
    client.add(seeds("a"))
    service.clock.jump(-120)
    with pytest.raises(CallRefused) as caught:
        client.add(seeds("b"))
    assert (caught.value.code, caught.value.retry_seconds) == ("clock_back", 5.0)
    service.clock.jump(120)
    began = time.monotonic()
    assert [one.code for one in client.add(seeds("b"))] == ["new"]
    back_s = time.monotonic() - began
    there = Counter(
        one.key
        for segment in service.store.segments(frontier.pk)
        for one in service.store.export(frontier.pk, segment.segment)
    )
    promised = {"a", "b"}
    lost, twice = len(promised - set(there)), there.total() - len(there)
    measured(of=len(promised), lost=lost, twice=twice, back_s=back_s)
    assert (lost, twice) == (0, 0)


@pytest.mark.slow("1 s")
@on_rocks
def test_a_mistake_of_the_code_costs_one_call(
    service: Service, client: SeedClient, asker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    failpoints.configure({"FAILPOINTS": "seeds.add.before_write=raise@1"})
    with pytest.raises(CallRefused) as caught:
        client.add(seeds("a"))
    assert caught.value.code == "service_error"
    assert [one.code for one in client.add(seeds("a"))] == ["new"]
    assert "a call of the seed service has failed" in caplog.text


@on_rocks
def test_a_mistake_before_a_call_is_read_costs_one_call(
    service: Service, client: SeedClient
) -> None:
    """It would stay in the hands of the service else, and come to nobody."""
    failpoints.configure({"FAILPOINTS": "seeds.daemon.taken=raise@1"})
    with pytest.raises(CallRefused) as caught:
        client.add(seeds("a"))
    assert caught.value.code == "service_error"
    assert [one.code for one in client.add(seeds("a"))] == ["new"]
    until(lambda: service.broker.depth(topology.SEEDS.name).unacked == 0, "nothing is left")


@pytest.mark.slow("6 s")
@on_rocks
@pytest.mark.parametrize("name", ["add", "lease", "finish"])
def test_what_was_written_and_not_noted_is_read_again(
    service: Service, asker: Broker, frontier: Frontier, name: str
) -> None:
    """Books in memory that lack a change would be written over those on the disk."""
    failpoints.configure({"FAILPOINTS": f"seeds.{name}.after_write=raise@1"})
    patient = SeedClient(asker, frontier.pk, token(frontier), owner="w1", timeout=20.0)
    told = {one.code for one in patient.add(seeds("a", "b", "c"))}
    lease = patient.lease(5)
    assert keys(lease) == ["a", "b", "c"]
    assert {one.code for one in patient.finish(ended(lease)).answers} <= {"finished", "repeated"}
    assert told == {"duplicate" if name == "add" else "new"}
    assert len(service.opened) == 2
    (segment,) = service.store.segments(frontier.pk)
    assert segment.books.balance()
    assert (segment.books.added, segment.books.succeeded) == (3, 3)


@pytest.mark.slow("1 s")
def test_a_lease_that_was_given_and_refused_is_given_to_the_next_call(
    service: Service, client: SeedClient
) -> None:
    client.add(seeds("a", "b"))
    failpoints.configure({"FAILPOINTS": "seeds.daemon.committed=raise@1"})
    with pytest.raises(CallRefused) as caught:
        client.lease(5)
    assert caught.value.code == "service_error"
    assert keys(client.lease(5)) == ["a", "b"]


@pytest.mark.slow("2 s")
def test_books_are_reported(
    service: Service, client: SeedClient, manager: SeedClient, frontier: Frontier
) -> None:
    def reported(**expected: int) -> bool:
        service.clock.advance(5)
        row = SegmentReport.objects.filter(frontier=frontier, segment=0).values().first()
        return row is not None and expected.items() <= row.items()

    client.add(seeds("a", "b", "a"))
    until(partial(reported, added=2, duplicates=1, pending=2), "the first report")
    row = SegmentReport.objects.get()
    assert row.balances
    assert row.filter_fill is not None
    client.finish(ended(client.lease(1)))
    until(partial(reported, pending=1, succeeded=1), "the second report")
    service.store.drop_segment(frontier.pk, 0)
    # What others do to a shared store is looked at every minute.
    until(lambda: service.clock.advance(30) or not SegmentReport.objects.exists(), "it is gone")
