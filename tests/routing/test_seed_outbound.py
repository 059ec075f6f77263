"""Outbound to the seed service, with a real service, and at last a real router."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from apps.projects.models import Project
from apps.routing.engine import rules
from apps.routing.engine.items import Item
from apps.routing.engine.messages import Counters, message
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outbounds.base import (
    DELIVERED,
    MOST_BYTES,
    Outbound,
    Outcome,
    SendStatus,
    Sent,
    Settings,
)
from apps.routing.models import RoutedItem
from apps.routing.queries import reconcile_items
from apps.routing.services.configuration import RoutingKind
from apps.runtime.services import close_shared_broker
from apps.seeds.engine.seeds import DEFAULT_SEGMENT
from apps.seeds.models import Frontier, SegmentReport
from tests.access.factories import make_project
from tests.routing.daemon.routers import Router, inbound
from tests.seeds.daemon.conftest import Service
from yardkit.broker import Broker, connect
from yardkit.clock import ManualClock

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "seeds.SeedOutbound"
URL = "http://shop.example/7"


@pytest.fixture
def broker(sqlite_broker_url: str, settings: Any) -> Iterator[Broker]:
    """Broker connection of the service; its clients use that of the process."""
    settings.BROKER_URL = sqlite_broker_url
    made = connect(sqlite_broker_url, name="seeds")
    yield made
    close_shared_broker()
    made.close()


@pytest.fixture
def frontier() -> Frontier:
    return Frontier.objects.create(project=make_project(), name="shop")


class QuietService(Service):
    """Seed service without background writes, which an in-memory database would block."""

    def start(self) -> None:
        self.daemon = self._make()
        self.daemon.setup()
        self.daemon.step()
        self._end.clear()
        self._thread = threading.Thread(target=self._run, name="service")
        self._thread.start()


@pytest.fixture
def service(broker: Broker, tmp_path: Path, frontier: Frontier) -> Iterator[Service]:
    """A running seed service with the frontier ``frontier``."""
    # Periodic work does not become due again, because this clock stands still.
    made = QuietService(broker, f"rocksdb://{tmp_path}/seeds?sync=0", ManualClock())
    made.start()
    yield made
    made.stop()


def rule(init: dict[str, Any] | None = None, **said: Any) -> rules.Outbound:
    return rules.Outbound("pages", NAME, init={"frontier": "shop", **(init or {})}, **said)


def outbound(
    project: Project, init: dict[str, Any] | None = None, *, timeout: float = 20.0, **said: Any
) -> Outbound:
    made = rule(init, **said)
    assert registry.check(made) == []
    return registry.build(made, Settings(project=project.pk, timeout_seconds=timeout))


def sent(item: Item, made: rules.Outbound | None = None, uuid: str = "u-1") -> Sent:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    said = message(made or rule(), item, uuid=uuid, counters=Counters(1, 0, 0), submit_time=now)
    return Sent(uuid, said, 0, bool(item.get("rt")))


def send(frontier: Frontier, *items: Item, init: dict[str, Any] | None = None) -> list[Outcome]:
    batch = [sent(item, rule(init), f"u-{number}") for number, item in enumerate(items)]
    return outbound(frontier.project, init).send(batch)


def known(service: Service, frontier: Frontier, key: str, segment: int = DEFAULT_SEGMENT) -> Any:
    return service.store.lookup(frontier.pk, segment, key)


def test_an_item_becomes_a_seed_once(service: Service, frontier: Frontier) -> None:
    assert send(frontier, {"url": URL}) == [DELIVERED]
    (again,) = send(frontier, {"url": URL})
    assert (again.verdict, again.code) == (SendStatus.DELIVERED, "duplicate")
    assert again.reason.startswith("since 20")
    assert again.reason.endswith(", init")
    (segment,) = service.store.segments(frontier.pk)
    assert (segment.books.added, segment.books.duplicates) == (1, 1)


@pytest.mark.parametrize("wrapped", [False, True])
def test_keys_of_the_message_say_what_the_seed_is(
    service: Service, frontier: Frontier, wrapped: bool
) -> None:
    init = {"data": "page", "ext": ["task_uuid", "company", "absent"]}
    item = {"page": "p-1", "company": "宁乡县老粮仓镇楚江冻库", "other": 1}
    made = rule(init, task_params_wrapped=wrapped)
    target = outbound(frontier.project, init, task_params_wrapped=wrapped)
    assert target.send([sent(item, made, "u-9")]) == [DELIVERED]
    seed = known(service, frontier, "p-1")
    assert seed.ext == {"task_uuid": "u-9", "company": item["company"]}


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    "value", [1_890_000_000_000, "2029-11-22T05:20:00+08:00", "2029-11-21T21:20:00Z"]
)
def test_a_seed_waits_for_its_time(service: Service, frontier: Frontier, value: Any) -> None:
    item = {"url": URL, "at": value, "rt": True}
    assert send(frontier, item, init={"active_at": "at"}) == [DELIVERED]
    (segment,) = service.store.segments(frontier.pk)
    at = datetime(2029, 11, 21, 21, 20, tzinfo=UTC)
    due = known(service, frontier, URL, segment.segment).due
    assert due == (value if isinstance(value, int) else at.timestamp() * 1000)
    assert send(frontier, {"url": "b", "at": None}, {"url": "c"}, init={"active_at": "at"}) == [
        DELIVERED,
        DELIVERED,
    ]
    assert known(service, frontier, "b").due == known(service, frontier, "c").due == 1


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("urgent", "item", "due"),
    [(None, {}, 1), (None, {"rt": True}, 0), (True, {}, 0), (False, {"rt": True}, 1)],
    ids=["usual", "real time", "all", "none"],
)
def test_urgent_seeds_are_handed_out_first(
    service: Service, frontier: Frontier, urgent: bool | None, item: Item, due: int
) -> None:
    init = {} if urgent is None else {"urgent": urgent}
    assert send(frontier, {"url": URL, **item}, init=init) == [DELIVERED]
    assert known(service, frontier, URL).due == due


def test_each_item_of_a_batch_has_its_own_answer(service: Service, frontier: Frontier) -> None:
    batch: list[Item] = [
        {"url": "a"},
        {"url": ""},
        {"url": "x" * 9000},
        {"url": "a\x07b"},
        {"other": 1},
        {"url": 5},
        {"url": "b", "at": "tomorrow"},
        {"url": "b", "at": "2029-11-21T21:20:00"},
        {"url": "b", "at": 5},
        {"url": "b", "at": True},
        {"url": "a\ud800"},
        {"url": "x", "text": "x" * MOST_BYTES},
        {"url": "a"},
        {"url": "c"},
    ]
    outcomes = send(frontier, *batch, init={"active_at": "at"})
    assert [one.code for one in outcomes] == [
        "",
        "empty_data",
        "key_too_large",
        "binary_data",
        "no_data",
        "no_data",
        "bad_time",
        "bad_time",
        "bad_time",
        "bad_time",
        "no_json",
        "too_large",
        "duplicate",
        "",
    ]
    refused = [one for one in outcomes if one.code not in ("", "duplicate")]
    assert {one.verdict for one in refused} == {SendStatus.REFUSED}
    assert outcomes[1].reason == "empty_data: the data is empty"
    (segment,) = service.store.segments(frontier.pk)
    assert segment.books.added == 2


def test_a_frontier_of_another_project_is_unknown(service: Service, frontier: Frontier) -> None:
    (outcome,) = outbound(make_project()).send([sent({"url": URL})])
    assert (outcome.verdict, outcome.code) == (SendStatus.REFUSED, "unknown_frontier")
    assert service.store.segments(frontier.pk) == []


@pytest.mark.slow("1 s")
def test_where_nobody_serves_no_item_is_lost(service: Service, frontier: Frontier) -> None:
    service.stop()
    target = outbound(frontier.project, timeout=0.3)
    (outcome,) = target.send([sent({"url": URL})])
    assert (outcome.verdict, outcome.code) == (SendStatus.AWAY, "timeout")
    (unsaid,) = registry.build(rule(), Settings()).send([sent({"url": URL})])
    assert (unsaid.verdict, unsaid.code) == (SendStatus.AWAY, "no_project")
    service.start()
    (after,) = outbound(frontier.project).send([sent({"url": URL})])
    assert after.verdict is SendStatus.DELIVERED
    (segment,) = service.store.segments(frontier.pk)
    assert segment.books.added == 1


def test_while_a_frontier_is_moved_its_items_wait(service: Service, frontier: Frontier) -> None:
    Frontier.objects.update(is_frozen=True)
    (outcome,) = send(frontier, {"url": URL})
    assert (outcome.verdict, outcome.code) == (SendStatus.AWAY, "frozen")
    Frontier.objects.update(is_frozen=False)
    assert send(frontier, {"url": URL}) == [DELIVERED]


def test_a_service_with_another_secret_loses_no_item(
    service: Service, frontier: Frontier, settings: Any
) -> None:
    settings.SECRET_KEY = "another " * 10
    (outcome,) = send(frontier, {"url": URL})
    assert (outcome.verdict, outcome.code) == (SendStatus.AWAY, "wrong_token")


def test_depth_is_what_is_pending_and_what_came_since(service: Service, frontier: Frontier) -> None:
    def report(seconds: int, **pending: int) -> None:
        SegmentReport.objects.all().delete()
        at = timezone.now() + timedelta(seconds=seconds)
        for segment, count in pending.items():
            SegmentReport.objects.create(
                frontier=frontier, segment=int(segment[1:]), pending=count, leased=3, reported_at=at
            )

    target = outbound(frontier.project)
    assert target.depth() == 0
    report(-4, s0=5, s7=2)
    assert target.depth() == 7
    target.send([sent({"url": "a"}), sent({"url": "a"}), sent({"url": "b"})])
    assert target.depth() == 9
    report(1, s0=4)
    assert target.depth() == 4
    target.close()
    assert target.depth() is None
    assert target.send([sent({"url": URL})])[0].code == "closed"


# --- a router -------------------------------------------------------------------------------------


@pytest.fixture
def router(broker: Broker, frontier: Frontier, tmp_path: Path) -> Iterator[Router]:
    """A router of the frontier's project."""
    made = Router(frontier.project, tmp_path)
    yield made
    made.close()


