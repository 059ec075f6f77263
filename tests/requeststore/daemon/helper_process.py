"""A process with a plant's settings that answers a test's questions, one JSON line each."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

from tests.e2e.helper_protocol import answer_questions


def project(*, networks: list[str]) -> int:
    """A new project that has opened these networks."""
    from apps.projects.models import Project

    return Project.objects.create(slug="crawls", name="crawls", allowed_networks=networks).pk


def save(*, number: int, bizzes: dict[str, Any]) -> int:
    """Activate exactly these bizzes; the version."""
    from apps.projects.models import Project
    from tests.requeststore.factories import save_bizzes

    return save_bizzes(Project.objects.get(pk=number), **bizzes)


def _bound(number: int, biz: str) -> Any:
    from apps.requeststore.services.store import shared_request_store

    shared_request_store().wake()
    return shared_request_store().biz(number, biz)


def reserve(*, count: int) -> list[str]:
    """Ids for ``submit``."""
    from apps.requeststore.services.store import shared_request_store

    return [str(one) for one in shared_request_store().reserve(count)]


def submit(
    *, number: int, biz: str, requests: list[dict[str, Any]], ids: list[str] | None = None
) -> list[str]:
    """Their ids."""
    from apps.requeststore.engine.entity import Entity
    from apps.requeststore.services.store import shared_request_store

    made = shared_request_store().submit(
        _bound(number, biz),
        [Entity(**each) for each in requests],
        by="test",
        now=int(time.time() * 1000),
        ids=[int(one) for one in ids] if ids else None,
    )
    return [str(one) for one in made]


def flags(*, number: int, biz: str) -> dict[str, int]:
    """How many requests have each flag, from the store itself."""
    from apps.requeststore.services.store import shared_request_store

    bound = _bound(number, biz)
    total: Counter[str] = Counter()
    for place in bound.places:
        shared_request_store().ensure(bound, place)
        counts = shared_request_store().node(place.node).count(place.shard)
        total.update({str(flag): count for flag, count in counts.by_flag.items() if count})
    return dict(total)


def find(*, number: int, biz: str, ids: list[str]) -> list[dict[str, Any] | None]:
    """Each request as it lies there."""
    from apps.requeststore.services.store import shared_request_store

    answers: list[dict[str, Any] | None] = []
    for one in ids:
        found = shared_request_store().find(int(one), number, biz)
        request = found.request if found is not None else None
        answers.append(
            None
            if request is None
            else {
                "flag": request.flag,
                "tries": request.tries,
                "owner": request.owner,
                "result": json.loads(request.result or b"{}"),
                "steps": [[step.kind, step.text] for step in request.steps],
            }
        )
    return answers


def page_ids(*, number: int, biz: str, flag: int | None = None) -> list[str]:
    """The ids of all requests with a flag."""
    from apps.requeststore.services.store import shared_request_store

    bound = _bound(number, biz)
    ids: list[str] = []
    after = None
    while found := shared_request_store().page(bound, flag=flag, after=after, limit=1000):
        ids += [str(one.request.id) for one in found]
        after = (found[-1].request.ts, found[-1].request.id)
    return ids


def push(*, number: int, biz: str, entries: list[list[Any]]) -> None:
    """Entries (id, biz, ts) straight into the queue."""
    from apps.requeststore.services.store import shared_request_store
    from apps.requeststore.stores.base import QueueEntry

    queue = shared_request_store().queue(_bound(number, biz))
    queue.push([QueueEntry(int(one), name, ts) for one, name, ts in entries])


def ts(*, number: int, biz: str, one: str) -> int:
    """When it was stored."""
    from apps.requeststore.services.store import shared_request_store

    found = shared_request_store().find(int(one), number, biz)
    assert found is not None
    return found.request.ts


def push_junk(*, number: int, biz: str, body: str) -> None:
    """A message that is no entry, straight into the broker's queue."""
    from apps.requeststore.queues.factory import broker_queue_name
    from apps.runtime.services import shared_broker
    from yardkit.broker import Outgoing

    key = broker_queue_name(_bound(number, biz).queue_name)
    shared_broker().publish([Outgoing(body.encode(), key=key)]).result(10)


