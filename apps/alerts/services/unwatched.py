"""Who watches the monitor: workers, while no monitor lives."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from apps.alerts.engine.events import find_source
from apps.alerts.engine.rules import scoped_rules
from apps.alerts.queries.rules import active_books
from apps.alerts.services.evaluating import Rules, finding_of_happening
from apps.alerts.services.incidents import open_or_count
from apps.runtime.services import steady_for

SOURCE: Final = "alerts.unwatched"
# After an outage of the database every monitor seems dead, and so it does to a worker that is the
# first to be back.
STEADY: Final = timedelta(seconds=60)
STEADY_GAP: Final = timedelta(seconds=60)


def open_if_unwatched(*, now: datetime) -> int:
    """Open the incident that no monitor lives, by the rules that hold; how many were opened.

    ``now`` is the database's. Call it every few seconds, from anywhere: one incident comes of it,
    and the monitor that lives again ends it.
    """
    if steady_for(purpose=SOURCE, gap=STEADY_GAP, now=now) < STEADY:
        return 0
    source = find_source(SOURCE)
    found = list(source.now(now)) if source is not None and hasattr(source, "now") else []
    if not found:
        return 0
    books, opened = active_books(), 0
    for scoped, watched in Rules(scoped_rules(books.platform, books.projects)).of_sources():
        if watched is not source:
            continue
        for each in found:
            if (now - each.at).total_seconds() < scoped.rule.when.for_seconds:
                continue
            if scoped.holds_for(each.project) and scoped.rule.matches_facts(each.facts):
                finding = finding_of_happening(each)
                open_or_count(scoped=scoped, finding=finding, now=now, lasting=True)
                opened += 1
    return opened
