"""Incidents from their beginning to their end: what the monitor finds, and what people do.

    found -> opens an incident, or counts one that is open, or opens one again that is just over
    lasts -> what follows with time: escalations, repetitions, the end of a snooze
    recover -> it is over; ``close``, ``acknowledge`` and ``snooze`` are people's

Every change and what is to be told of it are one transaction. All updates are guarded by the
state that the caller saw: two who act at once do not tell anybody twice.
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
from apps.alerts.engine.rules import Escalation, Scoped, worst
from apps.alerts.errors import IncidentOver, SnoozeOutOfRange
from apps.alerts.events import INCIDENTS_CHANGED
from apps.alerts.models import Incident, IncidentNote, RuleMute
from apps.alerts.services.notices import (
    channels_told,
    drop_held_escalations,
    drop_waiting,
    tell,
)
from apps.alerts.states import Ending, IncidentState, NoticeKind, Step
from apps.runtime.services import emit
from yardkit import failpoints

LONGEST_SNOOZE: Final = timedelta(days=30)
# What comes back so soon after it had recovered is the same story.
REOPEN: Final = timedelta(minutes=10)
# A closed incident stands for its trouble while that was seen so lately: people close what they
# know of, and do not want it to open again with the next look.
STILL_SEEN: Final = timedelta(minutes=5)
# An open incident is written anew so often while nothing of it changes.
REFRESH: Final = timedelta(seconds=15)
MAX_KEY: Final = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule has found now: of whom, since when, and what to tell of it."""

    project: int | None
    key: str
    at: datetime
    facts: Mapping[str, Fact]
    address: str = ""
    value: float | None = None
    # How many events these are; of what lasts, 1.
    times: int = 1


# --- the monitor -------------------------------------------------------------------------------


@transaction.atomic
def open_or_count(*, scoped: Scoped, finding: Finding, now: datetime, lasting: bool) -> Incident:
    """The open incident of this finding: a new one, one opened again, or one that is counted.

    ``lasting``: the finding is the same trouble as at the last look (a series, a condition), so an
    incident that is open is not counted again, and one that a person has closed stands for it.
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


def still_so(
    going_on: Sequence[tuple[Incident, Finding]], *, now: datetime, hold: Callable[[], None]
) -> int:
    """Note of open incidents of what lasts that it does, every 15 s; how many were written.

    Raises ``LeaseLost`` by ``hold``.
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


def current(scoped: Scoped, finding: Finding) -> Incident | None:
    """The open incident that this finding belongs to."""
    return _of(scoped, finding).filter(state=IncidentState.OPEN).first()


@transaction.atomic
def follow_up(*, incident: Incident, scoped: Scoped, now: datetime) -> list[NoticeKind]:
    """Tell again or others what has been open for long; what was told.

    Nothing while it is acknowledged or snoozed, or its rule muted. One escalation a call at most.
    """
    row = _locked(incident)
    if row is None or row.acknowledged_at is not None:
        return []
    if row.snoozed_until is not None and row.snoozed_until > now:
        return []
    if is_muted(row.rule, row.project_id, now):
        # What is due then is told once nobody has muted it any more.
        return []
    if row.told_at is None and scoped.rule.tell and row.snoozed_until is None:
        _tell(row, NoticeKind.OPENED, scoped.rule.tell, scoped, now)
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
    why: Ending,
    now: datetime,
    scoped: Scoped | None = None,
    value: float | None = None,
) -> bool:
    """It is over; all who heard of it are told. False when somebody else has ended it."""
    row = _locked(incident)
    if row is None:
        return False
    row.state, row.ended_at, row.snoozed_until = IncidentState.RECOVERED, now, None
    row.value = row.value if value is None else value
    row.save(update_fields=["state", "ended_at", "snoozed_until", "value"])
    _note(row, Step.RECOVERED, now, detail={"why": str(why)})
    until = scoped.book.quiet_until(scoped.rule, row.severity, now) if scoped else None
    tell(
        incident=row,
        kind=NoticeKind.RECOVERED,
        channels=channels_told(row),
        now=now,
        not_before=until,
    )
    changed(row)
    return True


# --- people ------------------------------------------------------------------------------------


