"""POST handlers behind the buttons of a frontier's pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.admin.base import person_of
from apps.access.admin.confirm import ask_first
from apps.access.services import record
from apps.access.states import Role
from apps.seeds import services
from apps.seeds.admin.frontier_page import segment_line
from apps.seeds.admin.look_up import is_segment
from apps.seeds.admin.refusals import PATIENCE_SECONDS, REFUSALS, text_of
from apps.seeds.admin.scope import FrontierScope, page_of, rest_of
from apps.seeds.models import Frontier, Operation, SegmentReport
from apps.seeds.queries import totals_of
from apps.seeds.states import OperationKind


class FrontierActions(FrontierScope):
    """Buttons of a frontier's pages: operators manage seeds, editors drop segments, admins wipe."""

    # --- pause and resume -----------------------------------------------------------------------

    def pause_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Pause the frontier: seeds are still added, but none is leased."""
        text = _("Paused. No more seeds are leased.")
        return self._hand_out(request, pk, paused=True, text=text)

    def resume_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Resume leasing of the frontier's seeds."""
        text = _("Resumed. Seeds are leased again.")
        return self._hand_out(request, pk, paused=False, text=text)

    def _hand_out(self, request: HttpRequest, pk: int, *, paused: bool, text: str) -> HttpResponse:
        frontier = self.frontier(request, pk, Role.OPERATOR)

        def do() -> None:
            services.update_frontier(
                frontier=frontier, values={"is_paused": paused}, actor=person_of(request)
            )

        return self._done(request, do, text, page_of(pk))

    # --- one seed -------------------------------------------------------------------------------

    def reopen_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Make a finished seed pending again."""
        return self._seed(
            request, pk, services.reopen, "reopen", _("The seed will be crawled again.")
        )

    def forget_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Delete a seed after confirmation, so that its key counts as new."""
        frontier, key = self.frontier(request, pk, Role.OPERATOR), request.POST.get("key", "")
        segment = self._segment(request.POST.get("segment", ""))
        confirmation = ask_first(
            request,
            verb=_("Forget"),
            loss=_("The state of this seed is deleted, and its key counts as new."),
            ids=[f"{segment} {key}"],
            names=[key],
            back=reverse("admin:seeds_frontier_look_up", args=[frontier.pk]),
        )
        if confirmation is not None:
            return confirmation
        text = _("Forgotten: its key counts as new.")
        return self._seed(request, pk, services.forget, "forget", text)

    def _seed(
        self,
        request: HttpRequest,
        pk: int,
        service: Callable[[Frontier, int, str], None],
        verb: str,
        text: str,
    ) -> HttpResponse:
        frontier = self.frontier(request, pk, Role.OPERATOR)
        segment, key = self._segment(request.POST.get("segment", "")), request.POST.get("key", "")

        def do() -> None:
            service(frontier, segment, key)
            record(
                actor=person_of(request),
                action=f"seeds.{verb}",
                obj=frontier,
                after={"segment": segment, "seed": key},
            )

        return self._done(request, do, text, reverse("admin:seeds_frontier_look_up", args=[pk]))

    # --- many seeds -----------------------------------------------------------------------------

    def reopen_failed_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Reopen the failed seeds of a segment in the current segment."""
        frontier = self.frontier(request, pk, Role.OPERATOR)
        arguments = {"source": self._segment(request.POST.get("segment", ""))}
        return self._start(request, frontier, OperationKind.REOPEN_FAILED, arguments)

    def drop_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show what a segment contains (GET), then delete it (POST)."""
        frontier = self.frontier(request, pk, Role.EDITOR)
        parameters = request.POST if request.method == "POST" else request.GET
        segment = self._segment(parameters.get("segment", ""))
        if request.method == "POST":
            arguments = {"segment": segment, "leased_too": "leased_too" in request.POST}
            return self._start(request, frontier, OperationKind.DROP, arguments)
        report = SegmentReport.objects.filter(frontier=frontier, segment=segment).first()
        if report is None:
            raise Http404
        context = self.page_context(request, frontier, "overview", _("Drop a segment"))
        context["line"] = segment_line(report, frontier, timezone.now())
        return TemplateResponse(request, "admin/seeds/frontier/drop.html", context)

    def wipe_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Delete all seeds of the frontier; its name must be typed as confirmation."""
        frontier = self.frontier(request, pk, Role.ADMIN)
        typed = request.POST.get("name", "").strip()
        if request.method == "POST" and typed == frontier.name:
            arguments = {"leased_too": "leased_too" in request.POST}
            return self._start(request, frontier, OperationKind.WIPE, arguments)
        context = self.page_context(request, frontier, "overview", _("Wipe the URL queue"))
        context |= {
            "totals": totals_of([frontier.pk])[frontier.pk],
            "typed": typed,
            "is_wrong": request.method == "POST",
        }
        return TemplateResponse(request, "admin/seeds/frontier/wipe.html", context)

    def export_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Export all seeds, or those of one segment; show an error if the seed service is down."""
        frontier = self.frontier(request, pk)
        segment_text = request.GET.get("segment")
        query = (
            {"gzip": "true"} if segment_text is None else {"segment": self._segment(segment_text)}
        )
        try:
            services.show_segments(frontier, timeout=PATIENCE_SECONDS)
        except REFUSALS as error:
            messages.error(request, text_of(error))
            return HttpResponseRedirect(page_of(pk))
        return HttpResponseRedirect(f"{rest_of(frontier, 'export')}?{urlencode(query)}")

    def cancel_view(self, request: HttpRequest, pk: int, operation: int) -> HttpResponse:
        """Cancel an operation; the current slice is still completed."""
        frontier = self.frontier(request, pk, Role.OPERATOR)
        row = Operation.objects.filter(frontier=frontier, pk=operation).first()
        if row is None:
            raise Http404

        def do() -> None:
            services.cancel_operation(row, actor=person_of(request))

        return self._done(request, do, _("Cancelled: what is done stays done."), page_of(pk))

    # --- results ---------------------------------------------------------------------------------

    def _start(
        self, request: HttpRequest, frontier: Frontier, kind: str, arguments: dict[str, Any]
    ) -> HttpResponse:
        def do() -> None:
            services.start_operation(frontier, kind, arguments, actor=person_of(request))

        text = _("Started. Progress is shown on the page.")
        return self._done(request, do, text, page_of(frontier.pk))

    def _done(
        self, request: HttpRequest, do: Callable[[], None], text: str, back: str
    ) -> HttpResponse:
        try:
            do()
        except REFUSALS as error:
            messages.error(request, text_of(error))
        else:
            messages.success(request, text)
        return HttpResponseRedirect(back)

    def _segment(self, text: str) -> int:
        if not is_segment(text):
            raise Http404
        return int(text)