def items(*, number: int, biz: str) -> list[dict[str, Any]]:
    """Items of a biz with request, position and address."""
    from apps.datasets.engine.item_types import ItemQuery
    from apps.datasets.models import Dataset
    from apps.datasets.queries.items import open_reader

    dataset = Dataset.objects.filter(project_id=number, origin_name=biz).first()
    if dataset is None:
        return []
    found, after = [], ""
    with open_reader(dataset) as reader:
        while True:
            page = reader.page(ItemQuery(limit=1000, after=after))
            found += page.items
            after = page.next
            if not after:
                break
    return [
        {
            **item.data,
            "request_id": int(item.incarnation.removeprefix("r").partition(".")[0]),
            "position": item.seq - 1,
            "url": item.url,
        }
        for item in found
    ]


def messages(*, queue: str, count: int) -> list[dict[str, Any]]:
    """What lies in a queue of the broker."""
    from apps.runtime.services import shared_broker

    subscription = shared_broker().subscribe(queue)
    found = subscription.take(count, timeout=5)
    subscription.close()
    return [json.loads(one.body) for one in found]


def running(*, number: int, name: str) -> int:
    """The version of the bizzes that a fetcher has said to run."""
    from apps.configcenter.models import RunningVersion

    row = RunningVersion.objects.filter(
        configuration__project=number, configuration__kind="biz", following__daemon__name=name
    ).first()
    return row.number if row is not None else 0


def waiting(*, number: int, biz: str) -> list[int | None]:
    """How long the queue is, and how much is taken."""
    from apps.requeststore.services.store import shared_request_store

    stats = shared_request_store().queue(_bound(number, biz)).stats()
    return [stats.waiting, stats.taken]


def sweep(*, later_seconds: int = 0) -> None:
    """What the platform does every ten seconds, as it would be done so much later."""
    from apps.requeststore.services.store import shared_request_store
    from apps.requeststore.services.upkeep import upkeep_once

    upkeep_once(shared_request_store(), now=int((time.time() + later_seconds) * 1000))


def owners() -> list[str]:
    """Who has agents just now."""
    from apps.agents.models import Allocation

    return list(Allocation.objects.open().values_list("owner", flat=True))


def detail(*, name: str) -> dict[str, Any]:
    """What a fetcher's row says."""
    from apps.runtime.models import Daemon

    row = Daemon.objects.filter(kind="fetcher", name=name).first()
    return {} if row is None else {"state": row.state, **row.detail}


def dead_letters() -> list[str]:
    """The reasons of all dead letters."""
    from apps.runtime.services import shared_broker
    from yardkit.broker.base import DEAD_QUEUE, HEADER_REASON

    subscription = shared_broker().subscribe(DEAD_QUEUE)
    found = subscription.take(1000, timeout=2)
    subscription.requeue(found)
    subscription.close()
    return sorted(str(each.headers[HEADER_REASON]) for each in found)


def pages_kept(*, number: int, biz: str) -> int:
    """How many pages are in the index."""
    from apps.datasets.queries.kept_pages import biz_page_accounting

    return biz_page_accounting(number, biz).kept


def go_on_extracting() -> dict[str, Any]:
    """Continue a re-extraction whose worker was killed on this host."""
    from django.utils import timezone

    from apps.requeststore.models import Reextraction
    from apps.requeststore.services.reextractions import follow_reextraction, sweep_reextractions

    assert sweep_reextractions(now=timezone.now()) == 1
    row = follow_reextraction(Reextraction.objects.get(), lambda _row: None)
    return {name: getattr(row, name) for name in ("state", "done", "failed", "not_kept", "records")}


QUESTIONS = {
    name: each for name, each in vars().copy().items() if callable(each) and name[0] != "_"
}


if __name__ == "__main__":
    answer_questions(lambda name, arguments: QUESTIONS[name](**arguments))
