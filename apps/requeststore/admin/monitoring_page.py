"""Monitoring page: rates, backlogs with forecasts, queues, storage nodes, fetchers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from apps.access.admin.base import ProjectScopedAdmin
from apps.access.admin.read_only import ReadOnly
from apps.projects.models import Project
from apps.queuestats.queries import SeriesKey
from apps.requeststore.admin.concern_texts import ShownConcern, node_label, node_tone, trouble
from apps.requeststore.engine.forecast import Lateness, Outlook
from apps.requeststore.models import QueueReport
from apps.requeststore.queries.health import NodeLine, concerns, nodes
from apps.requeststore.queries.outlook import (
    CREATED,
    FAILED,
    PROCESSED,
    BizStatus,
    BizStatuses,
    standings,
)
from apps.requeststore.services.forecast_text import per_second, sentence
from apps.requeststore.services.scale_advice import Advice, advice_of

MEDIA: Final = [
    "dashboard/dashboard.css",
    "configcenter/configcenter.css",
    "requeststore/monitoring.css",
]
_WIDTH: Final = 120.0
_HEIGHT: Final = 26.0
_SECONDS: Final = (1, 5, 60)


@dataclass(frozen=True, slots=True)
class RateRow:
    """Row of rates per second: means of the last second, five seconds and minute."""

    name: str
    title: str
    texts: list[str]


@dataclass(frozen=True, slots=True)
class BizRates:
    """Row of one biz. ``created`` and ``processed``: points of two sparklines."""

    standing: BizStatus
    paces: list[RateRow]
    sentence: str
    tone: str
    created: str
    processed: str


@dataclass(frozen=True, slots=True)
class ShownNode:
    """Row of one storage node."""

    line: NodeLine
    label: str
    tone: str


@dataclass(frozen=True, slots=True)
class MonitoringView:
    """Data of the whole page."""

    troubles: list[ShownConcern]
    bizzes: list[BizRates]
    nodes: list[ShownNode]
    advice: Advice
    found: BizStatuses

    @property
    def told(self) -> bool:
        """Whether the scaling webhook is configured."""
        return bool(settings.SCALE_WEBHOOK_URL)


@admin.register(QueueReport)
class MonitoringAdmin(ReadOnly, ProjectScopedAdmin):
    """One page, registered under the model of queue reports."""

    class Media:
        css = {"all": MEDIA}

    def get_urls(self) -> list[URLPattern]:
        """Return the URL of the part that is refreshed; the page itself is the change list."""
        live = self.admin_site.admin_view(require_GET(self.live_view))
        return [path("live", live, name="requeststore_monitoring_live"), *super().get_urls()]

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> None:
        """Return None: queue reports have no change page."""

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the bizzes of all visible projects, or those of ``?project=``."""
        project, projects = self._asked(request)
        context = {
            **self.admin_site.each_context(request),
            "title": gettext_lazy("Monitoring of requests"),
            "subtitle": None if project is None else str(project),
            "media": self.media,
            "project": project,
            "projects": projects,
            **_context(project, projects),
        }
        return TemplateResponse(request, "requeststore/monitoring.html", context)

    def live_view(self, request: HttpRequest) -> HttpResponse:
        """Render the part of the page that changes."""
        project, projects = self._asked(request)
        context = {"project": project} | _context(project, projects)
        return TemplateResponse(request, "requeststore/monitoring_live.html", context)

    def _asked(self, request: HttpRequest) -> tuple[Project | None, list[Project]]:
        if not self.has_view_permission(request):
            raise PermissionDenied
        projects = list(Project.objects.visible_to(request.user).order_by("name"))
        project_text = request.GET.get("project", "")
        if not project_text:
            return None, projects
        chosen = next((project for project in projects if str(project.pk) == project_text), None)
        if chosen is None:
            raise Http404
        return chosen, projects


def _context(project: Project | None, projects: list[Project]) -> dict[str, Any]:
    shown = projects if project is None else [project]
    view = monitoring([project.pk for project in shown])
    return {"view": view, "now": view.found.now}


def monitoring(projects: Collection[int], now: datetime | None = None) -> MonitoringView:
    """Return what the page shows; a fixed number of queries. ``now=None`` asks the database for
    the time.
    """
    everything = standings(now=now, curves_of=projects)
    now = everything.now
    seen = set(projects)
    bizzes = BizStatuses(
        [biz for biz in everything.bizzes if biz.project_id in seen],
        everything.fetchers,
        everything.state,
        now,
        everything.listening,
        everything.curves,
    )
    lines = nodes(now)
    return MonitoringView(
        troubles=[trouble(concern, now) for concern in concerns(bizzes, lines)],
        bizzes=[_line(biz, bizzes.curves, now) for biz in bizzes.bizzes],
        nodes=[ShownNode(line, node_label(line.state), node_tone(line.state)) for line in lines],
        # Invisible bizzes count, too: all of them share the fetchers.
        advice=advice_of(everything),
        found=bizzes,
    )


def _line(each: BizStatus, curves: dict[SeriesKey, list[float]], now: datetime) -> BizRates:
    created = curves.get(SeriesKey(CREATED, each.project_id, each.biz), [])
    processed = curves.get(SeriesKey(PROCESSED, each.project_id, each.biz), [])
    top = max([*created, *processed, 0.0])
    return BizRates(
        standing=each,
        paces=[
            RateRow(
                name.partition(".")[2], title, [per_second(each.rates[name][s]) for s in _SECONDS]
            )
            for name, title in (
                (CREATED, _("created")),
                (PROCESSED, _("processed")),
                (FAILED, _("failed")),
            )
        ],
        sentence=sentence(each.forecast, each.facts, now=now),
        tone=_tone(each),
        created=_curve(created, top),
        processed=_curve(processed, top),
    )


def _tone(each: BizStatus) -> str:
    forecast = each.forecast
    if forecast.lateness is not Lateness.NONE or forecast.outlook is Outlook.STANDS:
        return "danger"
    if forecast.outlook in (Outlook.NEVER, Outlook.STALE):
        return "warning"
    return "success" if forecast.outlook in (Outlook.DONE, Outlook.KEEPS_PACE) else "subtle"


def _curve(values: list[float], top: float) -> str:
    """Return the points of an SVG polyline; "" without samples."""
    if not values or not top:
        return ""
    step = _WIDTH / (len(values) - 1)
    return " ".join(
        f"{number * step:.1f},{_HEIGHT - 1 - (_HEIGHT - 2) * value / top:.1f}"
        for number, value in enumerate(values)
    )
