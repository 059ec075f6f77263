"""Outbound to the request store, with a real store and queue, and at last a real router."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from apps.projects.models import Project
from apps.requeststore.engine.entity import Entity, decode_entity
from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.services.store import (
    FoundRequest,
    close_shared_request_store,
    shared_request_store,
)
from apps.requeststore.services.submission import Submission
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
from apps.routing.queries import reconcile_items
from tests.access.factories import make_project
from tests.requeststore.factories import make_bizzes, save_bizzes
from tests.routing.daemon.routers import Router, inbound

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "requests.RequestStoreOutbound"
URL = "http://shop.example/7"


@pytest.fixture
def project(request_nodes: dict[str, str]) -> Project:
    """A project with a biz ``news`` in four splits."""
    return make_bizzes(news={"epochs": [{"splits": 4}], "rules": {"page": PAGE}})


PAGE = {"fields": {"title": {"css": "title::text"}}}


def rule(init: dict[str, Any] | None = None, **said: Any) -> rules.Outbound:
    return rules.Outbound("pages", NAME, init={"biz": "news", **(init or {})}, **said)


def outbound(project: Project, init: dict[str, Any] | None = None, **said: Any) -> Outbound:
    made = rule(init, **said)
    assert registry.check(made) == []
    return registry.build(made, Settings(project=project.pk))


def sent(
    item: Item, made: rules.Outbound | None = None, uuid: str = "u-1", retries: int = 0
) -> Sent:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    counters = Counters(1, retries, retries)
    said = message(made or rule(), item, uuid=uuid, counters=counters, submit_time=now)
    return Sent(uuid, said, 0, bool(item.get("rt")))


def send(project: Project, *items: Item, init: dict[str, Any] | None = None) -> list[Outcome]:
    batch = [sent(item, rule(init), f"u-{number}") for number, item in enumerate(items)]
    return outbound(project, init).send(batch)


def stored(project: Project) -> list[FoundRequest]:
    """Return all stored requests, oldest first."""
    store = shared_request_store()
    page = store.page(store.biz(project.pk, "news"), limit=1000)
    found = [store.find(each.request.id) for each in reversed(page)]
    return [each for each in found if each is not None]


def entities(project: Project) -> list[Entity]:
    return [decode_entity(each.request.data) for each in stored(project)]


@pytest.mark.covers("S4.13")
def test_an_item_is_stored_and_queued(project: Project) -> None:
    assert send(project, {"url": URL}) == [DELIVERED]
    (found,) = stored(project)
    assert decode_entity(found.request.data) == Entity(url=URL, meta={"task_uuid": "u-0"})
    assert [(step.kind, step.by) for step in found.request.steps] == [
        ("stored", "outbound pages"),
        ("queued", "outbound pages"),
    ]
    queue = shared_request_store().queue(found.bound)
    (entry,) = queue.take(5, timeout=1.0)
    assert entry.entry.id == found.request.id
    queue.settle([entry])


@pytest.mark.parametrize("wrapped", [False, True])
def test_keys_of_the_message_say_what_the_request_is(project: Project, wrapped: bool) -> None:
    init = {
        "data": "page",
        "rule": "other",
        "rule_key": "kind",
        "method": "POST",
        "headers": {"Accept-Language": "zh"},
        "params": {"q": "company", "n": "number", "x": "absent"},
        "body": "form",
        "meta": ["task_uuid", "company"],
    }
    item = {"page": URL, "kind": "page", "company": "宁乡县", "number": 5, "form": "a=1&b=楚"}
    made = rule(init, task_params_wrapped=wrapped)
    target = outbound(project, init, task_params_wrapped=wrapped)
    assert target.send([sent(item, made, "u-9")]) == [DELIVERED]
    assert entities(project) == [
        Entity(
            url=URL,
            rule="page",
            method="POST",
            headers={"Accept-Language": "zh"},
            params={"q": "宁乡县", "n": "5"},
            body="a=1&b=楚".encode(),
            meta={"task_uuid": "u-9", "company": "宁乡县"},
        )
    ]


def test_a_message_that_is_offered_again_is_the_same_request(project: Project) -> None:
    target = outbound(project)
    first, second = sent({"url": URL}), sent({"url": URL}, uuid="u-2")
    assert target.send([first, first, second]) == [DELIVERED] * 3
    assert target.send([second, first]) == [DELIVERED] * 2
    assert len(stored(project)) == 2
    # A retry of the item is a new attempt, with a new request.
    assert target.send([sent({"url": URL}, retries=1)]) == [DELIVERED]
    assert len(stored(project)) == 3


def test_each_item_of_a_batch_has_its_own_answer(project: Project) -> None:
    batch: list[Item] = [
        {"url": "http://a/"},
        {"url": ""},
        {"url": "ftp://a/"},
        {"other": 1},
        {"url": 5},
        {"url": "http://a/", "kind": "nobody"},
        {"url": "http://a/", "q": {}},
        {"url": "http://a/\ud800"},
        {"url": "http://a/", "text": "x" * MOST_BYTES},
        {"url": "http://b/", "rt": True},
    ]
    init = {"rule_key": "kind", "params": {"q": "q"}}
    outcomes = send(project, *batch, init=init)
    assert [one.code for one in outcomes] == [
        "",
        "bad_request",
        "bad_request",
        "no_address",
        "no_address",
        "bad_request",
        "bad_params",
        "no_json",
        "too_large",
        "",
    ]
    assert {one.verdict for one in outcomes if one.code} == {SendStatus.REFUSED}
    assert "no rule 'nobody'" in outcomes[5].reason
    found = {decode_entity(each.request.data).url: each.request for each in stored(project)}
    # Real-time requests go first, in queues with priorities.
    assert {url: each.priority for url, each in found.items()} == {"http://a/": 0, "http://b/": 9}


def test_a_biz_of_another_project_is_unknown(project: Project) -> None:
    (outcome,) = outbound(make_project()).send([sent({"url": URL})])
    assert (outcome.verdict, outcome.code) == (SendStatus.REFUSED, "unknown_biz")
    (unsaid,) = registry.build(rule(), Settings()).send([sent({"url": URL})])
    assert (unsaid.verdict, unsaid.code) == (SendStatus.AWAY, "no_project")


@pytest.mark.covers("S4.10")
def test_a_biz_that_is_switched_off_holds_items_up(project: Project) -> None:
    save_bizzes(project, news={"enabled": False})
    (outcome,) = send(project, {"url": URL})
    assert (outcome.verdict, outcome.code) == (SendStatus.AWAY, "biz_disabled")
    save_bizzes(project, news={})
    shared_request_store().wake()
    assert send(project, {"url": URL}) == [DELIVERED]


@pytest.mark.covers("S4.24")
def test_a_biz_that_is_full_holds_items_up_until_there_is_room(project: Project) -> None:
    save_bizzes(project, news={"max_waiting": 2})
    shared_request_store().wake()
    assert send(project, {"url": URL}, {"url": f"{URL}1"}) == [DELIVERED] * 2
    (outcome,) = send(project, {"url": f"{URL}2"})
    assert (outcome.verdict, outcome.code) == (SendStatus.AWAY, "biz_full")
    store = shared_request_store()
    store.queue(store.biz(project.pk, "news")).clear()
    assert send(project, {"url": f"{URL}2"}) == [DELIVERED]
    assert len(stored(project)) == 3


@pytest.mark.covers("S4.23")
def test_a_store_that_answers_in_the_middle_only_stores_each_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = outbound(project)
    batch = [sent({"url": f"http://a/{number}"}, uuid=f"u-{number}") for number in range(8)]
    real = Submission._insert
    calls = iter(range(100))

    def insert(self: Submission, *given: Any) -> Any:
        if next(calls) == 2:
            raise RequestStoreUnavailable("the node does not answer")
        return real(self, *given)

    with monkeypatch.context() as broken:
        broken.setattr(Submission, "_insert", insert)
        outcomes = target.send(batch)
    assert {(one.verdict, one.code) for one in outcomes} == {
        (SendStatus.AWAY, "submit_interrupted")
    }
    assert len(stored(project)) == 4
    assert target.send(batch) == [DELIVERED] * 8
    assert len(stored(project)) == 8


def test_depth_is_what_waits(project: Project) -> None:
    target = outbound(project)
    assert target.depth() == 0
    assert target.send([sent({"url": URL})]) == [DELIVERED]
    assert target.depth() == 1
    assert outbound(make_project()).depth() is None
    target.close()
    assert target.depth() is None
    assert target.send([sent({"url": URL})])[0].code == "closed"


def test_parameters_are_checked() -> None:
    init = {"biz": "", "headers": {"a": 1}, "params": {"a": 1}, "meta": [1], "frontier": "x"}
    problems = registry.check(rules.Outbound("pages", NAME, init=init))
    assert sorted(problem.place.rpartition(".")[2] for problem in problems) == [
        "biz",
        "frontier",
        "headers",
        "meta",
        "params",
    ]


@pytest.fixture
def router(project: Project, tmp_path: Path) -> Iterator[Router]:
    """A router of the biz's project."""
    made = Router(project, tmp_path)
    yield made
    made.close()
    close_shared_request_store()


def test_a_router_stores_what_it_is_given(project: Project, router: Router) -> None:
    values = {"name": "pages", "class": NAME, "selector": ["url"], "init": {"biz": "news"}}
    router.use([inbound("in.jsonl")], [values])
    router.put(*({"url": f"http://a/{number}"} for number in range(20)), {"url": "ftp://x/"})
    router.until(lambda: router.states() == {"succeeded": 20, "failed": 1}, "the ends")
    assert reconcile_items(project.pk).holds
    assert {each.url for each in entities(project)} == {f"http://a/{n}" for n in range(20)}
