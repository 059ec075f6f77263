"""Calls through a real broker, answered from both stores."""

from __future__ import annotations

from functools import partial

import pytest

from apps.seeds.models import Frontier
from apps.seeds.stores.base import SegmentCounts
from tests.seeds.daemon.call_helpers import Later, ask, ended, keys, refused, seeds, token
from tests.seeds.daemon.conftest import MakeClient, Service, on_both_brokers
from yardkit.broker import Broker
from yardkit.protocol import (
    AddSeeds,
    FinishSeeds,
    LeaseSeeds,
    Seed,
    SeedFinish,
    SeedOutcome,
    SeedsFinished,
    SeedState,
)
from yardkit.protocol.seeds import MAX_SEEDS
from yardkit.seeds import CallRefused, SeedClient

pytestmark = pytest.mark.django_db(transaction=True)


def books(service: Service, frontier: Frontier, segment: int = 0) -> SegmentCounts:
    found = {one.segment: one.books for one in service.store.segments(frontier.pk)}[segment]
    assert found.balance(), found
    return found


@on_both_brokers
@pytest.mark.covers("S3.5", "S3.15")
def test_a_seed_is_added_leased_and_finished(
    service: Service, client: SeedClient, frontier: Frontier
) -> None:
    assert [one.code for one in client.add(seeds("a", "b", "a"))] == ["new", "new", "duplicate"]
    lease = client.lease(10)
    assert keys(lease) == ["a", "b"]
    assert lease.deadline == int(service.clock.time() * 1000) + 300_000
    assert lease.pending == 0
    done = client.finish(ended(lease))
    assert [(one.code, one.state) for one in done.answers] == [
        ("finished", SeedState.SUCCEEDED)
    ] * 2
    assert books(service, frontier).succeeded == 2


def test_a_bad_seed_keeps_no_other_out(service: Service, client: SeedClient) -> None:
    bad = [
        Seed(""),
        Seed(b"\xff"),  # type: ignore[arg-type]
        Seed("half \ud83d of it"),
        Seed("x" * 70_000),
        Seed("ext", ext={"a": object()}),
        Seed("deep", ext={"a": "\ud83d"}),
        Seed("float", active_at=1.5e12),  # type: ignore[arg-type]
        Seed("past", active_at=1),
        Seed("retry", max_retry=-1),
    ]
    told = client.add([Seed("first"), *bad, Seed("last")])
    assert [one.code for one in told] == [
        "new",
        "empty_data",
        "binary_data",
        "binary_data",
        "data_too_large",
        "bad_ext",
        "bad_ext",
        "bad_time",
        "bad_time",
        "bad_retry",
        "new",
    ]
    assert all(one.text for one in told[1:-1])
    assert keys(client.lease(10)) == ["first", "last"]


@pytest.mark.covers("S3.17")
def test_seeds_found_are_added_after_the_finish(
    service: Service, client: SeedClient, asker: Broker, frontier: Frontier
) -> None:
    client.add(seeds("a"))
    lease = client.lease(1)
    call = FinishSeeds(
        frontier=frontier.pk,
        token=token(frontier),
        owner="w1",
        finishes=ended(lease),
        found=seeds("a", "b", ""),
    )
    for codes in (["duplicate", "new", "empty_data"], ["duplicate", "duplicate", "empty_data"]):
        answer = ask(asker, call)
        assert isinstance(answer, SeedsFinished)
        assert [one.code for one in answer.added] == codes
    # The same once more has changed nothing.
    assert [one.code for one in answer.answers] == ["repeated"]
    assert (books(service, frontier).added, books(service, frontier).succeeded) == (2, 1)


@pytest.mark.covers("S3.15")
def test_a_late_finish_is_counted_and_changes_nothing(
    service: Service, client: SeedClient, client_of: MakeClient, frontier: Frontier
) -> None:
    client.add(seeds("a"))
    late = client.lease(1)
    client.give_back(late.generation)
    other = client_of(frontier, owner="w2")
    lease = other.lease(1)
    assert [one.code for one in client.finish(ended(late)).answers] == ["late"]
    assert (books(service, frontier).late, books(service, frontier).leased) == (1, 1)
    assert [one.code for one in other.finish(ended(lease)).answers] == ["finished"]