def use(router: Router, **more: Any) -> None:
    values = {"name": "pages", "class": NAME, "selector": ["url"]}
    router.use([inbound("in.jsonl")], [values | {"init": {"frontier": "shop"}} | more])


def test_a_router_tells_of_each_item_what_became_of_it(
    service: Service, frontier: Frontier, router: Router
) -> None:
    use(router)
    router.put({"url": "a"}, {"url": "b"}, {"url": "b", "n": 2}, {"url": "c\x07"})
    router.until(lambda: router.states() == {"succeeded": 3, "failed": 1}, "the ends")
    assert reconcile_items(router.project.pk).holds
    details = [
        step.detail
        for item in RoutedItem.objects.all()
        for step in item.story
        if step.kind == "dispatched"
    ]
    assert sorted(one.partition(" ")[0] for one in details) == ["", "", "duplicate"]
    (failed,) = RoutedItem.objects.filter(state="failed")
    assert any("binary_data" in step.detail for step in failed.story)
    (segment,) = service.store.segments(frontier.pk)
    assert (segment.books.added, segment.books.pending) == (2, 2)


@pytest.mark.slow("3 s")
def test_while_the_service_is_away_a_router_parks_and_then_delivers(
    service: Service, frontier: Frontier, router: Router
) -> None:
    service.stop()
    use(router)
    router.put(*({"url": f"u-{number}"} for number in range(5)))
    router.until(lambda: router.states() == {"parked": 5}, "all are parked")
    service.start()
    router.until(lambda: router.states() == {"succeeded": 5}, "all are delivered")
    (segment,) = service.store.segments(frontier.pk)
    assert segment.books.added == 5
    assert reconcile_items(router.project.pk).holds


