"""One installation of the bench of requests, in a process with settings of its own.

``python -m tools.benches.requests_clerk`` reads one ``Task`` as a line of JSON, makes tables, a
project and its bizzes, sends requests through its ``RequestStore``, answers with one line of
figures and takes away what it has stored. Everything goes the way it goes in service: ids with a
lease, entities checked, shards, stories, rates.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import django
import msgspec

if TYPE_CHECKING:
    from apps.requeststore.engine.entity import Entity
    from apps.requeststore.services.store import BoundBiz, RequestStore

T = TypeVar("T")

OWNER = "bench:1"
BATCHED, NAIVE = "batched", "naive"


class Task(msgspec.Struct):
    """How many requests of how many bytes in what batches, and how many one by one."""

    requests: int
    naive: int
    batch: int
    bytes: int


class Side:
    """Seconds of each step, by the wall clock, and of this process's processor time."""

    def __init__(self) -> None:
        self.seconds = dict[str, float]()
        self.cpu_seconds = 0.0
        self.done = 0

    def time(self, step: str, work: Callable[[], T]) -> T:
        """What ``work`` says."""
        began, cpu = time.perf_counter(), time.process_time()
        answer = work()
        self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - began
        self.cpu_seconds += time.process_time() - cpu
        return answer

    def figures(self) -> dict[str, Any]:
        """For all steps together, and for each."""
        return {
            "requests": self.done,
            "requests_per_second": round(self.done / sum(self.seconds.values()), 1),
            "cpu_us_per_request": round(1e6 * self.cpu_seconds / self.done, 1),
            **{
                f"{step}_per_second": round(self.done / took) for step, took in self.seconds.items()
            },
        }


def main() -> None:
    """Do what the line says."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "crawlyard.settings.base")
    django.setup()
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)
    sys.stdout.write(json.dumps(measure(task)) + "\n")
    sys.stdout.flush()


def measure(task: Task) -> dict[str, Any]:
    """Half of the naive loop before the batches and half after them, all on the same node."""
    from apps.requeststore.services.store import RequestStore

    project = _prepare()
    yard = RequestStore(name="bench")
    yard.setup()
    naive, batched = Side(), Side()
    try:
        one_by_one, many = yard.biz(project, NAIVE), yard.biz(project, BATCHED)
        entities = _entities(task.bytes, task.batch)
        half = task.naive // 2
        _work(yard, one_by_one, naive, entities[:1], half)
        _work(yard, many, batched, entities, task.requests)
        _work(yard, one_by_one, naive, entities[:1], task.naive - half)
        result = {
            **batched.figures(),
            "naive": naive.figures() if task.naive else None,
            "lost": _lost(yard, many, task.requests) + _lost(yard, one_by_one, task.naive),
            "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "bytes_per_request": _bytes_per_request(yard, many),
            "node": _version(yard),
        }
    finally:
        _take_away(yard)
        yard.close()
    return result


def _prepare() -> int:
    """Tables, a project, two bizzes of one collection each; the id of the project."""
    from django.core.management import call_command
    from django.utils import timezone

    from apps.configcenter.services import activate, save_version
    from apps.projects.models import Project
    from apps.requeststore.services.kind import KIND

    call_command("migrate", verbosity=0, interactive=False)
    project = Project.objects.create(slug="bench", name="Bench")
    now = timezone.now()
    data: dict[str, Any] = {"bizzes": {name: {} for name in (BATCHED, NAIVE)}}
    saved = save_version(kind=KIND, project_id=project.pk, data=data, actor=None, now=now)
    activate(version=saved.version, actor=None, now=now)
    return project.pk


def _entities(size: int, count: int) -> list[Entity]:
    """Requests for pages, each of ``size`` bytes as it is stored."""
    from apps.requeststore.engine.entity import Entity, encode_entity

    made: list[Entity] = []
    for number in range(count):
        url = f"https://shop.example/{number % 977}/item-{number}.html"
        headers = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)", "Accept-Language": "zh-CN"}
        short = Entity(url=url, headers=headers, meta={"note": ""})
        fill = "x" * max(0, size - len(encode_entity(short)) - 1)
        made.append(msgspec.structs.replace(short, meta={"note": fill}))
    return made


def _work(
    yard: RequestStore, bound: BoundBiz, side: Side, entities: Sequence[Entity], count: int
) -> None:
    """Store and queue ``count`` requests, then take and finish them, in batches of ``entities``."""
    for start in range(0, count, len(entities)):
        some = entities[: count - start]
        side.time("submit", lambda: yard.submit(bound, some, by=OWNER, now=yard.now()))  # noqa: B023 - called at once
    queue = yard.queue(bound)
    left = count
    while left > 0:
        taken = side.time("take", lambda: queue.take(len(entities), timeout=5.0))
        if not taken:
            return
        takes = side.time("take", lambda: yard.take(bound, taken, owner=OWNER, now=yard.now()))  # noqa: B023 - called at once
        done = [(each.request, _end(each.request)) for each in takes if each.request is not None]
        side.time("finish", lambda: yard.finish(bound, done, owner=OWNER, now=yard.now()))  # noqa: B023 - called at once
        side.time("finish", lambda: queue.settle(taken))  # noqa: B023 - called at once
        left -= len(taken)
    side.done += count


def _end(request: Any) -> Any:
    from apps.requeststore.stores.base import Finish

    return Finish(request.id, request.tries, 1, b'{"status":200,"records":3}')


def _lost(yard: RequestStore, bound: BoundBiz, wanted: int) -> int:
    """How many of them have not ended with the flag that they were given."""
    return wanted - sum(
        yard.node(place.node).count(place.shard).of(1) for place in bound.spread.places
    )


def _bytes_per_request(yard: RequestStore, bound: BoundBiz) -> int:
    sizes = [yard.node(place.node).size(place.shard) for place in bound.spread.places]
    return round(sum(one.bytes for one in sizes) / max(1, sum(one.requests for one in sizes)))


def _version(yard: RequestStore) -> str:
    health = yard.node("default").health()
    return f"{health.kind} {health.version}"


def _take_away(yard: RequestStore) -> None:
    for bound in yard.bizzes():
        yard.queue(bound).clear()
        for place in bound.spread.places:
            yard.node(place.node).drop(place.shard)


if __name__ == "__main__":
    main()
