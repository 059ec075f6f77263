"""Jobs in the admin: configure one, and start it with one click."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST
from unfold.decorators import action, display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.jobs.admin.forms import JobForm
from apps.jobs.models import Job, Run
from apps.jobs.services import start_run
from apps.jobs.states import TONES, RunState

LATEST_RUNS = 8


@admin.register(Job)
class JobAdmin(ProjectScopedAdmin):
    """What to run. Editors change it, operators start it."""

    form = JobForm
    list_display = (
        "name",
        "project",
        "spider",
        "enabled",
        "last_run",
        "last_state",
        "start_button",
    )
    list_filter = (("project", VisibleRelatedFilter), "enabled", "policy")
    list_filter_submit = True
    list_select_related = ("project",)
    search_fields = ("name", "spider", "notes")
    actions = ("start_now",)
    list_per_page = 50
    fieldsets = (
        (None, {"fields": ("project", "name", "spider", "arguments", "enabled", "notes")}),
        (
            _("Pace and agents"),
            {
                "classes": ["tab"],
                "fields": (("speed", "concurrency"), ("policy", "agents"), "obey_robots"),
            },
        ),
        (
            _("Downloader"),
            {
                "classes": ["tab"],
                "fields": (
                    ("downloader", "impersonate"),
                    ("timeout_seconds", "max_body_bytes"),
                    ("follow_redirects", "max_redirects"),
                    "user_agent",
                    ("use_cookies", "cookies"),
                ),
            },
        ),
        (
            _("Addresses"),
            {
                "classes": ["tab"],
                "fields": (("use_proxy", "redial"), "switch_pattern", "switch_retries"),
            },
        ),
        (_("Text"), {"classes": ["tab"], "fields": (("encoding", "decode_html"), "cut")}),
        (
            _("Retries and end"),
            {
                "classes": ["tab"],
                "fields": (
                    ("request_timeout_seconds", "timeout_retries"),
                    "download_retries",
                    "fed_from_outside",
                ),
            },
        ),
    )
    change_form_outer_after_template = "admin/jobs/job/latest_runs.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Jobs with the id and the state of their newest run."""
        newest = Run.objects.filter(job=OuterRef("pk")).order_by("-id")
        jobs = (
            super()
            .get_queryset(request)
            .annotate(
                newest_run=Subquery(newest.values("pk")[:1]),
                newest_state=Subquery(newest.values("state")[:1]),
            )
        )
        return cast("QuerySet[Model]", jobs)

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Without the buttons for those who may not press them."""
        columns = tuple(super().get_list_display(request))
        if self.has_operate_permission(request):
            return columns
        return tuple(column for column in columns if column != "start_button")

    def get_urls(self) -> list[URLPattern]:
        """One more address: the start button's."""
        start = self.admin_site.admin_view(require_POST(self.start_view))
        return [path("<int:pk>/start", start, name="jobs_job_start"), *super().get_urls()]

    @display(description=_("last run"), ordering="newest_run")
    def last_run(self, job: Any) -> SafeString | str:
        """A link to the page of the newest run."""
        if job.newest_run is None:
            return ""
        address = reverse("dashboard:run", args=[job.newest_run])
        return format_html('<a href="{}">#{}</a>', address, job.newest_run)

    @display(description=_("last state"), ordering="newest_state", label=TONES)
    def last_state(self, job: Any) -> tuple[str, Any] | None:
        """The newest run's state, coloured."""
        return job.newest_state and (job.newest_state, RunState(job.newest_state).label)

    @display(description=_("start"))
    def start_button(self, job: Job) -> SafeString | str:
        """A button of the list's own form, which already carries the CSRF token."""
        if not job.enabled:
            return gettext("disabled")
        address = reverse("admin:jobs_job_start", args=[job.pk])
        return render_to_string("admin/jobs/start_button.html", {"address": address})

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether there is a project whose jobs the person may start."""
        return bool(projects_of(request, Role.OPERATOR))

    @action(description=_("Start now"), permissions=["operate"])
    def start_now(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Start every selected job and say how many started, and why the others did not."""
        started = 0
        for job in queryset.select_related("project"):
            if job.project_id not in projects_of(request, Role.OPERATOR):
                text = gettext("%(job)s: your role in %(project)s does not allow to start it.")
                messages.error(request, text % {"job": job, "project": job.project})
                continue
            try:
                start_run(job=job, now=timezone.now(), actor=person_of(request))
                started += 1
            except DomainError as error:
                messages.error(request, error.text)
        if started:
            text = ngettext("%(count)d run was started.", "%(count)d runs were started.", started)
            messages.success(request, text % {"count": started})

    def start_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Start one job and go to the page of its run."""
        job = Job.objects.visible_to(request.user).select_related("project").filter(pk=pk).first()
        if job is None:
            raise Http404
        if job.project_id not in projects_of(request, Role.OPERATOR):
            raise PermissionDenied
        try:
            run = start_run(job=job, now=timezone.now(), actor=person_of(request))
        except DomainError as error:
            messages.error(request, error.text)
            return HttpResponseRedirect(reverse("admin:jobs_job_change", args=[pk]))
        return HttpResponseRedirect(reverse("dashboard:run", args=[run.pk]))

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The form, with the start button above and the newest runs below."""
        extra = dict(extra_context or {})
        job = cast("Job | None", self.get_object(request, object_id))
        if job is not None:
            extra["latest_runs"] = list(job.runs.select_related("job")[:LATEST_RUNS])
            extra["run_tones"] = TONES
            extra["preview"] = f"{reverse('admin:agents_agent_preview')}?job={job.pk}"
            extra["may_start"] = job.project_id in projects_of(request, Role.OPERATOR)
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))