@pytest.mark.slow("1 s")
def test_a_full_frontier_holds_items_up(
    service: Service, frontier: Frontier, router: Router
) -> None:
    use(router, max_lag=3)
    router.put(*({"url": f"u-{number}"} for number in range(10)))
    router.until(lambda: router.states().get("succeeded", 0) >= 3, "some are delivered")
    router.run_dry()
    assert router.states() == {"succeeded": 3, "parked": 7}


# --- rules ----------------------------------------------------------------------------------------


def problems(init: dict[str, Any]) -> list[tuple[str, str]]:
    data = {
        "version": 1,
        "needs": 1,
        "project": "p",
        "outbound": [{"name": "o", "selector": ["a"], "class": NAME, "init": init}],
    }
    return [(each.code, each.text) for each in RoutingKind().check(data)]


def test_rules_may_name_it() -> None:
    init = {"frontier": "shop", "data": "u", "active_at": "t", "ext": ["a"], "urgent": True}
    assert problems(init) == []
    assert registry.find(NAME).default_expects_result is False


@pytest.mark.parametrize(
    ("init", "code", "text"),
    [
        ({}, "missing_parameter", "init.frontier is needed"),
        ({"frontier": ""}, "wrong_parameter", "init.frontier: "),
        ({"frontier": "a", "ext": "b"}, "wrong_parameter", "init.ext must be a list"),
        ({"frontier": "a", "ext": [1]}, "wrong_parameter", "must be texts"),
        # An author could otherwise redirect answers to other clients.
        ({"frontier": "a", "ext": ["_grab"]}, "wrong_parameter", "reserved for the seed service"),
        ({"frontier": "a", "urgent": 1}, "wrong_parameter", "init.urgent must be true or false"),
        ({"frontier": "a", "token": "x"}, "unknown_parameter", "init.token"),
    ],
    ids=["none", "empty", "text", "number", "grab", "urgent", "unknown"],
)
def test_parameters_that_it_has_not_are_refused(init: dict[str, Any], code: str, text: str) -> None:
    (found,) = problems(init)
    assert found[0] == code
    assert text in found[1]
