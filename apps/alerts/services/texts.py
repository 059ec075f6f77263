"""Incident texts in the active language, for pages and notifications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.utils import timezone, translation
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext, pgettext_lazy

from apps.alerts.engine.events import find_source
from apps.alerts.engine.messages import Message, one_line
from apps.alerts.models import Channel, Incident, Notice
from apps.alerts.states import IncidentState, NoticeKind, Severity
from apps.jobs.models import Run
from apps.jobs.states import RunState
from apps.queuestats.queries import run_totals

# Hard-coded: workers load no admin URLs, so ``reverse`` is not available.
INCIDENTS: Final = "/admin/alerts/incident/"
_FACTS: Final[Mapping[str, object]] = {
    "agent": gettext_lazy("agent"),
    "build": gettext_lazy("build"),
    "count": pgettext_lazy("fact", "number"),
    "daemon": gettext_lazy("daemon"),
    "error": gettext_lazy("error"),
    "field": gettext_lazy("field"),
    "frontier": gettext_lazy("URL queue"),
    "harvest": gettext_lazy("import"),
    "host": gettext_lazy("host"),
    "image": gettext_lazy("image"),
    "items": gettext_lazy("items"),
    "job": gettext_lazy("job"),
    "kind": gettext_lazy("kind"),
    "node": gettext_lazy("node"),
    "outbound": gettext_lazy("outbound"),
    "pool": gettext_lazy("pool"),
    "project": gettext_lazy("project"),
    "queue": gettext_lazy("queue"),
    "reason": gettext_lazy("reason"),
    "run": gettext_lazy("run"),
    "schedule": gettext_lazy("schedule"),
    "source": gettext_lazy("source"),
    "state": gettext_lazy("state"),
    "tag": gettext_lazy("tag"),
    "usual": gettext_lazy("usual"),
    "version": gettext_lazy("version"),
    "waiting": gettext_lazy("waiting"),
}
_HEADINGS: Final[Mapping[str, object]] = {
    NoticeKind.REPEATED: pgettext_lazy("notice", "Still open"),
    NoticeKind.ESCALATED: pgettext_lazy("notice", "Escalated"),
    NoticeKind.RECOVERED: pgettext_lazy("notice", "Recovered"),
}


def sentence(incident: Incident) -> str:
    """Return the incident's summary in one line."""
    source = find_source(incident.source)
    if source is None and (incident.value is not None or not incident.facts):
        return _series_sentence(incident)
    title = incident.source if source is None else str(source.title)
    written = getattr(source, "sentence", None)
    if written:
        try:
            return one_line(str(written) % {name: _shown(v) for name, v in incident.facts.items()})
        except (KeyError, ValueError, TypeError):
            # The incident stores facts of an older version of the source.
            pass
    facts = fact_texts(incident.facts)
    return one_line(f"{title} ({', '.join(facts)})" if facts else title)


def fact_texts(facts: Mapping[str, Any]) -> list[str]:
    """Return each fact as "name: value"."""
    return [
        _("%(name)s: %(value)s") % {"name": _FACTS.get(name, name), "value": _shown(value)}
        for name, value in facts.items()
        if value not in ("", None)
    ]


def when_text(source: str, condition: Mapping[str, Any]) -> str:
    """Return the condition of a rule over ``source`` in words, with its duration."""
    if not hasattr(find_source(source), "now"):
        return condition_text(condition)
    if not (seconds := _seconds(condition, "for_seconds")):
        return _("immediately")
    return _("for %(time)s") % {"time": span_text(seconds)}


def condition_text(condition: Mapping[str, Any]) -> str:
    """Return the condition of a series or event, given as the configuration's ``when``, in
    words."""
    parts = []
    limits = {name: _shown(value) for name, value in condition.items()}
    window = span_text(_seconds(condition, "in_seconds"))
    if "above" in condition:
        parts.append(_("above %(limit)s") % {"limit": limits["above"]})
    if "below" in condition:
        parts.append(_("below %(limit)s") % {"limit": limits["below"]})
    if "absent_seconds" in condition:
        time = span_text(_seconds(condition, "absent_seconds"))
        parts.append(_("no value for %(time)s") % {"time": time})
    if "rises_by" in condition:
        values = {"limit": limits["rises_by"], "time": window}
        parts.append(_("rises by %(limit)s in %(time)s") % values)
    if "falls_by" in condition:
        values = {"limit": limits["falls_by"], "time": window}
        parts.append(_("falls by %(limit)s in %(time)s") % values)
    if "times" in condition:
        times = int(_seconds(condition, "times"))
        text = ngettext("%(times)d time in %(time)s", "%(times)d times in %(time)s", times)
        parts.append(text % {"times": times, "time": window})
    if "for_seconds" in condition:
        parts.append(
            pgettext("condition", "for %(time)s")
            % {"time": span_text(_seconds(condition, "for_seconds"))}
        )
    return ", ".join(parts) or _("every time")


