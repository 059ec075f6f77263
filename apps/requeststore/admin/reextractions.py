"""Extraction from kept pages in the admin: selection, start, progress, cancel."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.access.admin.base import person_of
from apps.access.states import Role
from apps.datasets.queries.kept_pages import biz_page_accounting
from apps.requeststore.admin.forms import ExtractForm
from apps.requeststore.admin.scope import REFUSALS, BizScope, page_of
from apps.requeststore.engine.limits import MAX_BATCH, MAX_ID, MAX_TS
from apps.requeststore.engine.moments import ts_of
from apps.requeststore.models import Reextraction
from apps.requeststore.services.reextractions import cancel_reextraction, start_reextraction
from apps.requeststore.services.store import BoundBiz
from apps.requeststore.states import ReextractionState

SHOWN: Final = 10
TONES: Final = {
    ReextractionState.RUNNING: "info",
    ReextractionState.DONE: "success",
    ReextractionState.FAILED: "danger",
    ReextractionState.CANCELLED: "warning",
}


class ReextractionPages(BizScope):
    """Views of re-extractions: viewers see them, operators start and cancel them."""

    def extract_view(self, request: HttpRequest, key: str) -> HttpResponse:
        """Show the kept pages and past re-extractions (GET), or start one (POST)."""
        role = Role.OPERATOR if request.method == "POST" else Role.VIEWER
        bound = self.bound(request, key, role)
        form = ExtractForm(request.POST or None, bound.settings)
        if request.method == "POST" and form.is_valid():
            return self._start_extraction(request, bound, form)
        context = self.biz_context(
            request,
            bound,
            "extract",
            _("Extract again"),
            form=form,
            pages=bound.settings.pages,
            **_extractions(bound),
        )
        return TemplateResponse(request, "admin/requeststore/extract.html", context)

    def extract_live_view(self, request: HttpRequest, key: str) -> HttpResponse:
        """Render the part of the page that changes."""
        bound = self.bound(request, key)
        context = self.biz_context(request, bound, "extract", "", **_extractions(bound))
        return TemplateResponse(request, "admin/requeststore/extract_live.html", context)

    def extract_cancel_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Cancel a running re-extraction."""
        self.expect_view(request)
        row = Reextraction.objects.visible_to(request.user).filter(pk=pk).first()
        if row is None:
            raise Http404
        bound = self.bound(request, f"{row.project_id}.{row.biz}", Role.OPERATOR)
        try:
            cancel_reextraction(row, actor=person_of(request))
        except REFUSALS as error:
            return self.refused(request, error, page_of(bound, "extract"))
        messages.success(request, gettext("Cancelled. Records that are stored stay."))
        return HttpResponseRedirect(page_of(bound, "extract"))

    def _start_extraction(
        self, request: HttpRequest, bound: BoundBiz, form: ExtractForm
    ) -> HttpResponse:
        back = page_of(bound, "extract")
        ids = None
        if "selected" in request.POST:
            ids = [int(text) for text in request.POST.getlist("id") if text.isdecimal()]
            ids = [number for number in ids[:MAX_BATCH] if 0 < number <= MAX_ID]
            if not ids:
                messages.error(request, gettext("Select at least one request."))
                return HttpResponseRedirect(page_of(bound, "requests"))
        try:
            start_reextraction(
                project_id=bound.project_id,
                biz=bound.name,
                ids=ids,
                flag=form.cleaned_data["flag"],
                since=ts_of(form.cleaned_data["since"], 0),
                until=ts_of(form.cleaned_data["until"], MAX_TS),
                actor=person_of(request),
            )
        except REFUSALS as error:
            return self.refused(request, error, back)
        messages.success(request, gettext("Extraction started. Progress is shown on this page."))
        return HttpResponseRedirect(back)


def _extractions(bound: BoundBiz) -> dict[str, Any]:
    rows = Reextraction.objects.filter(project_id=bound.project_id, biz=bound.name)[:SHOWN]
    return {
        "lines": [(row, TONES[ReextractionState(row.state)], _percent(row)) for row in rows],
        "kept": biz_page_accounting(bound.project_id, bound.name),
    }


def _percent(row: Reextraction) -> float | None:
    if row.state == ReextractionState.DONE:
        return 100.0
    return min(100.0, 100.0 * row.seen / row.total) if row.total else None