def test_a_lease_is_prolonged_and_given_back(service: Service, client: SeedClient) -> None:
    client.add(seeds("a", "b"))
    lease = client.lease(2, seconds=10)
    assert client.extend(lease.generation, seconds=60) == lease.deadline + 50_000
    assert client.give_back(lease.generation) == 2
    with pytest.raises(CallRefused) as caught:
        client.extend(lease.generation)
    assert caught.value.code == "wrong_lease"
    assert [(one.key, one.retry) for one in client.lease(2).seeds] == [("a", 0), ("b", 0)]


@pytest.mark.covers("S3.11", "S3.15")
def test_leases_that_are_over_come_back_by_themselves(
    service: Service, client: SeedClient, client_of: MakeClient, frontier: Frontier
) -> None:
    client.add(seeds("a"))
    client.lease(1, seconds=10)
    # More than it takes to answer the calls that were there before.
    service.clock.advance(20)
    lease = client_of(frontier, owner="w2").lease(1, wait_seconds=20)
    assert [(one.key, one.retry) for one in lease.seeds] == [("a", 1)]
    assert books(service, frontier).expired == 1


def test_looking_up_says_since_when(service: Service, client: SeedClient) -> None:
    assert client.look_up(Seed("a")).known is None
    client.add(seeds("a"))
    known = client.look_up(Seed("a")).known
    assert known is not None
    assert (known.state, known.added_at) == (SeedState.INIT, int(service.clock.time() * 1000))
    for bad in (Seed(""), Seed("half \ud83d")):
        with pytest.raises(CallRefused) as caught:
            client.look_up(bad)
        assert caught.value.code in ("empty_data", "binary_data")


def test_nothing_due_tells_when_to_ask_again(service: Service, client: SeedClient) -> None:
    soon = int(service.clock.time() * 1000) + 60_000
    client.add(seeds("soon", active_at=soon))
    lease = client.lease(1)
    assert (lease.seeds, lease.next_due, lease.pending) == ([], soon, 1)


def test_calls_that_cannot_be_answered_are_refused_with_a_code(
    service: Service, asker: Broker, frontier: Frontier
) -> None:
    one, right = frontier.pk, token(frontier)
    many = seeds("x") * (MAX_SEEDS + 1)
    finishes = [SeedFinish(0, "x", 1, SeedOutcome.SUCCESS)] * (MAX_SEEDS + 1)
    calls = [
        (AddSeeds(frontier=one, token="s1.wrong", seeds=[]), "wrong_token"),
        (AddSeeds(frontier=one, token="s1.ö", seeds=[]), "wrong_token"),
        (AddSeeds(frontier=one + 1, token=right, seeds=[]), "wrong_token"),
        (AddSeeds(frontier=9999, token=token(9999), seeds=[]), "unknown_frontier"),
        (AddSeeds(frontier=one, token=right, seeds=many), "bad_call"),
        (FinishSeeds(frontier=one, token=right, owner="w", finishes=finishes), "bad_call"),
        (FinishSeeds(frontier=one, token=right, owner="w", finishes=[], found=many), "bad_call"),
        (LeaseSeeds(frontier=one, token=right, owner=""), "bad_call"),
        (LeaseSeeds(frontier=one, token=right, owner="a\nb"), "bad_call"),
        (LeaseSeeds(frontier=one, token=right, owner="w", limit=0), "bad_call"),
        (LeaseSeeds(frontier=one, token=right, owner="w", seconds=-1), "bad_call"),
        (LeaseSeeds(frontier=one, token=right, owner="w", wait_seconds=31), "bad_call"),
        (LeaseSeeds(frontier=one, token=right, owner="w", wait_seconds=float("nan")), "bad_call"),
        (LeaseSeeds(frontier=one, token=right, owner="w", call="c" * 101), "bad_call"),
    ]
    for call, code in calls:
        answer = ask(asker, call)
        assert (refused(answer), answer.retry_seconds) == (code, 0.0), call
        assert answer.text


def test_small_adds_that_come_together_get_their_own_answers(
    service: Service, asker: Broker, frontier: Frontier
) -> None:
    service.stop()
    calls = [
        AddSeeds(frontier=frontier.pk, token=token(frontier), seeds=seeds(*names))
        for names in (["a", "b"], [], ["b", ""], ["c"])
    ]
    waiting = [Later(partial(ask, asker, call)) for call in calls]
    service.start()
    told = [[one.code for one in later.answer().answers] for later in waiting]
    assert [len(codes) for codes in told] == [2, 0, 2, 1]
    assert sorted(code for codes in told for code in codes) == sorted(
        ["new", "new", "duplicate", "empty_data", "new"]
    )
    assert books(service, frontier).added == 3
