"""Results from an inbound end their item, have it retried, or send it to a failback."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.routing.models import RoutedItem
from apps.routing.queries import item_accounting, reconcile_items
from tests.routing.daemon.routers import Router, inbound, outbound

TERMINAL = {"routing": {"limits": -1, "terminal_codes": [1000, 1101]}}


def result(message: Mapping[str, Any], status: int | str) -> dict[str, Any]:
    """Return the result that a spider logs for a message."""
    return {"task_result": status, "task_params": dict(message), "spider_name": "s"}


def one(router: Router) -> RoutedItem:
    return RoutedItem.objects.get(project=router.project)


def kinds(item: RoutedItem) -> list[str]:
    return [each.kind for each in item.story]


def start(router: Router, *outbounds: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Route one item to its first outbound; return the message."""
    router.use([inbound("in.jsonl", selector=["a == 1"])], outbounds, **(TERMINAL | more))
    router.put({"a": 1, "name": "x"})
    router.until(lambda: router.states() == {"dispatched": 1}, "dispatch")
    return dict(router.target(one(router).outbound).messages[0])


@pytest.mark.covers("S2.12", "S2.34")
@pytest.mark.parametrize("status", [1000, "1101", 1000.0], ids=["number", "text", "float"])
def test_a_terminal_code_ends_it_well(router: Router, status: Any) -> None:
    message = start(router, outbound("o", "a == 1"))
    router.put(result(message, status))
    router.until(lambda: router.states() == {"succeeded": 1}, "success")
    assert kinds(one(router)) == ["received", "matched", "dispatched", "result", "ended"]
    # No selector of the inbound accepts the result; it is applied anyway.
    told = item_accounting(router.project.pk)
    assert (told.results, told.filtered, told.received) == (1, 0, 1)
    assert reconcile_items(router.project.pk).holds


@pytest.mark.covers("S2.1", "S2.5", "S2.35", "S2.38")
def test_a_failure_is_sent_again_as_often_as_its_outbound_says_and_fails_then(
    router: Router,
) -> None:
    message = start(router, outbound("o", "a == 1", retry_limits=2))
    for attempt in (1, 2):
        router.put(result(message, 5000))
        router.until(lambda: len(router.target("o").messages) == attempt + 1, "the retry")  # noqa: B023
        message = router.target("o").messages[attempt]
        assert (message["retry_times"], message["routed_count"]) == (attempt, 1)
        assert message["group_retry_times"] == attempt
    router.put(result(message, 5000))
    router.until(lambda: router.states() == {"failed": 1}, "the end")
    item = one(router)
    assert item.reason == "retry_limits"
    assert kinds(item).count("retried") == 2
    assert reconcile_items(router.project.pk).holds


@pytest.mark.covers("S2.35", "S2.36", "S2.37")
def test_a_failure_goes_to_the_failback_or_by_the_rules_again(router: Router) -> None:
    message = start(
        router,
        outbound(
            "o", "a == 1 and not routed_count", retry_limits=3, failback="spare",
            direct_failback_status=[403],
        ),
        outbound("spare", dont_retry_status=[404]),
        outbound("last", "a == 1 and routed_count"),
    )  # fmt: skip
    router.put(result(message, 403))
    router.until(lambda: router.target("spare").messages, "the failback")
    message = router.target("spare").messages[0]
    assert (message["routed_count"], message["retry_times"]) == (2, 0)
    router.put(result(message, 404))
    router.until(lambda: router.target("last").messages, "the rules again")
    router.run_dry()
    details = [each.detail for each in one(router).story if each.kind == "matched"]
    assert details == ["matched", "failback 403", "routed_again 404"]
    assert router.target("last").messages[0]["routed_count"] == 3


@pytest.mark.covers("S2.11", "S2.38")
def test_routings_are_bounded(router: Router) -> None:
    message = start(
        router,
        outbound("o", "a == 1", failback="spare"),
        outbound("spare"),
        routing={"limits": 1, "terminal_codes": [1000]},
    )
    router.put(result(message, 1))
    router.until(lambda: router.states() == {"failed": 1}, "the end")
    assert one(router).reason == "routing_limits"


def test_late_and_stale_results_change_nothing_and_are_counted(router: Router) -> None:
    first = start(router, outbound("o", "a == 1", retry_limits=1))
    router.put(result(first, 5))
    router.until(lambda: len(router.target("o").messages) == 2, "the retry")
    router.put(result(first, 5))
    router.run_dry()
    assert router.states() == {"dispatched": 1}
    assert "stale_result" in one(router).story[-1].detail
    router.put(result(router.target("o").messages[1], 1000))
    router.until(lambda: router.states() == {"succeeded": 1}, "success")
    router.put(result(first, 5))
    router.until(lambda: item_accounting(router.project.pk).late_results == 1, "the late one")
    assert router.states() == {"succeeded": 1}
    assert kinds(one(router))[-1] == "late_result"


def test_two_results_of_one_item_in_one_batch_both_have_their_effect(router: Router) -> None:
    message = start(router, outbound("o", "a == 1", retry_limits=5))
    again = message | {"group_retry_times": 1, "retry_times": 1}
    router.put(result(message, 5), result(again, 1000))
    router.until(lambda: router.states() == {"succeeded": 1}, "success")
    assert item_accounting(router.project.pk).results == 2
    assert reconcile_items(router.project.pk).holds
    # The first result alone would have caused a retry.
    assert len(router.target("o").messages) == 1