@transaction.atomic
def acknowledge(*, incident: Incident, actor: User, now: datetime, note: str = "") -> Incident:
    """Somebody takes care of it: no repetition and no escalation from now on.

    One that is acknowledged already stays with whoever was first. Raises ``IncidentOver``.
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
    """Nobody is told of it until then, and everybody again if it is still open.

    Raises ``IncidentOver``, ``SnoozeOutOfRange``.
    """
    if not now < until <= now + LONGEST_SNOOZE:
        raise SnoozeOutOfRange(fields={"until": [SnoozeOutOfRange.detail]})
    row = _open_or_refuse(incident)
    row.snoozed_until = until
    row.save(update_fields=["snoozed_until"])
    drop_waiting(row)
    _by_person(row, Step.SNOOZED, actor, now, note, until=until.isoformat())
    return row


@transaction.atomic
def close(*, incident: Incident, actor: User, now: datetime, note: str = "") -> Incident:
    """It is over because somebody says so; nobody is told. Raises ``IncidentOver``.

    Trouble that goes on opens no new one; trouble that was gone and comes back does.
    """
    row = _open_or_refuse(incident)
    row.state, row.ended_at, row.snoozed_until = IncidentState.CLOSED, now, None
    row.save(update_fields=["state", "ended_at", "snoozed_until"])
    drop_waiting(row)
    _by_person(row, Step.CLOSED, actor, now, note)
    return row


# --- parts -------------------------------------------------------------------------------------


def _of(scoped: Scoped, finding: Finding) -> QuerySet[Incident]:
    # By the project of what was found: a rule of the platform has incidents in many.
    return Incident.objects.filter(
        project=finding.project, rule=scoped.rule.name, key=finding.key[:MAX_KEY]
    )


def _see(incident: Incident, finding: Finding, now: datetime, lasting: bool) -> None:
    fresh: dict[str, Any] = {"seen_at": now, "value": finding.value}
    if not lasting:
        fresh |= {"count": F("count") + finding.times, "facts": dict(finding.facts)}
        fresh["address"] = finding.address[:300]
    elif now - incident.seen_at < REFRESH:
        return
    Incident.objects.filter(pk=incident.pk, state=IncidentState.OPEN).update(**fresh)
    if not lasting:
        changed(incident)


def _just_over(scoped: Scoped, finding: Finding, now: datetime, lasting: bool) -> Incident | None:
    """One that a person has closed and whose trouble goes on, or one that is just over."""
    rows = _of(scoped, finding).filter(source=scoped.rule.source)
    last = rows.order_by("-ended_at", "-id").first()
    if last is None or last.ended_at is None:
        return None
    if last.state == IncidentState.CLOSED:
        return last if lasting and now - last.seen_at <= STILL_SEEN else None
    return last if now - last.ended_at <= REOPEN else None


def _open(scoped: Scoped, finding: Finding, now: datetime) -> Incident:
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
        # Another monitor was quicker, which can only be one that was out for long.
        found = current(scoped, finding)
        if found is None:
            raise
        return found
    _note(incident, Step.OPENED, now, detail={"value": finding.value})
    failpoints.hit("alerts.opened")
    _tell_opened(incident, scoped, now)
    return incident


def _open_again(incident: Incident, scoped: Scoped, finding: Finding, now: datetime) -> Incident:
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
        _tell_opened(incident, scoped, now)
    return incident


def _tell_opened(incident: Incident, scoped: Scoped, now: datetime) -> None:
    _tell(incident, NoticeKind.OPENED, scoped.rule.tell, scoped, now)
    changed(incident)


def _tell(
    incident: Incident,
    kind: NoticeKind,
    channels: Sequence[str],
    scoped: Scoped,
    now: datetime,
) -> None:
    if is_muted(scoped.rule.name, incident.project_id, now):
        # Told once nobody has muted it any more, if it is still open.
        return
    if channels:
        until = scoped.book.quiet_until(scoped.rule, incident.severity, now)
        tell(incident=incident, kind=kind, channels=channels, now=now, not_before=until)
    incident.told_at = now
    Incident.objects.filter(pk=incident.pk).update(told_at=now)


def _due_step(row: Incident, scoped: Scoped, now: datetime) -> Escalation | None:
    steps = scoped.rule.escalate[row.escalated :]
    if not steps or now - row.opened_at < timedelta(seconds=steps[0].after_seconds):
        return None
    return steps[0]


def _escalate(row: Incident, step: Escalation, scoped: Scoped, now: datetime) -> NoticeKind:
    row.escalated += 1
    row.severity = worst([row.severity, step.severity or row.severity])
    row.snoozed_until = None
    row.save(update_fields=["escalated", "severity", "snoozed_until"])
    _note(row, Step.ESCALATED, now, detail={"severity": row.severity, "tell": list(step.tell)})
    _tell(row, NoticeKind.ESCALATED, step.tell or scoped.rule.tell, scoped, now)
    changed(row)
    return NoticeKind.ESCALATED


def _repeat(row: Incident, scoped: Scoped, now: datetime) -> list[NoticeKind]:
    quiet = scoped.book.quiet_until(scoped.rule, row.severity, now)
    if row.snoozed_until is not None:
        # Whoever has snoozed it into quiet hours is told when they are over.
        row.snoozed_until = quiet
        row.save(update_fields=["snoozed_until"])
    if quiet is not None:
        # What was told before the quiet hours is told again after them, and not piled up.
        return []
    taken = [name for step in scoped.rule.escalate[: row.escalated] for name in step.tell]
    channels = list(dict.fromkeys([*scoped.rule.tell, *taken]))
    _note(row, Step.REPEATED, now, detail={})
    _tell(row, NoticeKind.REPEATED, channels, scoped, now)
    return [NoticeKind.REPEATED]


def is_muted(rule: str, project: int | None, now: datetime) -> bool:
    """Whether nobody is told of this rule now, in this project or at all."""
    mutes = RuleMute.objects.active(now).filter(rule=rule).values_list("project_id", flat=True)
    return any(each is None or each == project for each in mutes)


def _locked(incident: Incident) -> Incident | None:
    rows = Incident.objects.select_for_update().filter(pk=incident.pk, state=IncidentState.OPEN)
    return rows.first()


def _open_or_refuse(incident: Incident) -> Incident:
    row = _locked(incident)
    if row is None:
        raise IncidentOver
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
    said = {"note": note[:500]} if note else {}
    _note(incident, step, now, by=actor.get_username(), detail={**detail, **said})
    record(
        actor=actor,
        action=f"alerts.{_VERBS[step]}",
        obj=incident,
        after={"state": incident.state, **detail},
        note=note[:500],
    )
    changed(incident)


_VERBS: Final = {
    Step.ACKNOWLEDGED: "acknowledge",
    Step.SNOOZED: "snooze",
    Step.CLOSED: "close",
}


def changed(incident: Incident) -> None:
    """Tell pages of it at the commit."""
    emit(
        INCIDENTS_CHANGED,
        project=incident.project_id,
        payload={"incident": incident.pk, "open": incident.state == IncidentState.OPEN},
    )
