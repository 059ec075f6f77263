"""Detects, from the workers, that no monitor is running."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from apps.alerts.engine.events import find_source
from apps.alerts.engine.rules import scoped_rules
from apps.alerts.queries.rules import active_rulebooks
from apps.alerts.services.evaluation import Rules, event_detection
from apps.alerts.services.incidents import open_or_count
from apps.runtime.services import steady_for

SOURCE: Final = "alerts.unwatched"
# After a database outage all heartbeats are old, also for the first worker that is back.
STEADY: Final = timedelta(seconds=60)
STEADY_GAP: Final = timedelta(seconds=60)


def open_if_no_monitor(*, now: datetime) -> int:
    """Open the incident "no monitor is running" where rules ask for it; return how many opened.

    ``now`` is the database's time. Safe to call every few seconds from any process: only one
    incident opens, and the next running monitor ends it.
    """
    if steady_for(purpose=SOURCE, gap=STEADY_GAP, now=now) < STEADY:
        return 0
    source = find_source(SOURCE)
    occurrences = list(source.now(now)) if source is not None and hasattr(source, "now") else []
    if not occurrences:
        return 0
    rulebooks, opened = active_rulebooks(), 0
    for scoped, watched in Rules(scoped_rules(rulebooks.platform, rulebooks.projects)).of_sources():
        if watched is not source:
            continue
        for occurrence in occurrences:
            if (now - occurrence.at).total_seconds() < scoped.rule.when.for_seconds:
                continue
            if scoped.holds_for(occurrence.project) and scoped.rule.matches_facts(occurrence.facts):
                finding = event_detection(occurrence)
                open_or_count(scoped=scoped, finding=finding, now=now, lasting=True)
                opened += 1
    return opened
