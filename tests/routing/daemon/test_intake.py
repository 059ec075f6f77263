"""Batches of inbounds: items, malformed messages, filtered ones, and redeliveries."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter
from datetime import timedelta

import pytest
import redis
from django.utils import timezone

from apps.configcenter.services import activate
from apps.routing.models import RoutedItem, RouterReport
from apps.routing.queries import item_accounting, reconcile_items, routing_status
from apps.routing.services import Arrival, ItemMove, receive_items
from apps.routing.services.moves import move_items
from apps.routing.states import ItemState
from tests.access.factories import make_project
from tests.plugins.kafka_cluster import KafkaCluster
from tests.routing.daemon.routers import Router, inbound, outbound, save_rules


def kinds(item: RoutedItem) -> list[str]:
    return [each.kind for each in item.story]


@pytest.mark.covers("S2.18")
def test_what_no_condition_of_an_inbound_holds_for_is_counted_and_no_item(router: Router) -> None:
    router.use(
        [inbound("in.jsonl", selector=["type == 'a'", "type == 'b'"])], [outbound("o", "True")]
    )
    router.put({"type": "a"}, {"type": "c"}, {"type": "b"}, {"other": 1})
    router.until(lambda: item_accounting(router.project.pk).filtered == 2, "the count")
    router.until(lambda: router.states() == {"dispatched": 2}, "the items")
    assert item_accounting(router.project.pk).received == 2


@pytest.mark.covers("S2.22")
def test_converters_go_before_the_conditions_and_the_converted_item_goes_on(router: Router) -> None:
    convert = [{"class": "common.ExtractTaskParams"}]
    router.use(
        [inbound("in.jsonl", selector=["province == 'HN'"], convert=convert)],
        [outbound("o", "province == 'HN'", task_params=["province"])],
    )
    router.put({"task_params": {"province": "HN"}}, {"task_params": {"province": "GD"}})
    router.until(lambda: router.states() == {"dispatched": 1}, "the item")
    assert router.target("o").messages[0]["province"] == "HN"
    (item,) = RoutedItem.objects.all()
    assert kinds(item) == ["received", "converted", "matched", "dispatched"]
    assert json.loads(item.item)["province"] == "HN"


@pytest.mark.covers("S2.17", "S2.23")
def test_an_inbound_has_as_many_batches_at_work_as_threads(router: Router) -> None:
    router.use([inbound("in.jsonl", threads=2)], [outbound("o", "True")])
    rule_sets = router.daemon.rule_sets
    held = [rule_sets.turn(), rule_sets.turn()]
    assert None not in held
    assert rule_sets.turn() is None
    # The number of threads of the new rule applies, although the inbound is reused.
    router.use([inbound("in.jsonl", threads=3)], [outbound("o", "True")])
    held.append(rule_sets.turn())
    assert held[2] is not None
    assert held[2][1] is held[0][1]  # type: ignore[index]  # none is None
    assert rule_sets.turn() is None
    for each in held:
        rule_sets.done(*each)  # type: ignore[misc]  # as above


@pytest.mark.covers("S2.17")
def test_inbounds_are_asked_by_their_weights(router: Router) -> None:
    inbounds = [
        inbound(f"{name}.jsonl", name=name, weight=weight)
        for name, weight in (("heavy", 30), ("usual", 10))
    ]
    router.use(inbounds, [outbound("o", "True")])
    asked: Counter[str] = Counter()
    for _ in range(8):
        turn = router.daemon.rule_sets.turn()
        assert turn is not None
        router.daemon.rule_sets.polled(*turn, 1)
        router.daemon.rule_sets.done(*turn)
        asked[turn[1].rule.name] += 1
    assert asked == {"heavy": 6, "usual": 2}


@pytest.mark.services
@pytest.mark.covers("S2.17")
@pytest.mark.parametrize(("threads", "workers"), [(8, 4), (1, 2)])
def test_full_inbounds_are_read_in_the_ratio_of_their_weights(
    router: Router, redis_url: str, threads: int, workers: int
) -> None:
    lists = {name: f"{name}-{secrets.token_hex(4)}" for name in ("heavy", "light")}
    weights = {"heavy": 50, "light": 10}
    inbounds = [
        inbound(
            "",
            name=name,
            weight=weights[name],
            threads=threads,
            **{
                "class": "redis_queue.RedisListInbound",
                "init": {"url": redis_url, "key": lists[name]},
            },
        )
        for name in weights
    ]
    client = redis.Redis.from_url(redis_url)
    for key in lists.values():
        client.lpush(key, *(str(number) for number in range(2000)))
    router.use(inbounds, [outbound("o", "True")])
    rule_sets = router.daemon.rule_sets
    read: Counter[str] = Counter()

    def work() -> None:
        while read.total() < 1200:
            turn = rule_sets.turn()
            if turn is None:
                time.sleep(0.001)
                continue
            running, line = turn
            taken = line.inbound.take(10, 0)
            time.sleep(0.005)
            line.inbound.ack([each.handle for each in taken])
            read[line.rule.name] += len(taken)
            rule_sets.polled(running, line, len(taken))
            rule_sets.done(running, line)

    threads_of_work = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads_of_work:
        thread.start()
    for thread in threads_of_work:
        thread.join()
    router.daemon.teardown()
    client.delete(*lists.values())
    assert read["heavy"] == pytest.approx(5 * read["light"], rel=0.1)


def test_what_an_inbound_finds_is_reported(router: Router) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "True")])
    router.put({"n": 1})
    router.until(lambda: router.states() == {"dispatched": 1}, "the item")
    router.daemon.teardown()
    (router.files / "in.jsonl").unlink()
    router.put({"n": 2})
    router.daemon, router.is_set_up = router.make("two"), False
    router.use([inbound("in.jsonl")], [outbound("p", "True")])
    router.until(lambda: router.states() == {"dispatched": 2}, "the other item")
    router.report_soon()
    router.daemon.reporter.query_servers()
    router.daemon.reporter.write()
    (row,) = RouterReport.objects.filter(router__startswith="two")
    ((code, text),) = row.reports["inbounds"]["logs"]["findings"]
    assert code == "file_lost"
    assert "in.jsonl" in text


@pytest.mark.slow("45 s")
@pytest.mark.kafka
@pytest.mark.covers("S2.21")
def test_inbounds_of_two_projects_in_one_group_are_told_of(
    router: Router, kafka_cluster: KafkaCluster
) -> None:
    settings = {"bootstrap.servers": kafka_cluster.servers, "group.id": "hub"}
    init = {"consumer_settings": settings, "topics": ["shared-by-two"]}
    mine = inbound("", **{"class": "kafka.KafkaInbound", "init": init})
    other = save_rules(make_project(), [mine], [outbound("p", "True")], router.clock)
    activate(version=other, actor=None, now=router.clock.now())
    router.use([mine, inbound("in.jsonl", name="files")], [outbound("o", "True")])
    router.report_soon()
    router.daemon.reporter.query_servers()
    router.daemon.reporter.write()
    rows = {row.project_id: row.reports["inbounds"] for row in RouterReport.objects.all()}
    for project in (router.project.pk, other.configuration.project_id):
        told = dict(rows[project]["logs"]["findings"])
        assert told["shared_group"].startswith("an inbound of another project reads shared-by-two")
    assert "findings" not in rows[router.project.pk]["files"]


def test_poison_is_dead_and_keeps_its_text_beside_items_that_go_on(router: Router) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "True")])
    router.put('{"a": 1', '["no", "dict"]', '{"b": NaN}', {"c": 1}, '{"a": 1, "a": 2}')
    router.until(lambda: router.states() == {"dead": 4, "dispatched": 1}, "all of them")
    dead = list(RoutedItem.objects.filter(state="dead").order_by("id"))
    assert [json.loads(each.item)["raw"] for each in dead] == [
        '{"a": 1',
        '["no", "dict"]',
        '{"b": NaN}',
        '{"a": 1, "a": 2}',
    ]
    assert {each.reason for each in dead} == {"poison"}
    assert [each.detail.partition(":")[0] for each in dead] == [
        "not_json",
        "not_a_dict",
        "bad_number",
        "duplicate_key",
    ]
    assert reconcile_items(router.project.pk).holds


def test_bytes_that_are_no_text_are_kept_as_far_as_a_text_can(router: Router) -> None:
    router.use([inbound("in.jsonl")], [outbound("o", "True")])
    with (router.files / "in.jsonl").open("ab") as lines:
        lines.write(b'{"a": "\xff\x00"}\n')
    router.until(lambda: router.states() == {"dead": 1}, "the end")
    (item,) = RoutedItem.objects.all()
    assert json.loads(item.item)["raw"] == '{"a": "\ufffd\ufffd"}'
    assert item.detail.startswith("not_utf8")


def test_what_the_web_has_stored_is_routed(router: Router) -> None:
    router.use([], [outbound("o", "n > 0")])
    arrivals = [
        Arrival(project=router.project.pk, inbound="http", item={"n": number}) for number in (1, 0)
    ]
    receive_items(arrivals=arrivals, now=timezone.now(), lease_seconds=0)
    router.until(lambda: router.states() == {"dispatched": 1, "rejected": 1}, "both")
    assert RoutedItem.objects.get(state="dispatched").rules_version == 1


def test_a_retry_that_the_web_has_stored_is_sent(router: Router) -> None:
    router.use([], [outbound("o", "n > 0")])
    arrival = Arrival(project=router.project.pk, inbound="http", item={"n": 1})
    (receipt,) = receive_items(arrivals=[arrival], now=timezone.now(), lease_seconds=60)
    move = ItemMove(
        entry=receipt.entry,
        to=ItemState.RETRYING,
        due_at=timezone.now(),
        outbound="o",
        routed_count=1,
        retry_times=1,
        group_retry_times=1,
    )
    move_items(moves=[move], now=timezone.now())
    router.until(lambda: router.states() == {"dispatched": 1}, "the retry")
    (message,) = router.target("o").messages
    assert (message["routed_count"], message["retry_times"]) == (1, 1)


def test_items_of_a_router_that_has_gone_are_taken_over_when_its_lease_is_over(
    router: Router,
) -> None:
    router.use([], [outbound("o", "True")])
    arrival = Arrival(project=router.project.pk, inbound="logs", item={"n": 1})
    before = timezone.now() - timedelta(seconds=61)
    receive_items(arrivals=[arrival], now=before, lease_seconds=60)
    receive_items(arrivals=[arrival], now=timezone.now(), lease_seconds=60)
    router.until(lambda: router.states() == {"dispatched": 1, "received": 1}, "the first")


def test_an_item_that_ends_every_router_is_dead_at_last(router: Router) -> None:
    router.use([], [outbound("o", "True")])
    arrival = Arrival(project=router.project.pk, inbound="logs", item={"n": 1})
    receive_items(arrivals=[arrival], now=timezone.now(), lease_seconds=0)
    RoutedItem.objects.update(attempts=10)
    router.until(lambda: router.states() == {"dead": 1}, "the end")
    assert "11 attempts to process it" in RoutedItem.objects.get().detail


@pytest.mark.slow("1 s")
def test_a_router_tells_of_its_lines(router: Router) -> None:
    router.use(
        [inbound("in.jsonl", selector=["n >= 0"])],
        [outbound("o", "n > 0", max_lag=2), outbound("p", "n > 'a'")],
    )
    router.put({"n": 1}, {"n": -1}, "no item", {"n": 2}, {"n": 3})
    router.until(lambda: router.states().get("parked") == 1, "all of them")
    router.report_soon()
    router.daemon.step()
    router.daemon.reporter.timers.hasten("report")
    router.daemon.step()
    told = routing_status(router.project.pk, timezone.now())
    assert [each.rules_version for each in told.routers] == [1]
    logs = told.inbounds["logs"]
    assert (logs.taken, logs.filtered, logs.poison, logs.problem) == (5, 1, 1, "")
    o = told.outbounds["o"]
    assert (o.sent, o.full, o.depth) == (2, True, 2)
    assert o.selector_errors == 0
    router.use([inbound("in.jsonl")], [outbound("p", "n > 'a'")])
    router.put({"n": 4})
    router.until(lambda: router.states().get("rejected") == 2, "the last one")
