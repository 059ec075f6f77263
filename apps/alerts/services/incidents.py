"""Life cycle of incidents: changes by the monitor and by users.

    open_or_count -> open an incident, count an open one, or reopen one that has just recovered
    follow_up -> escalations, reminders, the end of a snooze
    recover -> end an incident; users call ``acknowledge``, ``snooze`` and ``close``

Each change and its notifications are one transaction. Updates are conditional on the state that the
caller saw, so concurrent callers do not notify twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet

from apps.access.models import User
from apps.access.services import record
from apps.alerts.engine.events import Fact
from apps.alerts.engine.messages import one_line
from apps.alerts.engine.rules import Escalation, ScopedRule, worst
from apps.alerts.errors import IncidentEnded, SnoozeOutOfRange
from apps.alerts.events import INCIDENTS_CHANGED
from apps.alerts.models import Incident, IncidentNote, RuleMute
from apps.alerts.services.notices import (
    drop_held_escalations,
    drop_pending,
    notified_channels,
    notify,
)
from apps.alerts.services.recipients import subscribed_names
from apps.alerts.states import ALERTING, IncidentState, NoticeKind, RecoveryReason, Step
from apps.runtime.services import emit
from yardkit import failpoints

LONGEST_SNOOZE: Final = timedelta(days=30)
# A problem that returns within this time reopens its incident.
REOPEN: Final = timedelta(minutes=10)
# A closed incident suppresses a new one while its problem continues, seen at least this recently:
# users close known problems and do not want them reopened by the next pass.
STILL_SEEN: Final = timedelta(minutes=5)
# Interval at which an unchanged open incident is updated.
REFRESH: Final = timedelta(seconds=15)
MAX_KEY: Final = 200


@dataclass(frozen=True, slots=True)
class Detection:
    """Problem detected by a rule: project, deduplication key, start, and facts for the texts."""

    project: int | None
    key: str
    at: datetime
    facts: Mapping[str, Fact]
    address: str = ""
    value: float | None = None
    # Number of events; 1 for a series or condition.
    times: int = 1


# --- the monitor -------------------------------------------------------------------------------


@transaction.atomic
def open_or_count(
    *, scoped: ScopedRule, finding: Detection, now: datetime, lasting: bool
) -> Incident:
    """Return the open incident of a detection: new, reopened, or counted.

    ``lasting``: the problem of a series or condition continues between passes. Its open incident is
    not counted again, and a closed incident suppresses a new one.
    """
    incident = current(scoped, finding)
    if incident is not None:
        _see(incident, finding, now, lasting)
        return incident
    before = _just_over(scoped, finding, now, lasting)
    if before is not None and before.state == IncidentState.CLOSED:
        Incident.objects.filter(pk=before.pk).update(seen_at=now)
        return before
    if before is not None:
        return _open_again(before, scoped, finding, now)
    return _open(scoped, finding, now)


def refresh_open(
    going_on: Sequence[tuple[Incident, Detection]], *, now: datetime, hold: Callable[[], None]
) -> int:
    """Update open incidents whose problem continues, every 15 s; return how many were written.

    Raises ``LeaseLost`` through ``hold``.
    """
    due = []
    for incident, finding in going_on:
        if now - incident.seen_at >= REFRESH:
            incident.seen_at, incident.value = now, finding.value
            incident.facts, incident.address = dict(finding.facts), finding.address[:300]
            due.append(incident)
    if due:
        fields = ["seen_at", "value", "facts", "address"]
        with transaction.atomic():
            hold()
            Incident.objects.open().bulk_update(due, fields, batch_size=100)
    return len(due)


def current(scoped: ScopedRule, finding: Detection) -> Incident | None:
    """Return the open incident of a detection."""
    return _of(scoped, finding).filter(state=IncidentState.OPEN).first()


@transaction.atomic
def follow_up(*, incident: Incident, scoped: ScopedRule, now: datetime) -> list[NoticeKind]:
    """Send due reminders and escalations of an open incident; return the kinds sent.

    Nothing while it is acknowledged, snoozed or its rule muted. At most one escalation per call.
    """
    row = _locked(incident)
    if row is None or row.acknowledged_at is not None:
        return []
    if row.snoozed_until is not None and row.snoozed_until > now:
        return []
    if is_muted(row.rule, row.project_id, now):
        # Due notifications are sent after the mute has ended.
        return []
    if row.told_at is None and row.snoozed_until is None and (to := _recipients(row, scoped)):
        _notify(row, NoticeKind.OPENED, to, scoped, now)
        return [NoticeKind.OPENED]
    step = _due_step(row, scoped, now)
    if step is not None:
        return [_escalate(row, step, scoped, now)]
    woken = row.snoozed_until is not None
    every = scoped.rule.repeat_seconds
    last = row.told_at or row.opened_at
    if woken or (every and now - last >= timedelta(seconds=every)):
        return _repeat(row, scoped, now)
    return []


@transaction.atomic
def recover(
    *,
    incident: Incident,
    why: RecoveryReason,
    now: datetime,
    scoped: ScopedRule | None = None,
    value: float | None = None,
) -> bool:
    """End an incident and notify all channels that were notified of it.

    One that another incident covers only ends the alerts that services keep open.
    Returns False if it had already ended.
    """
    row = _locked(incident)
    if row is None:
        return False
    row.state, row.ended_at, row.snoozed_until = IncidentState.RECOVERED, now, None
    row.value = row.value if value is None else value
    row.save(update_fields=["state", "ended_at", "snoozed_until", "value"])
    _note(row, Step.RECOVERED, now, detail={"why": str(why)})
    until = scoped.book.quiet_until(scoped.rule, row.severity, now) if scoped else None
    is_covered = why == RecoveryReason.COVERED
    channels = notified_channels(row, ALERTING if is_covered else ())
    if is_covered:
        drop_pending(row)
    notify(incident=row, kind=NoticeKind.RECOVERED, channels=channels, now=now, not_before=until)
    changed(row)
    return True


# --- people ------------------------------------------------------------------------------------


@transaction.atomic
def acknowledge(*, incident: Incident, actor: User, now: datetime, note: str = "") -> Incident:
    """Acknowledge an incident: no further reminders and escalations.

    The first acknowledgement stays. Raises ``IncidentEnded``.
    """
    row = _open_or_refuse(incident)
    if row.acknowledged_at is None:
        row.acknowledged_at, row.acknowledged_by = now, actor
        row.save(update_fields=["acknowledged_at", "acknowledged_by"])
        drop_held_escalations(row, now=now)
        _by_person(row, Step.ACKNOWLEDGED, actor, now, note)
    return row


@transaction.atomic
def snooze(
    *, incident: Incident, until: datetime, actor: User, now: datetime, note: str = ""
) -> Incident:
    """Pause notifications until ``until``; all are notified again if it is still open then.

    Raises ``IncidentEnded`` and ``SnoozeOutOfRange``.
    """
    if not now < until <= now + LONGEST_SNOOZE:
        raise SnoozeOutOfRange(fields={"until": [SnoozeOutOfRange.detail]})
    row = _open_or_refuse(incident)
    row.snoozed_until = until
    row.save(update_fields=["snoozed_until"])
    drop_pending(row)
    _by_person(row, Step.SNOOZED, actor, now, note, until=until.isoformat())
    return row


@transaction.atomic
def close(*, incident: Incident, actor: User, now: datetime, note: str = "") -> Incident:
    """Close an incident at a user's request. Raises ``IncidentEnded``.

    Notifies only services that keep an alert open until they are notified. A problem that
    continues opens no new incident; one that was gone and returns does.
    """
    row = _open_or_refuse(incident)
    row.state, row.ended_at, row.snoozed_until = IncidentState.CLOSED, now, None
    row.save(update_fields=["state", "ended_at", "snoozed_until"])
    alerting = notified_channels(row, ALERTING)
    drop_pending(row)
    notify(incident=row, kind=NoticeKind.RECOVERED, channels=alerting, now=now)
    _by_person(row, Step.CLOSED, actor, now, note)
    return row


# --- parts -------------------------------------------------------------------------------------


def _of(scoped: ScopedRule, finding: Detection) -> QuerySet[Incident]:
    # By the project of the detection: a platform rule has incidents in many projects.
    return Incident.objects.filter(
        project=finding.project, rule=scoped.rule.name, key=finding.key[:MAX_KEY]
    )


def _see(incident: Incident, finding: Detection, now: datetime, lasting: bool) -> None:
    fresh: dict[str, Any] = {"seen_at": now, "value": finding.value}
    if not lasting:
        fresh |= {"count": F("count") + finding.times, "facts": dict(finding.facts)}
        fresh["address"] = finding.address[:300]
    elif now - incident.seen_at < REFRESH:
        return
    Incident.objects.filter(pk=incident.pk, state=IncidentState.OPEN).update(**fresh)
    if not lasting:
        changed(incident)


def _just_over(
    scoped: ScopedRule, finding: Detection, now: datetime, lasting: bool
) -> Incident | None:
    """Return a closed incident whose problem continues, or one that recovered recently."""
    rows = _of(scoped, finding).filter(source=scoped.rule.source)
    last = rows.order_by("-ended_at", "-id").first()
    if last is None or last.ended_at is None:
        return None
    if last.state == IncidentState.CLOSED:
        return last if lasting and now - last.seen_at <= STILL_SEEN else None
    return last if now - last.ended_at <= REOPEN else None


def _open(scoped: ScopedRule, finding: Detection, now: datetime) -> Incident:
    rule = scoped.rule
    incident = Incident(
        project_id=finding.project,
        rule=rule.name,
        version=0 if rule.builtin else scoped.book.number,
        by_platform=scoped.project is None,
        key=finding.key[:MAX_KEY],
        source=rule.source,
        condition=rule.when.shown(),
        severity=rule.severity,
        facts=dict(finding.facts),
        advice=one_line(rule.description, 500),
        address=finding.address[:300],
        value=finding.value,
        count=finding.times,
        began_at=min(finding.at, now),
        opened_at=now,
        seen_at=now,
    )
    try:
        with transaction.atomic():
            incident.save(force_insert=True)
    except IntegrityError:
        # Another process created it first, for example a former leader after a long pause.
        existing = current(scoped, finding)
        if existing is None:
            raise
        return existing
    _note(incident, Step.OPENED, now, detail={"value": finding.value})
    failpoints.hit("alerts.opened")
    _notify_opened(incident, scoped, now)
    return incident


def _open_again(
    incident: Incident, scoped: ScopedRule, finding: Detection, now: datetime
) -> Incident:
    opened = Incident.objects.filter(pk=incident.pk, state=IncidentState.RECOVERED).update(
        state=IncidentState.OPEN,
        ended_at=None,
        seen_at=now,
        value=finding.value,
        facts=dict(finding.facts),
        address=finding.address[:300],
        count=F("count") + finding.times,
        reopened=F("reopened") + 1,
        acknowledged_at=None,
        acknowledged_by=None,
        escalated=0,
        severity=scoped.rule.severity,
        advice=one_line(scoped.rule.description, 500),
        began_at=min(finding.at, now),
        opened_at=now,
        told_at=None,
    )
    incident.refresh_from_db()
    if opened:
        _note(incident, Step.REOPENED, now, detail={"value": finding.value})
        failpoints.hit("alerts.opened")
        _notify_opened(incident, scoped, now)
    return incident


def _notify_opened(incident: Incident, scoped: ScopedRule, now: datetime) -> None:
    _notify(incident, NoticeKind.OPENED, _recipients(incident, scoped), scoped, now)
    changed(incident)


def _recipients(incident: Incident, scoped: ScopedRule) -> list[str]:
    return list(dict.fromkeys([*scoped.rule.tell, *subscribed_names(incident)]))


def _notify(
    incident: Incident, kind: NoticeKind, channels: Sequence[str], scoped: ScopedRule, now: datetime
) -> None:
    if is_muted(scoped.rule.name, incident.project_id, now):
        # Sent after the mute has ended, if the incident is still open.
        return
    if channels:
        until = scoped.book.quiet_until(scoped.rule, incident.severity, now)
        notify(incident=incident, kind=kind, channels=channels, now=now, not_before=until)
    incident.told_at = now
    Incident.objects.filter(pk=incident.pk).update(told_at=now)


def _due_step(row: Incident, scoped: ScopedRule, now: datetime) -> Escalation | None:
    steps = scoped.rule.escalate[row.escalated :]
    if not steps or now - row.opened_at < timedelta(seconds=steps[0].after_seconds):
        return None
    return steps[0]


def _escalate(row: Incident, step: Escalation, scoped: ScopedRule, now: datetime) -> NoticeKind:
    row.escalated += 1
    row.severity = worst([row.severity, step.severity or row.severity])
    row.snoozed_until = None
    row.save(update_fields=["escalated", "severity", "snoozed_until"])
    _note(row, Step.ESCALATED, now, detail={"severity": row.severity, "tell": list(step.tell)})
    _notify(row, NoticeKind.ESCALATED, step.tell or scoped.rule.tell, scoped, now)
    changed(row)
    return NoticeKind.ESCALATED


def _repeat(row: Incident, scoped: ScopedRule, now: datetime) -> list[NoticeKind]:
    quiet = scoped.book.quiet_until(scoped.rule, row.severity, now)
    if row.snoozed_until is not None:
        # A snooze that ends within quiet hours lasts until their end.
        row.snoozed_until = quiet
        row.save(update_fields=["snoozed_until"])
    if quiet is not None:
        # Reminders are sent once after quiet hours, instead of piling up.
        return []
    taken = [name for step in scoped.rule.escalate[: row.escalated] for name in step.tell]
    channels = list(dict.fromkeys([*_recipients(row, scoped), *taken]))
    _note(row, Step.REPEATED, now, detail={})
    _notify(row, NoticeKind.REPEATED, channels, scoped, now)
    return [NoticeKind.REPEATED]


def is_muted(rule: str, project: int | None, now: datetime) -> bool:
    """Return whether the rule is muted now, in this project or everywhere."""
    mutes = RuleMute.objects.active(now).filter(rule=rule).values_list("project_id", flat=True)
    return any(mute is None or mute == project for mute in mutes)


def _locked(incident: Incident) -> Incident | None:
    rows = Incident.objects.select_for_update().filter(pk=incident.pk, state=IncidentState.OPEN)
    return rows.first()


def _open_or_refuse(incident: Incident) -> Incident:
    row = _locked(incident)
    if row is None:
        raise IncidentEnded
    return row


def _note(
    incident: Incident, step: Step, now: datetime, *, by: str = "", detail: Mapping[str, Any]
) -> None:
    IncidentNote.objects.create(
        incident=incident, at=now, what=step, by=by[:150], detail=dict(detail)
    )


def _by_person(
    incident: Incident, step: Step, actor: User, now: datetime, note: str, **detail: Any
) -> None:
    extra = {"note": note[:500]} if note else {}
    _note(incident, step, now, by=actor.get_username(), detail={**detail, **extra})
    record(
        actor=actor,
        action=f"alerts.{_VERBS[step]}",
        obj=incident,
        after={"state": incident.state, **detail},
        note=note[:500],
    )
    changed(incident)


_VERBS: Final = {Step.ACKNOWLEDGED: "acknowledge", Step.SNOOZED: "snooze", Step.CLOSED: "close"}


def changed(incident: Incident) -> None:
    """Notify open browser pages of the change, at the commit."""
    emit(
        INCIDENTS_CHANGED,
        project=incident.project_id,
        payload={"incident": incident.pk, "open": incident.state == IncidentState.OPEN},
    )
