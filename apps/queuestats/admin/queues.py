"""Pages of all queues, problems first, and of one queue over time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, pgettext
from django.views.decorators.http import require_GET

from apps.access.admin.base import ProjectScopedAdmin
from apps.access.admin.read_only import ReadOnly
from apps.queuestats.models import QueueState
from apps.queuestats.queries.queues import IN, OUT, READY, QueueLine, Queues, QueueStatus, queues_of
from apps.queuestats.texts import title_of

MEDIA: Final = ["dashboard/dashboard.css", "configcenter/configcenter.css", "queuestats/queues.css"]
_WIDTH: Final = 120.0
_HEIGHT: Final = 24.0
# Label and colour of each status.
LABELS: Final[dict[QueueStatus, tuple[Promise, str]]] = {
    QueueStatus.PROBLEM: (gettext_lazy("problem"), "bad"),
    QueueStatus.ABANDONED: (gettext_lazy("no consumer"), "bad"),
    QueueStatus.HELD: (gettext_lazy("needs attention"), "bad"),
    QueueStatus.BEHIND: (gettext_lazy("falling behind"), "warn"),
    QueueStatus.BUSY: (gettext_lazy("OK"), "good"),
    QueueStatus.EMPTY: (gettext_lazy("empty"), "plain"),
    QueueStatus.UNKNOWN: (gettext_lazy("unknown"), "plain"),
}
_WAYS: Final = {
    "in": gettext_lazy("external producers, read by routers"),
    "out": gettext_lazy("written by routers, external consumers"),
}


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One row of the page. ``curve``: points of SVG polylines, with gaps between them."""

    line: QueueLine
    title: Promise | str
    label: Promise
    tone: str
    curve: list[str]
    link: str

    @property
    def way(self) -> Promise | str:
        """Producers and consumers, where one side is external."""
        return _WAYS.get(self.line.row.way, "")


@dataclass(frozen=True, slots=True)
class QueuesPage:
    """Content of the page of all queues."""

    lines: list[QueueRow]
    troubled: list[QueueRow]
    found: Queues


@admin.register(QueueState)
class QueueStateAdmin(ReadOnly, ProjectScopedAdmin):
    """Replaces the list by a page of its own, and the form by a page of one queue."""

    class Media:
        css = {"all": MEDIA}

    def get_urls(self) -> list[URLPattern]:
        """Add the live fragments and the page of one queue."""
        views = (
            ("live", self.live_view, "queuestats_queues_live"),
            ("queue", self.queue_view, "queuestats_queue"),
            ("queue/live", self.queue_live_view, "queuestats_queue_live"),
        )
        own = [
            path(address, self.admin_site.admin_view(require_GET(view)), name=name)
            for address, view, name in views
        ]
        return [*own, *super().get_urls()]

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> None:
        """Return None: rows have no form."""

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Page of all visible queues."""
        context = self._frame(request, gettext_lazy("Queues")) | {"view": self._view(request)}
        return TemplateResponse(request, "queuestats/queues.html", context)

    def live_view(self, request: HttpRequest) -> HttpResponse:
        """Live part of the page of all queues."""
        return TemplateResponse(
            request, "queuestats/queues_live.html", {"view": self._view(request)}
        )

    def queue_view(self, request: HttpRequest) -> HttpResponse:
        """Page of one queue: its status, and charts of its length and rates."""
        shown = self._one(request)
        context = self._frame(request, shown.line.row.name) | {
            "shown": shown,
            "subtitle": shown.title or None,
            "live": f"{reverse('admin:queuestats_queue_live')}?{_query(shown.line.row)}",
            "length": points_address(shown.line.row, READY),
            "flows": [
                {"source": points_address(shown.line.row, IN), "title": pgettext("flow", "in")},
                {"source": points_address(shown.line.row, OUT), "title": pgettext("flow", "out")},
            ],
        }
        return TemplateResponse(request, "queuestats/queue.html", context)

    def queue_live_view(self, request: HttpRequest) -> HttpResponse:
        """Live part of the page of one queue."""
        return TemplateResponse(
            request, "queuestats/queue_live.html", {"shown": self._one(request)}
        )

    def _frame(self, request: HttpRequest, title: Promise | str) -> dict[str, Any]:
        context = self.admin_site.each_context(request)
        return {**context, "title": title, "media": self.media}

    def _view(self, request: HttpRequest) -> QueuesPage:
        queues = self._found(request)
        lines = [_shown(line) for line in queues.lines]
        troubled = {line.row.key for line in queues.troubled}
        return QueuesPage(lines, [row for row in lines if row.line.row.key in troubled], queues)

    def _one(self, request: HttpRequest) -> QueueRow:
        wanted = request.GET.get("project", ""), request.GET.get("name", "")
        for line in self._found(request).lines:
            project = "" if line.row.project_id is None else str(line.row.project_id)
            if (project, line.row.name) == wanted:
                return _shown(line)
        raise Http404

    def _found(self, request: HttpRequest) -> Queues:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return queues_of(request.user, now=_now())


def _now() -> datetime:
    return timezone.now()


def _shown(line: QueueLine) -> QueueRow:
    label, tone = LABELS[line.standing]
    return QueueRow(
        line=line,
        title=title_of(line.row.name),
        label=label,
        tone=tone,
        curve=curves(line.spark),
        link=f"{reverse('admin:queuestats_queue')}?{_query(line.row)}",
    )


def _query(row: QueueState) -> str:
    return urlencode({"project": row.project_id or "", "name": row.name})


def points_address(row: QueueState, series: str) -> str:
    """Return the REST URL of the points of one series of a queue."""
    base = f"projects/{row.project_id}/series" if row.project_id else "series"
    return f"/api/v1/{base}/points?{urlencode({'name': series, 'label': row.name})}"


def curves(values: list[float | None]) -> list[str]:
    """Return the points of one SVG polyline for each stretch of values without a gap."""
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    step = _WIDTH / max(len(values) - 1, 1)
    parts: list[list[str]] = [[]]
    for number, value in enumerate(values):
        if value is None:
            parts.append([])
            continue
        height = _HEIGHT - 1 - (_HEIGHT - 2) * value / top
        parts[-1].append(f"{number * step:.1f},{height:.1f}")
    # A single point becomes a line of zero length, visible by its round ends.
    return [" ".join(part if len(part) > 1 else part * 2) for part in parts if part]
