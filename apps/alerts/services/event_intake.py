"""Processing of events, each exactly once, however often its source returns it.

Every poll overlaps the previous one by some minutes, because a late commit may carry an earlier
time. The IDs of processed events are stored in the transaction that opens or counts incidents: a
monitor killed in between leaves both undone, and its successor does both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, cast

from django.db import transaction
from django.db.models import QuerySet

from apps.alerts.engine.events import EventSource, Occurrence, all_sources, find_source
from apps.alerts.engine.rules import MOST_OPEN, ScopedRule
from apps.alerts.models import Incident, ProcessedEvent, SourceMark
from apps.alerts.services.evaluation import Hold, Rules, event_detection, log_incident_limit
from apps.alerts.services.incidents import current, open_or_count, recover
from apps.alerts.services.source_reader import SourceReader
from apps.alerts.states import RecoveryReason
from yardkit import failpoints

# Longest time from a transaction's first write to its commit without losing its events.
OVERLAP: Final = timedelta(minutes=10)
# After a longer absence of monitors, older events are skipped.
LONGEST_BACK: Final = timedelta(hours=24)
# Checking recovery may need a query per open incident.
FINISH_EVERY: Final = timedelta(seconds=15)
MARK_EVERY: Final = timedelta(minutes=1)
KEEP_SEEN: Final = timedelta(hours=48)
A_TRANSACTION: Final = 200
PRUNE_AT_ONCE: Final = 5_000


class EventReader:
    """Polls event sources and turns new events into incidents."""

    def __init__(self, reader: SourceReader) -> None:
        self._reader = reader
        self._finished_at: datetime | None = None

    def read(self, rules: Rules, *, now: datetime, hold: Hold) -> int:
        """Process all events since the last poll; return their number.

        Raises ``LeaseLost`` through ``hold``, and ``OperationalError``.
        """
        by_source: dict[str, tuple[EventSource, list[ScopedRule]]] = {}
        for scoped, source in rules.of_sources():
            if hasattr(source, "since"):
                entry = by_source.setdefault(source.name, (cast("EventSource", source), []))
                entry[1].append(scoped)
        # Causes first: their incidents suppress those of their consequences.
        ordered = sorted(by_source.values(), key=lambda pair: bool(_causes(pair[0])))
        return sum(self._read_source(source, scoped, now, hold) for source, scoped in ordered)

    def finish(self, rules: Rules, *, now: datetime, hold: Hold) -> int:
        """End incidents of events that have recovered, every 15 s; return their number.

        Reminders and escalations are sent by the evaluator.
        """
        if self._finished_at is not None and now - self._finished_at < FINISH_EVERY:
            return 0
        self._finished_at = now
        changed = 0
        over: dict[str, set[str]] = {}
        rows = list(Incident.objects.open())
        for incident in rows:
            scoped = rules.find(incident.rule, incident.project_id)
            source = _event_source(scoped) if scoped is not None else None
            if scoped is None or source is None or scoped.rule.source != incident.source:
                continue
            if source.name not in over:
                mine = {row.key: row.seen_at for row in rows if row.source == source.name}
                over[source.name] = self._over(source, mine, now)
            quiet = (now - incident.seen_at).total_seconds() >= scoped.rule.recover.quiet_seconds
            why = RecoveryReason.WELL if incident.key in over[source.name] else None
            why = why or (RecoveryReason.QUIET if quiet else None)
            if why is not None:
                with transaction.atomic():
                    hold()
                    changed += recover(incident=incident, why=why, now=now, scoped=scoped)
        return changed

    def _over(self, source: EventSource, mine: dict[str, datetime], now: datetime) -> set[str]:
        over = getattr(source, "over", None)
        if over is None:
            return set()
        return set(self._reader.read(source.name, lambda: over(mine, now)) or ())

    def _read_source(
        self, source: EventSource, scoped: Sequence[ScopedRule], now: datetime, hold: Hold
    ) -> int:
        mark = SourceMark.objects.filter(source=source.name).first()
        if mark is None:
            # Events before the first poll open no incidents.
            SourceMark.objects.get_or_create(
                source=source.name, defaults={"began_at": now, "read_at": now}
            )
            return 0
        since = max(mark.read_at - OVERLAP, now - LONGEST_BACK, mark.began_at)
        events = self._reader.read(source.name, lambda: source.since(since))
        if events is None:
            return 0
        happened = [event for event in events if event.at >= mark.began_at]
        new = _unseen(source.name, happened)
        for start in range(0, len(new), A_TRANSACTION):
            some = new[start : start + A_TRANSACTION]
            with transaction.atomic():
                hold()
                self._deal_with(source, scoped, some, now)
                failpoints.hit("alerts.events_before_commit")
            failpoints.hit("alerts.events_after_commit")
        # The cursor moves last, so that a killed monitor's successor reads from the older time; and
        # at most once a minute, since a longer overlap is harmless.
        if now - mark.read_at >= MARK_EVERY:
            SourceMark.objects.filter(pk=mark.pk, read_at__lt=now).update(read_at=now)
        return len(new)

    def _deal_with(
        self,
        source: EventSource,
        scoped: Sequence[ScopedRule],
        happened: Sequence[Occurrence],
        now: datetime,
    ) -> None:
        ProcessedEvent.objects.bulk_create(
            ProcessedEvent(source=source.name, happening=occurrence.id[:100], at=occurrence.at)
            for occurrence in happened
        )
        for scoped_rule in scoped:
            groups: dict[tuple[int | None, str], list[Occurrence]] = defaultdict(list)
            for happening in happened:
                if _watched(scoped_rule, happening) and not _has_incident(source, happening):
                    groups[(happening.project, happening.key)].append(happening)
            self._open(source, scoped_rule, groups.values(), now)

    def _open(
        self,
        source: EventSource,
        scoped: ScopedRule,
        groups: Iterable[list[Occurrence]],
        now: datetime,
    ) -> None:
        open_ones = Incident.objects.open().filter(rule=scoped.rule.name).order_by()
        is_open: Counter[int | None] = Counter(open_ones.values_list("project_id", flat=True))
        for group in groups:
            newest = max(group, key=lambda each: (each.at, each.id))
            finding = event_detection(newest, len(group))
            if current(scoped, finding) is None:
                if not self._often_enough(source, scoped, group):
                    continue
                if is_open[newest.project] >= MOST_OPEN:
                    log_incident_limit(newest.project, scoped.rule.name)
                    continue
                is_open[newest.project] += 1
            open_or_count(scoped=scoped, finding=finding, now=now, lasting=False)
            for covered in _consequences(source, newest):
                recover(incident=covered, why=RecoveryReason.COVERED, now=now)

    def _often_enough(
        self, source: EventSource, scoped: ScopedRule, new: Sequence[Occurrence]
    ) -> bool:
        """Return whether the event occurred ``when.times`` times within ``when.in_seconds``.

        Checked at the time of each new event: in a large batch the last may be long after a burst.
        """
        when = scoped.rule.when
        if when.times <= 1:
            return True
        window = timedelta(seconds=when.in_seconds)
        begin = min(occurrence.at for occurrence in new) - window
        events = self._reader.read(source.name, lambda: source.since(begin))
        of = (new[0].project, new[0].key)
        same = {occurrence.id: occurrence.at for occurrence in new}
        for occurrence in events or ():
            if (occurrence.project, occurrence.key) == of and _watched(scoped, occurrence):
                same[occurrence.id] = occurrence.at
        times = sorted(same.values())
        ends = {occurrence.at for occurrence in new}
        return any(
            bisect_right(times, end) - bisect_right(times, end - window) >= when.times
            for end in ends
        )


def prune_seen(*, now: datetime) -> int:
    """Delete IDs of events that no source returns any more; return their number."""
    old = ProcessedEvent.objects.filter(at__lt=now - KEEP_SEEN).order_by("at")
    ids = list(old.values_list("pk", flat=True)[:PRUNE_AT_ONCE])
    return ProcessedEvent.objects.filter(pk__in=ids).delete()[0]


def _watched(scoped: ScopedRule, happening: Occurrence) -> bool:
    return scoped.holds_for(happening.project) and scoped.rule.matches_facts(happening.facts)


def _causes(source: EventSource) -> tuple[str, ...]:
    """Return the sources whose incident of the same run covers an event of this source."""
    causes: tuple[str, ...] = getattr(source, "same_run_as", ())
    return causes


def _has_incident(source: EventSource, happening: Occurrence) -> bool:
    """Whether the event's cause has opened an incident: one cause notifies once."""
    causes = _causes(source)
    same = Incident.objects.filter(
        project=happening.project, key=happening.key, facts__run=happening.facts.get("run")
    )
    return bool(causes) and same.filter(source__in=causes).exists()


def _consequences(source: EventSource, cause: Occurrence) -> QuerySet[Incident]:
    """Return the open incidents of the same run that this event explains."""
    names = [each.name for each in all_sources() if source.name in getattr(each, "same_run_as", ())]
    return Incident.objects.open().filter(
        source__in=names, project=cause.project, key=cause.key, facts__run=cause.facts.get("run")
    )


def _unseen(source: str, happened: Sequence[Occurrence]) -> list[Occurrence]:
    """Return the events not processed before, oldest first, without duplicates."""
    by_id = {occurrence.id[:100]: occurrence for occurrence in happened}
    seen: set[str] = set()
    ids = list(by_id)
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        rows = ProcessedEvent.objects.filter(source=source, happening__in=some)
        seen |= set(rows.values_list("happening", flat=True))
    new = [occurrence for name, occurrence in by_id.items() if name not in seen]
    return sorted(new, key=lambda each: (each.at, each.id))


def _event_source(scoped: ScopedRule) -> EventSource | None:
    source = find_source(scoped.rule.event) if scoped.rule.event else None
    return cast("EventSource", source) if hasattr(source, "since") else None
