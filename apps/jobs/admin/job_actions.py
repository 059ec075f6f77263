"""Bulk actions on jobs: one service call per job, with counts and reasons of refusals."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action

from apps.access.admin.base import person_of, projects_of
from apps.access.admin.bulk import by_role, show_refusals
from apps.access.admin.confirm import asks_first
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.jobs import services
from apps.jobs.engine.portable import CONTENT_TYPES, MAX_JOBS, JobFileFormat
from apps.jobs.models import Job
from apps.jobs.services import portable

Do = Callable[[Job], int]


class ActionRefused(Exception):
    """An action on a job was refused; the text is the reason in one sentence."""


class JobActions:
    """Mixin with the bulk actions of the list of jobs."""

    def has_edit_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may change jobs in at least one project."""
        return bool(projects_of(request, Role.EDITOR))

    @action(description=_("Start now"), permissions=["operate"])
    def start_now(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Start the selected jobs."""

        def do(job: Job) -> int:
            services.start_run(job=job, now=timezone.now(), actor=person_of(request))
            return 1

        started = _each(request, queryset, Role.OPERATOR, do)
        _say(
            request,
            started,
            ngettext("%(count)d run was started.", "%(count)d runs were started.", started),
        )

    @action(description=_("Enable"), permissions=["edit"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Enable the selected jobs."""
        count = _each(request, queryset, Role.EDITOR, _switch(request, on=True))
        _say(
            request,
            count,
            ngettext("%(count)d job was enabled.", "%(count)d jobs were enabled.", count),
        )

    @action(description=_("Disable"), permissions=["edit"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Disable the selected jobs; active runs continue."""
        count = _each(request, queryset, Role.EDITOR, _switch(request, on=False))
        _say(
            request,
            count,
            ngettext("%(count)d job was disabled.", "%(count)d jobs were disabled.", count),
        )

    @action(description=_("Pause their runs"), permissions=["operate"])
    def pause_runs(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Pause the active runs of the selected jobs."""
        count = _each(request, queryset, Role.OPERATOR, _ask(request, services.pause_job))
        _say(
            request,
            count,
            ngettext(
                "%(count)d run was asked to pause.", "%(count)d runs were asked to pause.", count
            ),
        )

    @action(description=_("Resume their runs"), permissions=["operate"])
    def resume_runs(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Resume the active runs of the selected jobs."""
        count = _each(request, queryset, Role.OPERATOR, _ask(request, services.resume_job))
        _say(
            request,
            count,
            ngettext(
                "%(count)d run was asked to resume.", "%(count)d runs were asked to resume.", count
            ),
        )

    @action(description=_("Stop their runs"), permissions=["operate"])
    @asks_first(
        verb=_("Stop their runs"),
        loss=_(
            "Every active run of these jobs is stopped; pages that are not downloaded "
            "yet are skipped."
        ),
    )
    def stop_runs(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Stop the active runs of the selected jobs."""
        count = _each(request, queryset, Role.OPERATOR, _ask(request, services.stop_job))
        _say(
            request,
            count,
            ngettext(
                "%(count)d run was asked to stop.", "%(count)d runs were asked to stop.", count
            ),
        )

    @action(description=_("Clone"), permissions=["edit"])
    def clone_selected(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Add a disabled clone of each selected job."""

        def do(job: Job) -> int:
            services.clone_job(job=job, actor=person_of(request), now=timezone.now())
            return 1

        count = _each(request, queryset, Role.EDITOR, do)
        _say(
            request,
            count,
            ngettext(
                "%(count)d job was cloned; the clone is disabled.",
                "%(count)d jobs were cloned; the clones are disabled.",
                count,
            ),
        )

    @action(description=_("Export as YAML"), permissions=["view"])
    def export_yaml(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        """Export the selected jobs as YAML, for editing and version control."""
        return _file(queryset, JobFileFormat.YAML)

    @action(description=_("Export as CSV"), permissions=["view"])
    def export_csv(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        """Export the selected jobs as CSV, for spreadsheets."""
        return _file(queryset, JobFileFormat.CSV)


def _each(request: HttpRequest, queryset: QuerySet[Job], role: Role, do: Do) -> int:
    """Call ``do`` for every job where the user has the role; return the sum of its results."""
    rows = queryset.select_related("project", "image")
    mine, reasons = by_role(request, rows, role, lambda job: job.project)
    done = 0
    for job in mine:
        try:
            done += do(job)
        except ActionRefused as refused:
            reasons.append(str(refused))
        except DomainError as error:
            reasons.append(error.text)
    show_refusals(request, reasons)
    return done


def _say(request: HttpRequest, count: int, text: str) -> None:
    if count:
        messages.success(request, text % {"count": count})


def _switch(request: HttpRequest, *, on: bool) -> Do:
    def do(job: Job) -> int:
        if job.enabled == on:
            text = (
                gettext("Job %(name)s is enabled.") if on else gettext("Job %(name)s is disabled.")
            )
            raise ActionRefused(text % {"name": job.name})
        values = {"enabled": on}
        services.update_job(job=job, values=values, actor=person_of(request), now=timezone.now())
        return 1

    return do


def _ask(request: HttpRequest, service: Callable[..., services.RunActionResult]) -> Do:
    def do(job: Job) -> int:
        tally = service(job=job, now=timezone.now(), actor=person_of(request))
        reasons = [refusal.detail for refusal in tally.refused]
        if not tally.done:
            nothing = gettext("Job %(name)s has no active run.") % {"name": job.name}
            raise ActionRefused(" ".join(reasons) or nothing)
        for reason in reasons:
            messages.error(request, reason)
        return len(tally.done)

    return do


def _file(queryset: QuerySet[Job], kind: JobFileFormat) -> HttpResponse:
    rows = queryset.select_related("project", "image").order_by("project__slug", "name")
    text = portable.export_jobs(rows[: MAX_JOBS + 1], kind)
    headers = {"Content-Disposition": f'attachment; filename="jobs.{kind.value}"'}
    return HttpResponse(text, content_type=CONTENT_TYPES[kind], headers=headers)
