"""Re-balancing in the admin: preview, start, progress, cancel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.access.admin.base import person_of
from apps.access.states import Role
from apps.requeststore.admin.scope import REFUSALS, BizScope, page_of, text_of
from apps.requeststore.models import Rebalance
from apps.requeststore.queries.stories import moment
from apps.requeststore.services.rebalance_plan import Cursor, cursor_of
from apps.requeststore.services.rebalance_preview import preview
from apps.requeststore.services.rebalances import cancel_rebalance, start_rebalance
from apps.requeststore.services.store import BoundBiz, shared_request_store
from apps.requeststore.states import RebalanceState

SHOWN: Final = 5
# A running re-balance without progress for this long has no worker.
SILENT_SECONDS: Final = 60.0
TONES: Final = {
    RebalanceState.RUNNING: "info",
    RebalanceState.DONE: "success",
    RebalanceState.FAILED: "danger",
    RebalanceState.CANCELLED: "warning",
}


@dataclass(frozen=True, slots=True)
class RebalanceLine:
    """Table row of one re-balance."""

    row: Rebalance
    cursor: Cursor
    is_silent: bool

    @property
    def tone(self) -> str:
        """Return the badge colour of the state."""
        return TONES[RebalanceState(self.row.state)]

    @property
    def is_active(self) -> bool:
        """Return whether the re-balance is running."""
        return self.row.state == RebalanceState.RUNNING

    @property
    def percent(self) -> float | None:
        """Return the share of requests examined; None while the total is unknown."""
        if self.row.state == RebalanceState.DONE:
            return 100.0
        total = self.cursor.total
        return min(100.0, 100.0 * self.cursor.seen / total) if total > 0 else None


class RebalancePages(BizScope):
    """Views of re-balances: viewers see them, editors start and cancel them."""

    def rebalance_view(self, request: HttpRequest, key: str) -> HttpResponse:
        """Show the preview (GET) or start a re-balance (POST)."""
        role = Role.EDITOR if request.method == "POST" else Role.VIEWER
        bound = self.bound(request, key, role)
        if request.method == "POST":
            return self._start(request, bound)
        rebalance, problem = None, ""
        try:
            rebalance = preview(bound, shared_request_store())
        except REFUSALS as error:
            problem = text_of(error)
        context = self.biz_context(
            request,
            bound,
            "rebalance",
            _("Re-balance"),
            preview=rebalance,
            problem=problem,
            epochs=_epochs(bound),
            **_going(bound),
        )
        return TemplateResponse(request, "admin/requeststore/rebalance.html", context)

    def rebalance_live_view(self, request: HttpRequest, key: str) -> HttpResponse:
        """Render the part of the page that changes."""
        bound = self.bound(request, key)
        context = self.biz_context(request, bound, "rebalance", "", **_going(bound))
        return TemplateResponse(request, "admin/requeststore/rebalance_live.html", context)

    def cancel_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Cancel a running re-balance."""
        self.expect_view(request)
        row = Rebalance.objects.visible_to(request.user).filter(pk=pk).first()
        if row is None:
            raise Http404
        bound = self.bound(request, f"{row.project_id}.{row.biz}", Role.EDITOR)
        try:
            cancel_rebalance(row, actor=person_of(request))
        except REFUSALS as error:
            return self.refused(request, error, page_of(bound, "rebalance"))
        messages.success(
            request,
            gettext("Re-balance cancelled. Requests that were moved stay in their new shards."),
        )
        return HttpResponseRedirect(page_of(bound, "rebalance"))

    def _start(self, request: HttpRequest, bound: BoundBiz) -> HttpResponse:
        back = page_of(bound, "rebalance")
        try:
            start_rebalance(project_id=bound.project_id, biz=bound.name, actor=person_of(request))
        except REFUSALS as error:
            return self.refused(request, error, back)
        messages.success(request, gettext("Re-balance started. Progress is shown on this page."))
        return HttpResponseRedirect(back)


def _going(bound: BoundBiz) -> dict[str, Any]:
    """Return the newest re-balances of a biz; one query."""
    now = timezone.now()
    rows = Rebalance.objects.filter(project_id=bound.project_id, biz=bound.name)[:SHOWN]
    lines = [
        RebalanceLine(
            row,
            cursor_of(row),
            row.state == RebalanceState.RUNNING
            and (now - row.stepped_at).total_seconds() > SILENT_SECONDS,
        )
        for row in rows
    ]
    newest = lines[0] if lines else None
    done = newest is not None and newest.row.state == RebalanceState.DONE
    # Only expired requests are left in the places of older epochs.
    is_over = done and len(bound.settings.epochs) > 1
    return {"lines": lines, "is_over": is_over}


def _epochs(bound: BoundBiz) -> list[dict[str, Any]]:
    now = shared_request_store().now()
    return [
        {
            "since": moment(epoch.since),
            "splits": epoch.splits,
            "nodes": ", ".join(epoch.nodes),
            "balance": str(epoch.balance),
            "to_come": epoch.since > now,
        }
        for epoch in bound.settings.epochs
    ]
