"""Health of the monitoring itself: unread sources, no running monitor, rules at their limit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from django.db.models import Count, Max
from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.events import ConditionSource, Occurrence
from apps.alerts.engine.rules import MOST_OPEN
from apps.alerts.models import Incident
from apps.alerts.sources.pages import list_page
from apps.runtime.models import Daemon
from apps.runtime.queries import database_now, live_daemons


class MonitorBlindSpot:
    """Sources that the leading monitor could not read, or not completely, by its heartbeat row."""

    facts: tuple[str, ...] = ("source", "monitor")

    def __init__(
        self, name: str, title: object, sentence: object, advice: object, *, said: str
    ) -> None:
        self.name = name
        self.title = title
        self.sentence = sentence
        self.advice = advice
        self._said = said

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per source."""
        for monitor in live_daemons(kind="monitor", now=database_now()):
            if not monitor.detail.get("leads"):
                continue
            for source in monitor.detail.get(self._said, ()):
                yield Occurrence(
                    id=source,
                    project=None,
                    key=source,
                    at=at,
                    facts={"source": source, "monitor": f"{monitor.name} @ {monitor.host}"},
                    address="/admin/",
                )


class MonitorDown:
    """No monitor is running: detected by the workers, ended by the next monitor."""

    name = "alerts.unwatched"
    title: object = _("no monitor is running")
    sentence: object = _("no monitor is running; the last one was %(monitor)s")
    advice: object = _("Start run_monitor. Until then no alert is raised and no one notified.")
    facts: tuple[str, ...] = ("monitor",)

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence if a monitor has run before."""
        if live_daemons(kind="monitor", now=database_now()).exists():
            return
        last = Daemon.objects.filter(kind="monitor").order_by("-beat_at").first()
        if last is not None:
            yield Occurrence(
                id="monitor",
                project=None,
                key="monitor",
                at=last.beat_at,
                facts={"monitor": f"{last.name} @ {last.host}"},
                address="/admin/",
            )


class RuleAtLimit:
    """Rules that have reached the limit of open incidents and open no more."""

    name = "alerts.full"
    title: object = _("a rule has reached its incident limit")
    sentence: object = _("rule %(rule)s has %(count)s open incidents and opens no more")
    advice: object = _("Fix their common cause or narrow the rule, then close the others.")
    facts: tuple[str, ...] = ("rule", "count")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per rule and project, since its newest incident."""
        rows = Incident.objects.open().order_by().values("project", "rule")
        full = rows.annotate(count=Count("pk"), newest=Max("opened_at")).filter(
            count__gte=MOST_OPEN
        )
        for row in full.order_by("project", "rule"):
            yield Occurrence(
                id=f"{row['project'] or ''}:{row['rule']}",
                project=row["project"],
                key=row["rule"],
                at=row["newest"],
                facts={"rule": row["rule"], "count": row["count"]},
                address=list_page("alerts/incident"),
            )


SOURCES: Final[tuple[ConditionSource, ...]] = (
    MonitorBlindSpot(
        "alerts.unasked",
        _("the monitor cannot read a source"),
        _("monitor %(monitor)s cannot read %(source)s: its incidents neither open nor recover"),
        _("See the log of the monitor for the reason."),
        said="unasked",
    ),
    MonitorBlindSpot(
        "alerts.cut",
        _("more problems than the monitor can read"),
        _("%(source)s reports more problems than monitor %(monitor)s reads at once"),
        _("Fix the reported problems first; the others are read afterwards."),
        said="cut",
    ),
    MonitorDown(),
    RuleAtLimit(),
)