def span_text(seconds: float) -> str:
    """Format a duration with at most two units."""
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if seconds < 120:
        return _("%(seconds)d s") % {"seconds": seconds}
    if minutes < 120:
        return _("%(minutes)d min") % {"minutes": minutes}
    if hours < 48:
        rest = minutes % 60
        text = _("%(hours)d h %(minutes)d min") if rest else _("%(hours)d h")
        return text % {"hours": hours, "minutes": rest}
    return _("%(days)d d") % {"days": hours // 24}


def message_of(notice: Notice, channel: Channel) -> Message:
    """Return the message of a notification in the channel's language."""
    with translation.override(channel.language):
        number = f"notice_{notice.resent_of_id or notice.pk}"
        if notice.kind == NoticeKind.RUN_ENDED:
            return _run_message(notice, number)
        if notice.incident is None:
            return _test_message(notice, channel, number)
        return _message(notice, notice.incident, number)


def digest_of(notices: Sequence[Notice], channel: Channel) -> Message:
    """Combine many notifications into one message: robots accept about 20 a minute."""
    parts = [message_of(notice, channel) for notice in notices]
    with translation.override(channel.language):
        title = _("%(count)d alerts") % {"count": len(parts)}
        return Message(
            id=parts[0].id,
            title=title,
            lines=tuple(" · ".join(filter(None, (part.title, part.place))) for part in parts),
            at=parts[-1].at,
            event="incident.digest",
            links=((_("All incidents"), _absolute(INCIDENTS)),),
        )


def incident_address(incident: Incident) -> str:
    """Return the absolute URL of an incident's page."""
    return _absolute(f"{INCIDENTS}{incident.pk}/change/")


def _message(notice: Notice, incident: Incident, number: str) -> Message:
    summary = sentence(incident)
    title = one_line(f"{_heading(notice, incident)} {summary}")
    page = incident.address
    links = [(_("Incident"), incident_address(incident))]
    if page.startswith("/") and not page.startswith("//"):
        links.append((_("Page"), _absolute(page)))
    return Message(
        id=number,
        title=title,
        lines=tuple(_lines(incident)),
        place=_place(incident),
        at=_moment(notice, incident),
        event=f"incident.{notice.kind}",
        links=tuple(links),
        thread=f"incident-{incident.pk}",
        subject=incident_address(incident),
        severity=incident.severity,
        is_over=not incident.is_open,
        data=_data(notice, incident, summary),
    )


def _test_message(notice: Notice, channel: Channel, number: str) -> Message:
    title = _("Test of channel %(name)s") % {"name": channel.name}
    return Message(
        id=number,
        title=title,
        lines=(_("This is a test. Alerts sent through this channel reach you."),),
        at=notice.created_at,
        event="test",
        links=((_("All incidents"), _absolute(INCIDENTS)),),
        data={"channel": channel.name, "notice": notice.kind},
    )


def _run_message(notice: Notice, number: str) -> Message:
    """Return the message of the end of a run, with its counters if the run is still stored."""
    facts = notice.facts
    run = Run.objects.filter(pk=notice.run or 0).first()
    status = RunState(facts["state"]) if run is None else run.status
    totals = None if run is None else run_totals([run.owner])[run.owner]
    values = {"job": facts["job"], "run": notice.run, "status": status.label}
    began, ended = (_parsed(facts[name]) for name in ("started_at", "ended_at"))
    seconds = (ended - began).total_seconds() if began and ended else None
    rows = [_("Where: %(where)s") % {"where": notice.project or "–"}]
    if ended is not None:
        spent = {"time": time_text(ended), "span": span_text(seconds or 0)}
        rows.append(_("Ended: %(time)s, after %(span)s") % spent)
    if totals is not None:
        counts = {"items": totals.items, "total": totals.total, "failed": totals.failed}
        rows.append(_("Items: %(items)d; requests: %(total)d, failed: %(failed)d") % counts)
    if facts["reason"]:
        rows.append(_("Reason: %(reason)s") % {"reason": facts["reason"]})
    is_failed = facts["state"] in (RunState.FAILED, RunState.LOST)
    address = _absolute(f"/runs/{notice.run}")
    return Message(
        id=number,
        title=one_line(_("%(job)s: run %(run)s %(status)s") % values),
        lines=tuple(one_line(row) for row in rows),
        place=one_line(notice.project or "", 40),
        at=ended or notice.created_at,
        event="run.ended",
        links=((_("Run"), address),),
        thread=f"job-{facts['job_id']}",
        subject=_absolute(f"/admin/jobs/job/{facts['job_id']}/change/"),
        severity=Severity.CRITICAL if is_failed else Severity.INFO,
        is_over=facts["state"] == RunState.EXITED,
        data={
            "notice": notice.kind,
            "run": notice.run,
            **facts,
            "project": None if notice.project is None else notice.project.slug,
            "outcome": str(status),
            "seconds": seconds,
            "items": None if totals is None else totals.items,
            "requests": None if totals is None else totals.total,
            "failed_requests": None if totals is None else totals.failed,
            "url": address,
        },
    )


def _parsed(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _heading(notice: Notice, incident: Incident) -> str:
    severity = str(Severity(incident.severity).label)
    before = _HEADINGS.get(notice.kind)
    over = notice.kind != NoticeKind.RECOVERED and incident.state != IncidentState.OPEN
    if before is None and over:
        # The incident ended before this notification was sent.
        before = _("Recovered")
    return f"[{severity}] {before}:" if before else f"[{severity}]"


def advice(incident: Incident) -> str:
    """Return what to do: the rule's description, or the advice of its source."""
    return incident.advice or str(getattr(find_source(incident.source), "advice", ""))


def where_text(incident: Incident) -> str:
    """Return the project, or "the platform"."""
    if incident.project is not None:
        return str(incident.project)
    return incident.project_name or _("the platform")


def _place(incident: Incident) -> str:
    """Return project and start time in short form."""
    since = timezone.localtime(incident.since, timezone.get_default_timezone())
    return f"{one_line(where_text(incident), 40)}, {since:%m-%d %H:%M}"


def _lines(incident: Incident) -> list[str]:
    """Return the details that the title leaves out."""
    rows = [
        _("Where: %(where)s") % {"where": where_text(incident)},
        _("Rule: %(rule)s") % {"rule": incident.rule},
        _("Since: %(time)s") % {"time": time_text(incident.since)},
    ]
    if incident.is_open and (advice_text := advice(incident)):
        rows.append(_("What to do: %(what)s") % {"what": advice_text})
    if incident.count > 1:
        rows.append(_("Occurrences: %(count)d") % {"count": incident.count})
    if incident.ended_at is not None:
        lasted = span_text((incident.ended_at - incident.since).total_seconds())
        values = {"time": time_text(incident.ended_at), "span": lasted}
        rows.append(_("Ended: %(time)s, after %(span)s") % values)
    if incident.acknowledged_at is not None and incident.acknowledged_by is not None:
        who = incident.acknowledged_by.get_username()
        rows.append(_("Acknowledged by: %(who)s") % {"who": who})
    return [one_line(row) for row in rows]


def _data(notice: Notice, incident: Incident, what: str) -> dict[str, Any]:
    project = incident.project
    return {
        "notice": notice.kind,
        "incident": incident.pk,
        "project": None if project is None else project.slug,
        "rule": incident.rule,
        "source": incident.source,
        "key": incident.key,
        "severity": incident.severity,
        "state": incident.state,
        "facts": incident.facts,
        "value": incident.value,
        "condition": incident.condition,
        "count": incident.count,
        "began_at": incident.since.isoformat(),
        "opened_at": incident.opened_at.isoformat(),
        "seen_at": incident.seen_at.isoformat(),
        "ended_at": incident.ended_at.isoformat() if incident.ended_at else None,
        "acknowledged": incident.acknowledged_at is not None,
        "text": what,
        "url": incident_address(incident),
    }


def _series_sentence(incident: Incident) -> str:
    values = {
        "series": f"{incident.source} {incident.key}".rstrip(),
        "value": _shown(incident.value),
        "condition": when_text(incident.source, incident.condition),
    }
    if incident.value is None:
        return one_line(_("%(series)s: %(condition)s") % values)
    return one_line(_("%(series)s is %(value)s (alert: %(condition)s)") % values)


def _moment(notice: Notice, incident: Incident) -> datetime:
    if notice.kind == NoticeKind.RECOVERED and incident.ended_at is not None:
        return incident.ended_at
    return incident.opened_at if notice.kind == NoticeKind.OPENED else notice.created_at


def time_text(at: datetime) -> str:
    """Format a time in the installation's time zone, with the zone's name."""
    return f"{timezone.localtime(at, timezone.get_default_timezone()):%Y-%m-%d %H:%M:%S %Z}"


def _shown(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return one_line(value)
    shown = round(value, 2)
    return str(number_format(int(shown) if shown == int(shown) else shown, force_grouping=True))


def _seconds(condition: Mapping[str, Any], name: str) -> float:
    value = condition.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _absolute(path: str) -> str:
    return f"{settings.PUBLIC_URL}{path}"
