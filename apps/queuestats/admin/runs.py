"""Runs in the admin, with their totals. Here and not in apps.jobs, which knows no counters."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import smart_split, unescape_string_literal
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.contrib.filters.admin import ChoicesDropdownFilter, FieldTextFilter
from unfold.decorators import action, display

from apps.access.admin import ProjectScopedAdmin, ask_first, asks_first
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.bulk import by_role, tell_refusals
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.lists import MOST_COUNTED, BoundedList, renamed
from apps.access.admin.read_only import ReadOnly
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.jobs.models import Job, Run
from apps.jobs.services import act_on_run, act_on_runs, tune_run
from apps.jobs.states import STATUS_TONES, STOPPABLE, RunAsk, RunState
from apps.queuestats.queries import run_totals

_N = TypeVar("_N", int, float)

MAX_ID: Final = 2**63 - 1
# Of these the reason is searched; one that exited has none.
UNHAPPY: Final = (RunState.FAILED, RunState.LOST, RunState.CANCELLED)
# Among so many of each, the newest: a text within reasons is in no index.
SEARCHED_REASONS: Final = 2_000
# The addresses of the buttons, and what each asks.
BUTTONS: Final = {
    "stop": RunAsk.EXIT,
    "pause": RunAsk.PAUSE,
    "resume": RunAsk.RESUME,
    "restart": RunAsk.RESTART,
    "freeze": RunAsk.FREEZE,
    "thaw": RunAsk.THAW,
}
# What each question is answered with, what is lost, whether for good.
_QUESTIONS: Final = {
    RunAsk.EXIT: (_("Stop"), _("What this run has not downloaded yet stays undone."), True),
    RunAsk.RESTART: (_("Restart"), _("This run begins with its first page again."), True),
    RunAsk.FREEZE: (
        _("Freeze"),
        _("The host halts this run. What it is downloading just now may time out."),
        False,
    ),
}


class RunList(BoundedList):
    """The list of runs; one more query brings the totals of the whole page."""

    def get_results(self, request: HttpRequest) -> None:
        """Runs of this page, each with ``totals``."""
        super().get_results(request)
        runs: list[Any] = list(self.result_list)  # type: ignore[has-type]  # set by the parent
        totals = run_totals(run.owner for run in runs)
        for run in runs:
            run.totals = totals[run.owner]
        self.result_list = runs


@admin.register(Run)
class RunAdmin(ReadOnly, ProjectScopedAdmin):
    """Runs are made by starting a job; here they are found, looked at, paused and stopped."""

    list_display = (
        "page",
        "project",
        "state_label",
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
    )
    list_filter_submit = True
    list_select_related = ("job__project",)
    search_fields = ("job__name", "=id", "requested_by", "reason")
    search_help_text = _(
        "A job's name, a number, a person, or why a run failed, was lost or was cancelled (of the "
        "newest 2,000 of each)."
    )
    actions = ("pause_selected", "resume_selected", "restart_selected", "stop_selected")
    list_per_page = 50
    # Two in a row: beside the sidebar more of them would lie on each other.
    fields = (
        ("job", "project"),
        ("state", "reason"),
        ("trigger", "requested_by"),
        ("created_at", "attempt"),
        ("repeats", "follows"),
        ("waits_on", "not_before"),
        ("placed_at", "waiting_reason"),
        ("started_at", "ended_at"),
        ("duration", "exit_code"),
        ("image_reference", "image_digest"),
        ("host", "container"),
        ("process", "boot"),
        ("restarts", "frozen"),
        "seen_at",
        "arguments_text",
    )
    readonly_fields = (
        *("project", "duration", "arguments_text", "repeats", "follows", "waits_on"),
        *("process", "seen_at"),
    )
    process = renamed("pid", _("process id"))
    seen_at = renamed("watched_at", _("last seen by its host at"))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RunList]:
        """The list that knows the totals."""
        return RunList

    def get_urls(self) -> list[URLPattern]:
        """The addresses of the buttons."""
        buttons = [
            path(
                f"<int:pk>/{name}",
                self.admin_site.admin_view(require_POST(partial(self.ask_view, what=what))),
                name=f"jobs_run_{name}",
            )
            for name, what in BUTTONS.items()
        ]
        tune = self.admin_site.admin_view(require_POST(self.tune_view))
        buttons.append(path("<int:pk>/tune", tune, name="jobs_run_tune"))
        return [*buttons, *super().get_urls()]

    def get_search_results(
        self, request: HttpRequest, queryset: Any, search_term: str
    ) -> tuple[Any, bool]:
        """Runs of jobs in whose name every word is, by a number or by a person.

        And of the newest that did not end well those with every word in the reason. Each is
        found by an index: there may be millions.
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
        # State by state, and a person's before all else: SQLite takes an index for the newest only
        # of one value, and for values that most rows share only where it tells all that is asked.
        unhappy = [queryset.filter(state=one).order_by("-id")[:SEARCHED_REASONS] for one in UNHAPPY]
        theirs = Run.objects.filter(requested_by=term).order_by("-id")[: MOST_COUNTED + 1]
        # Asked for once, where the list and its count would each ask again.
        known = Run.objects.order_by().values_list("pk", flat=True)
        why = [known.filter(reasons, pk__in=newest.values("pk")) for newest in unhappy]
        pks = set(known.filter(pk__in=theirs.values("pk")).union(*why))
        if term.isascii() and term.isdigit() and len(term) < 20 and int(term) <= MAX_ID:
            pks.add(int(term))
        found = Q(job__in=jobs) | Q(pk__in=pks)
        return queryset.filter(found), False

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Without the buttons for those who may not press them."""
        columns = tuple(super().get_list_display(request))
        if self.has_operate_permission(request):
            return columns
        return tuple(column for column in columns if column != "stop_button")

    @display(description=_("run"), ordering="id")
    def page(self, run: Run) -> SafeString | str:
        """The live page of the run."""
        return _link(run)

    @display(description=_("project"), ordering="job__project__name")
    def project(self, run: Run) -> str:
        """The project of the job."""
        return str(run.job.project)

    @display(description=_("state"), ordering="state", label=STATUS_TONES)
    def state_label(self, run: Run) -> tuple[str, str]:
        """The outcome or state, coloured."""
        return run.status, str(run.status.label)

    @display(description=_("Pending"))
    def left(self, run: Any) -> str:
        """Not yet finished (seed S1.19)."""
        return f"{run.totals.left:,}"

    @display(description=_("Total"))
    def total(self, run: Any) -> str:
        """Distinct requests so far."""
        return f"{run.totals.total:,}"

    @display(description=_("Succeeded"))
    def success(self, run: Any) -> str:
        """Answered and handled."""
        return f"{run.totals.success:,}"

    @display(description=_("Failed"))
    def failed(self, run: Any) -> SafeString | str:
        """Failed for good."""
        if not run.totals.failed:
            return "0"
        style = "font-medium text-red-700 dark:text-red-400"
        return format_html('<span class="{}">{}</span>', style, f"{run.totals.failed:,}")

    @display(description=_("started at"), ordering="started_at")
    def started(self, run: Run) -> str:
        """Date and time to the second, in the server's time zone."""
        if run.started_at is None:
            return "–"
        return timezone.localtime(run.started_at).strftime("%Y-%m-%d %H:%M:%S")

    @display(description=_("duration"))
    def duration(self, run: Run) -> str:
        """How long it has run, or ran, as h:mm:ss."""
        if run.started_at is None:
            return "–"
        until: datetime = run.ended_at or timezone.now()
        minutes, second = divmod(max(0, int((until - run.started_at).total_seconds())), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{second:02}"

    @display(description=_("stop"))
    def stop_button(self, run: Run) -> SafeString | str:
        """A button of the list's own form, which already carries the CSRF token."""
        if run.state not in STOPPABLE:
            return ""
        address = reverse("admin:jobs_run_stop", args=[run.pk])
        return render_to_string("admin/jobs/stop_button.html", {"address": address})

    @display(description=_("repeats"))
    def repeats(self, run: Run) -> SafeString | str:
        """The attempt before this one."""
        return _link(run.retry_of)

    @display(description=_("follows"))
    def follows(self, run: Run) -> SafeString | str:
        """The run by whose end it was queued."""
        return _link(run.caused_by)

    @display(description=_("waits for"))
    def waits_on(self, run: Run) -> SafeString | str:
        """The run that has to end first."""
        return _link(run.waits_for)

    @display(description=_("arguments"))
    def arguments_text(self, run: Run) -> SafeString:
        """The arguments the spider received, indented."""
        text = json.dumps(run.arguments, indent=2, ensure_ascii=False)
        return format_html('<pre class="whitespace-pre-wrap">{}</pre>', text)

    @action(description=_("Pause"), permissions=["operate"])
    def pause_selected(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        """Pause every selected run."""
        done = self._ask_each(request, queryset, RunAsk.PAUSE)
        _say(
            request,
            done,
            ngettext(
                "%(count)d run is asked to pause.", "%(count)d runs are asked to pause.", done
            ),
        )

    @action(description=_("Resume"), permissions=["operate"])
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        """Let every selected run go on."""
        done = self._ask_each(request, queryset, RunAsk.RESUME)
        _say(
            request,
            done,
            ngettext(
                "%(count)d run is asked to go on.", "%(count)d runs are asked to go on.", done
            ),
        )

    @action(description=_("Restart"), permissions=["operate"])
    @asks_first(verb=_("Restart"), loss=_("They begin with their first page again."))
    def restart_selected(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        """Have every selected run start anew."""
        done = self._ask_each(request, queryset, RunAsk.RESTART)
        _say(
            request,
            done,
            ngettext("%(count)d run is starting anew.", "%(count)d runs are starting anew.", done),
        )

    @action(description=_("Stop"), permissions=["operate"])
    @asks_first(verb=_("Stop"), loss=_("What they have not downloaded yet stays undone."))
    def stop_selected(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        """Stop every selected run."""
        done = self._ask_each(request, queryset, RunAsk.EXIT)
        _say(
            request,
            done,
            ngettext("%(count)d run is stopping.", "%(count)d runs are stopping.", done),
        )

    def _ask_each(self, request: HttpRequest, queryset: QuerySet[Run], what: RunAsk) -> int:
        """Ask all that the person may ask, and say why the others are not."""
        runs = queryset.select_related("job__project")
        mine, reasons = by_role(request, runs, Role.OPERATOR, lambda run: run.job.project)
        tally = act_on_runs(runs=mine, action=what, now=timezone.now(), actor=person_of(request))
        tell_refusals(request, reasons + [refusal.detail for refusal in tally.refused])
        return len(tally.done)

    def ask_view(self, request: HttpRequest, pk: int, *, what: RunAsk) -> HttpResponse:
        """Ask one run and show its page; what something is lost by has a question before it."""
        run = _operated(request, pk)
        back = reverse("dashboard:run", args=[pk])
        if what in _QUESTIONS:
            verb, loss, final = _QUESTIONS[what]
            page = ask_first(
                request, verb=verb, loss=loss, ids=[pk], names=[run], back=back, final=final
            )
            if page is not None:
                return page
        try:
            act_on_run(run=run, action=what, now=timezone.now(), actor=person_of(request))
        except DomainError as error:
            messages.warning(request, error.text)
        return HttpResponseRedirect(back)

    def tune_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Give one run another pace and show its page."""
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
            messages.warning(request, gettext("Window and speed are numbers."))
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
        """The fields of the row; the live page is one click away."""
        extra = dict(extra_context or {})
        run = cast("Run | None", self.get_object(request, object_id))
        if run is not None:
            may_operate = run.job.project_id in projects_of(request, Role.OPERATOR)
            extra["may_stop"] = may_operate and run.state in STOPPABLE
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))


def _link(run: Run | None) -> SafeString | str:
    if run is None:
        return "-"
    address = reverse("dashboard:run", args=[run.pk])
    style = "font-medium text-primary-600 dark:text-primary-500"
    return format_html('<a class="{}" href="{}">{}</a>', style, address, run)


def _operated(request: HttpRequest, pk: int) -> Run:
    """The run, for somebody who may operate it."""
    visible = Run.objects.visible_to(request.user).select_related("job__project")
    run = visible.filter(pk=pk).first()
    if run is None:
        raise Http404
    if run.job.project_id not in projects_of(request, Role.OPERATOR):
        raise PermissionDenied
    return run


def _number(text: str, kind: type[_N]) -> _N | None:
    """What was typed; None for nothing. Raises ``ValueError``."""
    return kind(text.strip()) if text.strip() else None


def _say(request: HttpRequest, count: int, text: str) -> None:
    if count:
        messages.success(request, text % {"count": count})
