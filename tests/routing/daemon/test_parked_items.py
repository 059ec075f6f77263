"""Parked items wait durably for room, tokens or an unreachable target; none is lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.routing.daemon import backlog
from apps.routing.daemon.delivery import DecidedItem
from apps.routing.daemon.rule_sets import BATCH
from apps.routing.engine.outbounds.base import Outcome, Sent, away, refused
from apps.routing.models import RoutedItem
from apps.routing.queries import reconcile_items
from apps.routing.services import Arrival, receive_items
from tests.plugins.measurements import Measured
from tests.routing.daemon.routers import Router, inbound, outbound


def numbers(router: Router, name: str) -> list[int]:
    return [message["n"] for message in router.target(name).messages]


def put(router: Router, *found: int, **more: Any) -> None:
    router.put(*({"n": number} | more for number in found))


@pytest.mark.covers("S2.38")
@pytest.mark.fault
def test_what_has_no_room_is_parked_and_offered_in_order_when_there_is(
    router: Router, measured: Measured
) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "True", max_lag=3)])
    put(router, *range(8))
    router.until(lambda: router.states() == {"dispatched": 3, "parked": 5}, "parked ones")
    target = router.target("o")
    # Later items do not overtake them.
    put(router, 8)
    router.until(lambda: router.states().get("parked") == 6, "the last one")
    parked = RoutedItem.objects.filter(state="parked").first()
    assert parked is not None
    assert parked.reason == "queue_full"
    assert [each.kind for each in parked.story] == ["received", "parked"]
    while len(target.messages) < 9:
        target.consumed = len(target.messages)
        router.until(lambda: target.waiting > 0, "more of them")
        assert target.waiting <= 3
    came = numbers(router, "o")
    measured(of=9, lost=len(set(range(9)) - set(came)), twice=len(came) - len(set(came)))
    assert came == list(range(9))
    router.until(lambda: router.states() == {"dispatched": 9}, "the ledger")
    assert reconcile_items(router.project.pk).holds


@pytest.mark.covers("S2.38")
def test_what_somebody_else_has_put_into_the_queue_takes_room(router: Router) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "True", max_lag=3)])
    router.target("o").messages += [{"n": -2}, {"n": -1}]
    put(router, 0, 1)
    router.until(lambda: router.states() == {"dispatched": 1, "parked": 1}, "the parked one")
    # Still no room after the next query of the depth: no message was consumed.
    channel = router.daemon.rule_sets._current[router.project.pk].outbounds["o"]
    channel._depth_at = channel.offer_at = 0.0
    router.run_dry()
    assert (numbers(router, "o"), channel.depth) == ([-2, -1, 0], 3)
    assert router.states() == {"dispatched": 1, "parked": 1}


@pytest.mark.slow("2 s")
@pytest.mark.covers("S2.38")
@pytest.mark.parametrize("is_new", [True, False], ids=["a new router", "new rules"])
def test_what_comes_first_goes_first_under_new_rules_too(router: Router, is_new: bool) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "True", max_lag=1)])
    put(router, 0, 1)
    router.until(lambda: router.states() == {"dispatched": 1, "parked": 1}, "the parked one")
    if is_new:
        router.daemon.teardown()
        router.daemon = router.make("two")
        router.is_set_up = False
    router.use([inbound("in.jsonl")], [outbound("o", "True", max_lag=2)])
    put(router, 2)
    while not router.daemon._take_turn():
        pass
    assert numbers(router, "o") == [0]
    router.target("o").consumed = 1
    router.until(lambda: router.states() == {"dispatched": 3}, "both")
    assert numbers(router, "o") == [0, 1, 2]


@pytest.mark.covers("S2.38")
@pytest.mark.parametrize("overflow", ["next", "fail"])
def test_a_full_queue_lets_others_have_it_or_fails(router: Router, overflow: str) -> None:
    router.use(
        [inbound("in.jsonl")],
        [outbound("o", "True", max_lag=2, overflow=overflow), outbound("p", "True")],
    )
    put(router, *range(5))
    ends = {"dispatched": 5} if overflow == "next" else {"dispatched": 2, "failed": 3}
    router.until(lambda: router.states() == ends, "all of them")
    assert numbers(router, "o") == [0, 1]
    assert numbers(router, "p") == ([2, 3, 4] if overflow == "next" else [])


@pytest.mark.slow("2 s")
def test_a_target_that_is_away_gets_its_items_in_order_when_it_is_back(
    router: Router, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "apps.routing.daemon.channels")
    router.use([inbound("in.jsonl")], [outbound("o", "n >= 0"), outbound("p", "n < 0")])
    target = router.target("o")
    asked: list[Sent] = []

    def is_away(sent: Sent) -> Outcome:
        asked.append(sent)
        return away("unreachable", "no route to it")

    target.answer = is_away
    put(router, 0, 1, 2)
    router.until(lambda: router.states() == {"parked": 3}, "parked ones")
    put(router, 3, 4, -1)
    router.until(lambda: router.states() == {"parked": 5, "dispatched": 1}, "the others")
    # Other outbounds are not held up, and the target is not tried for each item.
    assert numbers(router, "p") == [-1]
    item = RoutedItem.objects.filter(state="parked").latest("id")
    assert (item.reason, item.detail) == ("target_away", "no route to it")
    router.until(lambda: len(asked) > 4, "a probe")
    assert router.daemon.rule_sets is not None
    target.answer = lambda sent: None
    router.until(lambda: router.states() == {"dispatched": 6}, "delivery")
    assert numbers(router, "o") == [0, 1, 2, 3, 4]
    assert reconcile_items(router.project.pk).holds
    # Logged once, however often it was tried.
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "reachable" in line] == [
        "outbound unreachable: name=o error=no route to it",
        "outbound reachable again: name=o",
    ]


def test_a_probe_that_gets_no_token_is_no_reason_to_probe_at_once(router: Router) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "True", token_per_second=0.001)])
    router.target("o").answer = lambda sent: away("unreachable", "no route to it")
    put(router, 0)
    router.until(lambda: router.states() == {"parked": 1}, "the parked one")
    channel = router.daemon.rule_sets._current[router.project.pk].outbounds["o"]
    channel.probe_at = 0.0
    assert router.daemon.backlog.probe()
    assert channel.probe_at > router.clock.monotonic()
    assert channel.unreachable


def test_a_refused_item_goes_to_the_failback_or_has_failed(router: Router) -> None:
    router.use(
        [inbound("in.jsonl")],
        [
            outbound("o", "n < 10", failback="spare"),
            outbound("spare"),
            outbound("p", "True", retry_limits=5),
        ],
    )
    for name in ("o", "p"):
        router.target(name).answer = lambda sent: refused("too_large", "it is too large")
    put(router, 1, 10)
    router.until(lambda: router.states() == {"dispatched": 1, "failed": 1}, "both")
    assert numbers(router, "spare") == [1]
    assert router.target("spare").messages[0]["group_retry_times"] == 0
    failed = RoutedItem.objects.get(state="failed")
    assert (failed.outbound, failed.reason) == ("p", "refused")
    assert failed.detail == "p rejected the task. it is too large"


@pytest.mark.covers("S2.31")
def test_what_has_no_token_waits_for_its_turn_and_holds_up_nobody_else(router: Router) -> None:
    router.use(
        [inbound("in.jsonl")],
        [outbound("slow", "n < 10", token_per_second=5), outbound("fast", "True")],
    )
    put(router, *range(9), *range(10, 14))
    router.until(lambda: router.states().get("parked", 0) > 0, "those without a token")
    assert numbers(router, "fast") == [10, 11, 12, 13]
    assert len(numbers(router, "slow")) < 9
    assert RoutedItem.objects.filter(state="parked", reason="rate_limit").exists()
    router.until(lambda: router.states() == {"dispatched": 13}, "all of them")
    assert numbers(router, "slow") == list(range(9))


@pytest.mark.slow("2 s")
@pytest.mark.covers("S2.31")
def test_each_value_of_a_scope_has_its_own_tokens(router: Router) -> None:
    router.use(
        [inbound("in.jsonl")], [outbound("o", "True", token_per_second=1, token_scope="province")]
    )
    put(router, 0, 1, 2, province="HN")
    put(router, 3, province="GD")
    router.until(lambda: len(router.target("o").messages) == 2, "one of each")
    assert {0, 3} == set(numbers(router, "o"))
    router.until(lambda: router.states() == {"dispatched": 4}, "all of them")
    assert [each for each in numbers(router, "o") if each != 3] == [0, 1, 2]


@pytest.mark.slow("1 s")
@pytest.mark.covers("S2.31")
def test_a_crowd_that_waits_for_tokens_is_not_looked_at_all_the_time(router: Router) -> None:
    router.use(
        [inbound("in.jsonl")], [outbound("o", "True", token_per_second=1, token_scope="province")]
    )
    put(router, *range(3 * BATCH), province="HN")
    router.until(lambda: sum(router.states().values()) == 3 * BATCH, "all of them")
    # The router was not running for a long time.
    now = router.clock.now()
    RoutedItem.objects.filter(state="parked").update(due_at=now)
    router.daemon.backlog.timers.hasten("parked")
    router.until(lambda: not RoutedItem.objects.filter(due_at__lte=now).exists(), "a look at all")
    # The wait covers the tokens for all parked items, not only for one batch.
    latest = RoutedItem.objects.filter(state="parked").latest("due_at").due_at
    assert latest is not None
    assert latest - now > timedelta(seconds=2 * BATCH)


@pytest.mark.slow("1 s")
def test_parked_items_of_an_outbound_that_is_gone_go_by_the_rules_again(router: Router) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "True", max_lag=0), outbound("p", "n < 2")])
    put(router, 0, 1, 2)
    router.until(lambda: router.states() == {"parked": 3}, "parked ones")
    router.use([inbound("in.jsonl")], [outbound("p", "n < 2")])
    router.until(lambda: router.states() == {"dispatched": 2, "rejected": 1}, "the others")
    assert numbers(router, "p") == [0, 1]
    assert router.target("p").messages[0]["routed_count"] == 1


@pytest.mark.slow("2 s")
def test_parked_items_of_a_disabled_outbound_wait_and_are_not_asked_about_for_ever(
    router: Router,
) -> None:
    rules = [outbound("o", "True", max_lag=0)]
    router.use([inbound("in.jsonl")], rules)
    put(router, 0, 1)
    router.until(lambda: router.states() == {"parked": 2}, "parked ones")
    router.use([inbound("in.jsonl")], [outbound("o", "True", disable=True)])
    router.until(
        lambda: RoutedItem.objects.filter(reason="outbound_disabled").count() == 2, "the question"
    )
    before = list(RoutedItem.objects.order_by("id").values_list("generation", flat=True))
    router.run_dry()
    for _ in range(5):
        router.daemon.backlog.timers.hasten("parked")
        router.run_dry()
    after = list(RoutedItem.objects.order_by("id").values_list("generation", flat=True))
    assert after == before
    router.use([inbound("in.jsonl")], [outbound("o", "True")])
    router.until(lambda: router.states() == {"dispatched": 2}, "both")


@pytest.mark.slow("2 s")
def test_what_the_last_batch_by_the_old_rules_parks_is_asked_of_the_new_ones(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "STRANDED_SECONDS", 0.0)
    router.use([inbound("in.jsonl")], [outbound("o", "True", max_lag=0)])
    daemon = router.daemon
    with daemon.rule_sets.using(router.project.pk) as old:
        assert old is not None
        arrival = Arrival(project=router.project.pk, inbound="logs", item={"n": 0})
        (receipt,) = receive_items(arrivals=[arrival], now=router.clock.now(), lease_seconds=60)
        put(router, 1, 2)
        router.until(lambda: router.states().get("parked") == 2, "parked ones")
        router.use([inbound("in.jsonl")], [outbound("p", "True")])
        router.until(lambda: numbers(router, "p") == [1, 2], "those by the rules again")
        router.run_dry()
        decision = old.life.decide(receipt.entry.item, None)
        daemon.pipeline.route(old, [DecidedItem(receipt.entry, decision)])
    assert router.states() == {"parked": 1, "dispatched": 2}
    router.until(lambda: router.states() == {"dispatched": 3}, "the last one")
    assert reconcile_items(router.project.pk).holds


@pytest.mark.slow("1 s")
def test_what_another_router_has_parked_is_found(router: Router) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "True", max_lag=1)])
    put(router, 0, 1, 2)
    router.until(lambda: router.states() == {"dispatched": 1, "parked": 2}, "parked ones")
    second = router.make("two")
    target = router.target("o")
    target.consumed = 1
    second.setup()
    try:
        for wanted in (2, 3):
            while len(target.messages) < wanted:
                second.step()
            target.consumed = wanted
    finally:
        second.teardown()
    assert numbers(router, "o") == [0, 1, 2]


def test_an_outbound_of_others_that_fails_is_away_until_it_is_mended(router: Router) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "True")])

    def breaks(sent: Sent) -> Outcome:
        raise KeyError("no such thing")

    router.target("o").answer = breaks
    put(router, 0, 1)
    router.until(lambda: router.states() == {"parked": 2}, "parked ones")
    assert "KeyError" in RoutedItem.objects.earliest("id").detail
    router.target("o").answer = lambda sent: None
    router.until(lambda: router.states() == {"dispatched": 2}, "both")
