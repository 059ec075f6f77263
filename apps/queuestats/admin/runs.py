"""Admin of runs with their totals; here because apps.jobs must not import counters."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import DurationField, ExpressionWrapper, F, Q, QuerySet
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import smart_split, unescape_string_literal
from django.utils.translation import gettext, ngettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.contrib.filters.admin import ChoicesDropdownFilter, FieldTextFilter, RangeDateTimeFilter
from unfold.decorators import action, display

from apps.access.admin import ProjectScopedAdmin, ask_first, asks_first
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.bulk import by_role, show_refusals
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.lists import MOST_COUNTED, BoundedList
from apps.access.admin.read_only import ReadOnly
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.jobs.models import Job, Run
from apps.jobs.services import act_on_run, act_on_runs, tune_run
from apps.jobs.states import STATUS_TONES, STOPPABLE, RunAsk, RunState
from apps.queuestats.admin.runs_csv import write_runs
from apps.queuestats.queries import run_totals

_N = TypeVar("_N", int, float)

MAX_ID: Final = 2**63 - 1
# States whose reason is searched; succeeded runs have none.
UNSUCCESSFUL: Final = (RunState.FAILED, RunState.LOST, RunState.CANCELLED)
# Reasons are searched in the newest runs of each state only: substrings have no index.
SEARCHED_REASONS: Final = 2_000
_LINK: Final = "font-medium text-primary-600 dark:text-primary-500"
# Runs that have not ended come as the shortest ones.
_DURATION: Final = Coalesce(
    ExpressionWrapper(F("ended_at") - F("started_at"), output_field=DurationField()), timedelta(0)
)
# Commands by the URL of their button.
BUTTONS: Final = {
    "stop": RunAsk.EXIT,
    "pause": RunAsk.PAUSE,
    "resume": RunAsk.RESUME,
    "restart": RunAsk.RESTART,
    "freeze": RunAsk.FREEZE,
    "thaw": RunAsk.THAW,
}
# Confirmation page of a command: verb, what is lost, whether it is final.
_QUESTIONS: Final = {
    RunAsk.EXIT: (_("Stop"), _("Pending requests of this run are not downloaded."), True),
    RunAsk.RESTART: (_("Restart"), _("The run starts again from its first page."), True),
    RunAsk.FREEZE: (
        _("Freeze"),
        _("The host suspends this run. Requests in flight may time out."),
        False,
    ),
}


class RunList(BoundedList):
    """List of runs; one more query reads the totals of the whole page."""

    def get_results(self, request: HttpRequest) -> None:
        """Set ``totals`` of each run of this page."""
        super().get_results(request)
        runs: list[Any] = list(self.result_list)  # type: ignore[has-type]  # set by the parent
        totals = run_totals(run.owner for run in runs)
        for run in runs:
            run.totals = totals[run.owner]
        self.result_list = runs


@admin.register(Run)
class RunAdmin(ReadOnly, ProjectScopedAdmin):
    """List of runs, with commands such as pause and stop; jobs start runs."""

    list_display = (
        "page",
        "project",
        "state_label",
        "items",
        "left",
        "total",
        "success",
        "failed",
        "started",
        "duration",
        "stop_button",
    )
    list_display_links = None
    list_filter = (
        ("state", ChoicesDropdownFilter),
        ("trigger", ChoicesDropdownFilter),
        ("job__project", VisibleRelatedFilter),
        ("job", VisibleRelatedFilter),
        ("host", FieldTextFilter),
        ("created_at", RangeDateTimeFilter),
    )
    list_filter_submit = True
    list_select_related = ("job__project",)
    search_fields = ("job__name", "=id", "requested_by", "reason")
    search_help_text = _(
        "Job name, run number, person, or reason of a failed, lost or cancelled run (newest 2,000 "
        "of each)."
    )
    actions = (
        "pause_selected",
        "resume_selected",
        "restart_selected",
        "stop_selected",
        "export_csv",
    )
    list_per_page = 50

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RunList]:
        """Return the list class that reads totals."""
        return RunList

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the command buttons."""
        buttons = [
            path(
                f"<int:pk>/{name}",
                self.admin_site.admin_view(
                    require_POST(partial(self.command_view, command=command))
                ),
                name=f"jobs_run_{name}",
            )
            for name, command in BUTTONS.items()
        ]
        tune = self.admin_site.admin_view(require_POST(self.tune_view))
        buttons.append(path("<int:pk>/tune", tune, name="jobs_run_tune"))
        return [*buttons, *super().get_urls()]

    def get_search_results(
        self, request: HttpRequest, queryset: Any, search_term: str
    ) -> tuple[Any, bool]:
        """Find runs by job name, number, person, or reason; each word must match.

        Reasons are searched in the newest unsuccessful runs only. Every condition uses an index:
        there may be millions of runs.
        """
        term = search_term.strip()
        if not term:
            return queryset, False
        words = [
            unescape_string_literal(word) if word[0] in "\"'" else word
            for word in smart_split(term)
        ]
        names, reasons = Q(), Q()
        for word in words:
            names &= Q(name__icontains=word)
            reasons &= Q(reason__icontains=word)
        jobs = list(Job.objects.visible_to(request.user).filter(names).values_list("pk", flat=True))
        # One query per state, and the person first: SQLite uses the index on (state, -id) only for
        # a single state, and not for values that most rows share.
        unhappy = [
            queryset.filter(state=state).order_by("-id")[:SEARCHED_REASONS]
            for state in UNSUCCESSFUL
        ]
        theirs = Run.objects.filter(requested_by=term).order_by("-id")[: MOST_COUNTED + 1]
        # Evaluated here once; as subqueries the list and its count would each evaluate them.
        known = Run.objects.order_by().values_list("pk", flat=True)
        by_reason = [known.filter(reasons, pk__in=newest.values("pk")) for newest in unhappy]
        pks = set(known.filter(pk__in=theirs.values("pk")).union(*by_reason))
        if term.isascii() and term.isdigit() and len(term) < 20 and int(term) <= MAX_ID:
            pks.add(int(term))
        condition = Q(job__in=jobs) | Q(pk__in=pks)
        return queryset.filter(condition), False

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Hide the stop button from users who may not operate runs."""
        columns = tuple(super().get_list_display(request))
        if self.has_operate_permission(request):
            return columns
        return tuple(column for column in columns if column != "stop_button")

    @display(description=_("run"), ordering="id")
    def page(self, run: Run) -> SafeString | str:
        return _link(run)

    @display(description=_("project"), ordering="job__project__name")
    def project(self, run: Run) -> str:
        return str(run.job.project)

    @display(description=_("state"), ordering="state", label=STATUS_TONES)
    def state_label(self, run: Run) -> tuple[str, str]:
        return run.status, str(run.status.label)

    @display(description=_("Pending"))
    def left(self, run: Any) -> str:
        return f"{run.totals.left:,}"

    @display(description=pgettext_lazy("data", "Items"), ordering=Coalesce("items", 0))
    def items(self, run: Any) -> SafeString:
        """Number of items, as a link to them."""
        address = reverse("datasets:run", args=[run.pk])
        return format_html(
            '<a class="{}" href="{}">{}</a>', _LINK, address, f"{run.totals.items:,}"
        )

    @display(description=_("Total"), ordering=Coalesce("requests_total", 0))
    def total(self, run: Any) -> str:
        return f"{run.totals.total:,}"

    @display(description=_("Succeeded"))
    def success(self, run: Any) -> str:
        return f"{run.totals.success:,}"

    @display(description=_("Failed"), ordering=Coalesce("requests_failed", 0))
    def failed(self, run: Any) -> SafeString | str:
        """Number of failed requests, as a link to them."""
        if not run.totals.failed:
            return "0"
        style = "font-medium text-red-700 dark:text-red-400"
        address = reverse("datasets:run-requests", args=[run.pk]) + "?filter=outcome:equals:failed"
        return format_html(
            '<a class="{}" href="{}">{}</a>', style, address, f"{run.totals.failed:,}"
        )

    @display(description=_("started at"), ordering="started_at")
    def started(self, run: Run) -> str:
        """Start time to the second, in the server's time zone."""
        if run.started_at is None:
            return "–"
        return timezone.localtime(run.started_at).strftime("%Y-%m-%d %H:%M:%S")

    @display(description=_("duration"), ordering=_DURATION)
    def duration(self, run: Run) -> str:
        """Duration so far, or in total, as h:mm:ss."""
        if run.started_at is None:
            return "–"
        until: datetime = run.ended_at or timezone.now()
        minutes, second = divmod(max(0, int((until - run.started_at).total_seconds())), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{second:02}"

    @display(description=_("stop"))
    def stop_button(self, run: Run) -> SafeString | str:
        """Button in the list's own form, which has the CSRF token."""
        if run.state not in STOPPABLE:
            return ""
        address = reverse("admin:jobs_run_stop", args=[run.pk])
        return render_to_string("admin/jobs/stop_button.html", {"address": address})

    @action(description=_("Pause"), permissions=["operate"])
    def pause_selected(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        done = self._command_each(request, queryset, RunAsk.PAUSE)
        _say(
            request,
            done,
            ngettext("%(count)d run is pausing.", "%(count)d runs are pausing.", done),
        )

    @action(description=_("Resume"), permissions=["operate"])
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        done = self._command_each(request, queryset, RunAsk.RESUME)
        _say(
            request,
            done,
            ngettext("%(count)d run is resuming.", "%(count)d runs are resuming.", done),
        )

    @action(description=_("Restart"), permissions=["operate"])
    @asks_first(verb=_("Restart"), loss=_("The runs start again from their first page."))
    def restart_selected(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        done = self._command_each(request, queryset, RunAsk.RESTART)
        _say(
            request,
            done,
            ngettext("%(count)d run is restarting.", "%(count)d runs are restarting.", done),
        )

    @action(description=_("Stop"), permissions=["operate"])
    @asks_first(verb=_("Stop"), loss=_("Pending requests are not downloaded."))
    def stop_selected(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        done = self._command_each(request, queryset, RunAsk.EXIT)
        _say(
            request,
            done,
            ngettext("%(count)d run is stopping.", "%(count)d runs are stopping.", done),
        )

    @action(description=_("Export as CSV"))
    def export_csv(self, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse:
        """Export the selected runs with their figures, for spreadsheets."""
        response = HttpResponse(content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = 'attachment; filename="runs.csv"'
        write_runs(queryset.select_related("job__project"), response)
        return response

    def _command_each(self, request: HttpRequest, queryset: QuerySet[Run], command: RunAsk) -> int:
        """Send a command to each run that the person may operate; show why others fail."""
        runs = queryset.select_related("job__project")
        mine, reasons = by_role(request, runs, Role.OPERATOR, lambda run: run.job.project)
        outcome = act_on_runs(
            runs=mine, action=command, now=timezone.now(), actor=person_of(request)
        )
        show_refusals(request, reasons + [refusal.detail for refusal in outcome.refused])
        return len(outcome.done)

    def command_view(self, request: HttpRequest, pk: int, *, command: RunAsk) -> HttpResponse:
        """Send a command to one run, after a confirmation if anything is lost; show its page."""
        run = _operated(request, pk)
        back = reverse("dashboard:run", args=[pk])
        if command in _QUESTIONS:
            verb, loss, final = _QUESTIONS[command]
            page = ask_first(
                request, verb=verb, loss=loss, ids=[pk], names=[run], back=back, final=final
            )
            if page is not None:
                return page
        try:
            act_on_run(run=run, action=command, now=timezone.now(), actor=person_of(request))
        except DomainError as error:
            messages.warning(request, error.text)
        return HttpResponseRedirect(back)

    def tune_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Change the concurrency and speed of a run, and show its page."""
        run = _operated(request, pk)
        try:
            tune_run(
                run=run,
                concurrency=_number(request.POST.get("concurrency", ""), int),
                speed=_number(request.POST.get("speed", ""), float),
                now=timezone.now(),
                actor=person_of(request),
            )
        except ValueError:
            messages.warning(request, gettext("Window and requests per second must be numbers."))
        except DomainError as error:
            messages.warning(request, error.text)
        return HttpResponseRedirect(reverse("dashboard:run", args=[pk]))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Lead to the page of the run, the only one."""
        if not object_id.isdecimal():
            raise Http404
        return HttpResponseRedirect(reverse("dashboard:run", args=[int(object_id)]))


def _link(run: Run) -> SafeString:
    address = reverse("dashboard:run", args=[run.pk])
    return format_html('<a class="{}" href="{}">{}</a>', _LINK, address, run)


def _operated(request: HttpRequest, pk: int) -> Run:
    """Return the run; 404 or 403 unless the person may operate it."""
    visible = Run.objects.visible_to(request.user).select_related("job__project")
    run = visible.filter(pk=pk).first()
    if run is None:
        raise Http404
    if run.job.project_id not in projects_of(request, Role.OPERATOR):
        raise PermissionDenied
    return run


def _number(text: str, kind: type[_N]) -> _N | None:
    """Parse a number; None if empty. Raises ``ValueError``."""
    return kind(text.strip()) if text.strip() else None


def _say(request: HttpRequest, count: int, text: str) -> None:
    if count:
        messages.success(request, text % {"count": count})
