"""A process that stores and keeps requests, for tests that kill it: see ``test_kills_of_yard``.

python -m tests.requeststore.faults.worker IDS VERB...   (the verbs in their order)
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import django

from apps.requeststore.engine.errors import StoreUnavailable
from apps.requeststore.queues.base import RequestQueue

NUMBER = 60
TTL = 3600
# Days later every slice is part of a day.
FOLDED_SECONDS = 5 * 24 * 3600


def main(path: Path, verbs: list[str]) -> None:
    """Do what is asked, then say what there is."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "crawlyard.settings.base"
    django.setup()
    from apps.projects.models import Project
    from apps.requeststore.models import ClosedSlice, ShardReport
    from apps.requeststore.services.upkeep import Upkeep
    from apps.requeststore.services.yard import Yard
    from apps.requeststore.stores.base import Finish, GiveBack
    from tests.requeststore.factories import make_bizzes, pages
    from yardkit import failpoints

    failpoints.configure()
    if not Project.objects.filter(slug="crawls").exists():
        make_bizzes(news={"epochs": [{"splits": 4}], "ttl_seconds": TTL, "keep_seconds": 3600})
    yard = Yard(name=f"worker {os.getpid()}")
    yard.setup()
    (bound,) = yard.bizzes()
    kept = json.loads(path.read_text()) if path.exists() else {}
    at = 0
    for verb in verbs:
        if verb in ("submit", "store"):
            if not kept:
                kept = {"ids": yard.reserve(NUMBER), "now": yard.now()}
                path.write_text(json.dumps(kept))
            if verb == "store":
                # The queue is away: they are stored and nothing more.
                vars(yard._connections)["queue"] = _away
            yard.submit(bound, pages(NUMBER), by=yard.name, now=kept["now"], ids=kept["ids"])
            vars(yard._connections).pop("queue", None)
        elif verb == "keep":
            Upkeep(yard).round(kept["now"] + 31_000)
        elif verb == "late":
            # Whoever had taken some has had them too long.
            at = kept["now"] + 400_000
            Upkeep(yard).round(at)
        elif verb == "give back":
            # Taken by one that can do nothing with them now.
            now = kept["now"] + 20_000
            taken = yard.queue(bound).take(NUMBER, timeout=0.2)
            takes = yard.take(bound, taken, owner=yard.name, now=now)
            requests = [each.request for each in takes if each.request is not None]
            back = [(one, GiveBack(one.id, one.tries, "busy", now + 5000)) for one in requests]
            yard.give_back(bound, back, owner=yard.name, now=now)
            yard.queue(bound).settle(taken)
        elif verb == "process":
            # Two thirds of them; the others expire.
            while taken := yard.queue(bound).take(100, timeout=0.2):
                at = at or kept["now"] + 31_000
                takes = yard.take(bound, taken, owner=yard.name, now=at + 9000)
                requests = [each.request for each in takes if each.request is not None]
                ends = [(one, Finish(one.id, one.tries, 1)) for one in requests if one.id % 3]
                yard.finish(bound, ends, owner=yard.name, now=at + 10_000)
                yard.queue(bound).settle(taken)
        elif verb == "close":
            for later in (61, 1300, 3700, 7500):
                Upkeep(yard).round(kept["now"] + (TTL + later) * 1000)
        elif verb == "fold":
            Upkeep(yard).round(kept["now"] + FOLDED_SECONDS * 1000)
    books = Counter[str]()
    for live in ShardReport.objects.all():
        books.update(live.by_flag)
    for closed in ClosedSlice.objects.all():
        books.update(closed.by_flag)
    print(json.dumps({"books": books, "stored": len(yard.page(bound, limit=1000))}))
    yard.close()


def _away(_bound: object) -> RequestQueue:
    raise StoreUnavailable("the queue is away")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