def test_however_many_results_of_one_item_a_batch_has_each_counts(router: Router) -> None:
    message = start(router, outbound("o", "a == 1", retry_limits=1))
    stale = [result(message, 5)] * 20
    again = message | {"group_retry_times": 1, "retry_times": 1}
    router.put(*stale, *[result(again, 1000)] * 20)
    router.until(lambda: router.states() == {"succeeded": 1}, "success")
    router.until(lambda: item_accounting(router.project.pk).late_results == 19, "the late ones")
    assert item_accounting(router.project.pk).results == 40


@pytest.mark.covers("S2.1", "S2.4")
def test_a_log_of_a_known_item_that_has_no_result_becomes_a_new_item(router: Router) -> None:
    message = start(router, outbound("o", "a == 1"))
    router.put({"a": 1, "found": "b", "task_params": message})
    router.until(lambda: router.states() == {"dispatched": 2}, "the derived item")
    derived = router.target("o").messages[1]
    assert derived["found"] == "b"
    assert derived["task_uuid"] != message["task_uuid"]
    assert derived["routed_count"] == 2


@pytest.mark.parametrize(
    ("status", "state", "names"),
    [(1000, "succeeded", []), (403, "dispatched", ["spare"]), (5, "failed", [])],
    ids=["success", "failback", "failure"],
)
def test_a_result_that_is_quicker_than_the_ledger_finds_its_outbound(
    router: Router, status: int, state: str, names: list[str]
) -> None:
    rules = [
        outbound("o", "a == 1", failback="spare", direct_failback_status=[403]),
        outbound("spare", expects_result=True),
    ]
    if state == "failed":
        rules[0] = outbound("o", "a == 1")
    router.use([inbound("in.jsonl"), inbound("back.jsonl", name="back")], rules, **TERMINAL)
    second = router.make("two")
    second.setup()
    target = router.target("o")

    def answers_at_once(sent: Any) -> None:
        """The result arrives at a second router while the first one is still sending."""
        target.answer = lambda sent: None
        router.put(result(sent.message, status), file="back.jsonl")
        line = second.rule_sets._current[router.project.pk].inbounds["back"]
        running = second.rule_sets._current[router.project.pk]
        while second.pipeline.take(running, line) == 0:
            pass

    target.answer = answers_at_once
    router.put({"a": 1})
    try:
        router.until(lambda: router.states() == {state: 1}, "the end")
    finally:
        second.teardown()
    assert one(router).outbound == (names[-1] if names else "o")
    assert [len(router.target(name).messages) for name in ("o", *names)] == [1] * (1 + len(names))
    assert reconcile_items(router.project.pk).holds


def overdue(router: Router) -> None:
    """Expire the result deadline of sent items."""
    RoutedItem.objects.filter(project=router.project, state="dispatched").update(
        due_at=timezone.now() - timedelta(seconds=1)
    )


def test_without_a_result_in_time_it_is_sent_again_and_expires_at_last(router: Router) -> None:
    start(router, outbound("o", "a == 1", retry_limits=1, result_timeout_seconds=600))
    found = one(router)
    assert found.due_at is not None
    assert timedelta(seconds=590) < found.due_at - found.changed_at < timedelta(seconds=610)
    overdue(router)
    router.until(lambda: len(router.target("o").messages) == 2, "the second attempt")
    router.run_dry()
    assert kinds(one(router))[-3:] == ["overdue", "retried", "dispatched"]
    overdue(router)
    router.until(lambda: router.states() == {"expired": 1}, "the end")
    assert one(router).reason == "no_result"
    assert reconcile_items(router.project.pk).holds


def test_an_outbound_that_sends_no_result_ends_an_item_by_delivery(router: Router) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "a == 1", expects_result=False)])
    router.put({"a": 1})
    router.until(lambda: router.states() == {"succeeded": 1}, "delivery")
    assert one(router).reason == "delivered"


@pytest.mark.covers("S2.13")
def test_what_ends_without_success_stands_in_the_failure_file(router: Router) -> None:
    rules = {"failure": {"path": "failed.jsonl", "compress": False}}
    message = start(router, outbound("o", "a == 1"), **rules)
    router.put(result(message, 7), "{no item", {"a": 1, "b": 1})
    router.until(lambda: router.states() == {"failed": 1, "dead": 1, "dispatched": 1}, "ends")
    lines = (router.folder / "failures" / "failed.jsonl").read_text("utf-8").splitlines()
    found = {each["state"]: each for each in map(json.loads, lines)}
    assert len(lines) == 2
    assert found["failed"]["task_uuid"] == message["task_uuid"]
    assert found["failed"]["status"] == "7"
    assert found["dead"]["item"] == {"raw": "{no item"}


@pytest.mark.covers("S2.13", "S2.33")
def test_what_no_rule_takes_stands_there_and_older_files_are_packed_where_that_is_wanted(
    router: Router,
) -> None:
    older = router.folder / "failures" / "failed.jsonl.000001"
    older.parent.mkdir()
    older.write_bytes(b'{"older":1}\n')
    failure = {"path": "failed.jsonl", "compress": True}
    router.use([inbound("in.jsonl")], [outbound("o", "a == 1")], failure=failure)
    router.put({"b": 1})
    router.until(lambda: router.states() == {"rejected": 1}, "its end")
    (line,) = (older.parent / "failed.jsonl").read_text("utf-8").splitlines()
    told = json.loads(line)
    assert (told["state"], told["reason"], told["item"]) == ("rejected", "no_rule", {"b": 1})
    assert gzip.decompress(older.with_name(f"{older.name}.gz").read_bytes()) == b'{"older":1}\n'
    assert not older.exists()
