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
    sentence: object = _("nobody watches: %(monitor)s was the last monitor that lived")
    advice: object = _("Start run_monitor again; until then nothing else is found and nobody told.")
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
    title: object = _("a rule has reached its limit of incidents")
    sentence: object = _(
        "the rule %(rule)s has %(count)s open incidents: what more it finds is not opened"
    )
    advice: object = _("Mend what they have in common, or make the rule narrower; close the rest.")
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
        _("the monitor %(monitor)s cannot look at %(source)s: nothing of it is alarm or recovery"),
        _("Read the log of the monitor: it says why."),
        said="unasked",
    ),
    MonitorBlindSpot(
        "alerts.cut",
        _("more problems than the monitor can read"),
        _("%(source)s has more to tell than the monitor %(monitor)s looks at"),
        _("Mend what it tells already: the rest follows then."),
        said="cut",
    ),
    MonitorDown(),
    RuleAtLimit(),
)
