"""A process that stores and keeps requests, for tests that break it: see ``test_store_kills``.

python -m tests.requeststore.faults.worker IDS

It says ``ready``, then does a line of verbs at a time, in their order, and answers each line with
what there is then.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django

from apps.requeststore.engine.errors import RequestStoreUnavailable
from apps.requeststore.queues.base import RequestQueue, TakenEntry
from apps.requeststore.stores.base import Finish, GiveBack, StoredRequest
from yardkit import failpoints

if TYPE_CHECKING:
    from apps.requeststore.models import Rebalance
    from apps.requeststore.services.store import BoundBiz, RequestStore

NUMBER = 60
# So many come after the books of their time were closed.
LATE = 6
TTL = 3600
BIZ: dict[str, Any] = {"ttl_seconds": TTL, "keep_seconds": 3600}
FOUR = {"since": 0, "splits": 4}
# Days later every slice is part of a day.
FOLDED_SECONDS = 5 * 24 * 3600


class Worker:
    """Its verbs are its methods; what several processes must know is in a file."""

    def __init__(self, yard: RequestStore, path: Path) -> None:
        self.yard = yard
        self.path = path
        self.at = 0

    @property
    def bound(self) -> BoundBiz:
        (found,) = self.yard.bizzes()
        return found

    @property
    def queue(self) -> RequestQueue:
        return self.yard.queue(self.bound)

    @property
    def kept(self) -> dict[str, Any]:
        """The ids of all, and when the first ones were submitted."""
        if not self.path.exists():
            late = self.yard.reserve(LATE)
            ids = {"ids": self.yard.reserve(NUMBER), "late": late, "came_late": False}
            self.path.write_text(json.dumps(ids | {"now": self.yard.now()}))
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found

    def submit(self) -> None:
        self._submit(self.kept["ids"])

    def store(self) -> None:
        """The queue is away: they are stored and nothing more."""
        with self._queue_away():
            self.submit()

    def straggle(self) -> None:
        """Some more, whose producer has stood still since the first ones."""
        self.path.write_text(json.dumps(self.kept | {"came_late": True}))
        self._submit(self.kept["late"])

    def _submit(self, ids: list[int]) -> None:
        from tests.requeststore.factories import pages

        entities, now = pages(len(ids)), self.kept["now"]
        self.yard.submit(self.bound, entities, by=self.yard.name, now=now, ids=ids)

    @contextmanager
    def _queue_away(self) -> Iterator[None]:
        connections = vars(self.yard._connections)
        connections["queue"] = _away
        try:
            yield
        finally:
            del connections["queue"]

    def keep(self) -> None:
        """Soon after they came."""
        self._round(31)

    def late(self) -> None:
        """Whoever had taken some has had them too long."""
        self.at = self.kept["now"] + 400_000
        self._round(400)

    def expire(self) -> None:
        """Until the books of their time are closed."""
        for later in (61, 1300):
            self._round(TTL + later)

    def count(self) -> None:
        self._round(TTL + 1400)

    def close(self) -> None:
        """Until they are deleted."""
        for later in (61, 1300, 3700, 7500):
            self._round(TTL + later)

    def fold(self) -> None:
        self._round(FOLDED_SECONDS)

    def _round(self, seconds: int) -> None:
        from apps.requeststore.services.upkeep import Upkeep

        Upkeep(self.yard).round(self.kept["now"] + seconds * 1000)

    def hold(self) -> None:
        """Take all and do nothing with them."""
        self._take(self.queue.take(NUMBER, timeout=0.2), self.kept["now"] + 20_000)

    def give_back(self) -> None:
        """Taken by one that can do nothing with them now."""
        now = self.kept["now"] + 20_000
        taken = self.queue.take(NUMBER, timeout=0.2)
        requests = self._take(taken, now)
        back = [(one, GiveBack(one.id, one.tries, "busy", now + 5000)) for one in requests]
        self.yard.give_back(self.bound, back, owner=self.yard.name, now=now)
        self.queue.settle(taken)

    def process(self) -> None:
        """Two thirds of them; the others expire."""
        while taken := self.queue.take(100, timeout=0.2):
            at = self.at or self.kept["now"] + 31_000
            requests = self._take(taken, at + 9000)
            ends = [(one, Finish(one.id, one.tries, 1)) for one in requests if one.id % 3]
            self.yard.finish(self.bound, ends, owner=self.yard.name, now=at + 10_000)
            self.queue.settle(taken)

    def _take(self, taken: list[TakenEntry], now: int) -> list[StoredRequest]:
        takes = self.yard.take(self.bound, taken, owner=self.yard.name, now=now)
        return [each.request for each in takes if each.request is not None]

    def spread(self) -> None:
        """Begin to move them into as many shards again."""
        from apps.requeststore.services.rebalances import start_rebalance
        from tests.requeststore.factories import save_bizzes

        project = self._project()
        more = {"since": self.kept["now"] + 1, "splits": 8}
        save_bizzes(project, news={**BIZ, "epochs": [FOUR, more]})
        self.yard.wake()
        self.yard.poll()
        row = start_rebalance(project_id=project.pk, biz="news", actor_label="test")
        self._move(row)

    def take_over(self) -> None:
        """Whoever moved them has been silent for too long."""
        from apps.requeststore.models import Rebalance

        self.yard.wake()
        self.yard.poll()
        row = Rebalance.objects.get()
        row.stepped_at -= timedelta(seconds=31)
        row.save(update_fields=["stepped_at"])
        self._move(row)

    def _move(self, row: Rebalance) -> None:
        from apps.requeststore.services.rebalances import work_on_rebalance

        while work_on_rebalance(row.pk, request_store=self.yard) == "running":
            pass

    def _project(self) -> Any:
        from apps.projects.models import Project

        return Project.objects.get(slug="crawls")

    def found(self) -> dict[str, Any]:
        """The books by flag, and how many are still stored."""
        from apps.requeststore.models import ClosedSlice, ShardReport

        books = Counter[str]()
        for live in ShardReport.objects.all():
            books.update(live.by_flag)
        for closed in ClosedSlice.objects.all():
            books.update(closed.by_flag)
        return {"books": books, "stored": len(self.yard.page(self.bound, limit=1000))}


def _away(_bound: object) -> RequestQueue:
    raise RequestStoreUnavailable("the queue is away")


def main(path: Path) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "crawlyard.settings.base"
    django.setup()
    from apps.projects.models import Project
    from apps.requeststore.services.store import RequestStore
    from tests.requeststore.factories import make_bizzes

    failpoints.configure()
    if not Project.objects.filter(slug="crawls").exists():
        make_bizzes(news={**BIZ, "epochs": [FOUR]})
    yard = RequestStore(name=f"worker {os.getpid()}")
    yard.setup()
    worker = Worker(yard, path)
    print("ready", flush=True)
    for line in sys.stdin:
        raised = []
        for verb in line.split():
            try:
                getattr(worker, verb)()
            except failpoints.FailpointError as error:
                raised.append(str(error))
        print(json.dumps({**worker.found(), "raised": raised}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
