"""Admin of jobs: list, form, start and clone."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import F, Model, OuterRef, QuerySet, Subquery
from django.forms import Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_POST
from unfold.decorators import display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.base import person_of, projects_of
from apps.access.admin.deleted import RestorableAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.jobs import services
from apps.jobs.admin.forms import JobForm
from apps.jobs.admin.job_actions import JobActions
from apps.jobs.admin.job_filters import JobImageFilter, TagFilter
from apps.jobs.admin.job_import import import_page
from apps.jobs.admin.links import JobLinkInline
from apps.jobs.admin.schedule import schedule_page
from apps.jobs.admin.spiders import drawn_fields
from apps.jobs.arguments import parse_arguments
from apps.jobs.errors import JobRunning
from apps.jobs.models import Job, Run
from apps.jobs.states import STATUS_TONES, OverlapPolicy, RunState, outcome_of
from apps.projects.models import Project

FIELDSETS = (
    (None, {"fields": (("project", "name"), ("tags", "enabled"), "notes")}),
    (
        _("Image or command"),
        {"classes": ["tab"], "fields": ("image", "spider", "command", "arguments", "frontier")},
    ),
    (
        _("Schedule"),
        {"classes": ["tab"], "fields": (("cron", "time_zone"), ("overlap", "misfire"))},
    ),
    (_("Environment"), {"classes": ["tab"], "fields": ("environment", "secrets")}),
    (
        _("Speed and agents"),
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
                ("verify_tls", "tls_minimum", "tls_maximum"),
                ("use_cookies", "cookies"),
                ("keep_pages", "pages_sample", "pages_days"),
            ),
        },
    ),
    (
        _("Outgoing IPs"),
        {
            "classes": ["tab"],
            "fields": (("use_proxy", "redial"), "switch_pattern", "switch_retries"),
        },
    ),
    (_("Encoding"), {"classes": ["tab"], "fields": (("encoding", "decode_html"), "cut")}),
    (
        _("Limits and hosts"),
        {
            "classes": ["tab"],
            "fields": (
                ("cpu_limit", "memory_limit_bytes"),
                ("max_run_seconds", "priority"),
                ("max_failed_percent", "max_exceptions", "min_items"),
                ("trial_required", "trial_lost_percent", "trial_changed_percent"),
                "host_labels",
            ),
        },
    ),
    (
        _("Retries and completion"),
        {
            "classes": ["tab"],
            "fields": (
                "retry_rules",
                ("request_timeout_seconds", "timeout_retries"),
                ("download_retries", "publish_retries"),
                "no_answer_seconds",
                "fed_from_outside",
            ),
        },
    ),
)


@admin.register(Job)
class JobAdmin(RestorableAdmin, JobActions, ProjectScopedAdmin):
    """Admin of jobs: editors change jobs, operators start them."""

    form = JobForm
    list_display_links = None
    list_display = (
        "title",
        "project",
        "program",
        "cron_text",
        "next_run",
        "enabled",
        "last_run",
        "last_state",
        "last_items",
        "start_button",
        "tag_list",
    )
    list_filter = (
        ("project", VisibleRelatedFilter),
        "enabled",
        TagFilter,
        JobImageFilter,
        "policy",
    )
    list_filter_submit = True
    list_select_related = ("project", "image", "schedule")
    search_fields = ("name", "spider", "notes")
    actions = (
        "start_now",
        "enable",
        "disable",
        "pause_runs",
        "resume_runs",
        "stop_runs",
        "clone_selected",
        "export_yaml",
        "export_csv",
    )
    list_per_page = 50
    fieldsets = FIELDSETS
    list_before_template = "admin/jobs/job/list_head.html"
    inlines = (JobLinkInline,)

    class Media:
        css = {"all": ["dashboard/dashboard.css", "jobs/jobs.css"]}
        js = [Script("jobs/spiders.js", defer=True)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Model]:
        """Annotate jobs with their newest run and next planned time."""
        newest = Run.objects.filter(job=OuterRef("pk")).order_by("-id")
        jobs = (
            super()
            .get_queryset(request)
            .annotate(
                newest_run=Subquery(newest.values("pk")[:1]),
                newest_state=Subquery(newest.values("state")[:1]),
                newest_total=Subquery(newest.values("requests_total")[:1]),
                newest_failed=Subquery(newest.values("requests_failed")[:1]),
                newest_items=Subquery(newest.values("items")[:1]),
                newest_exceptions=Subquery(newest.values("exceptions")[:1]),
                newest_retries=Subquery(newest.values("requests_of")[:1]),
                newest_failed_checks=Subquery(newest.values("failed_checks")[:1]),
                next_at=F("schedule__next_at"),
            )
        )
        return cast("QuerySet[Model]", jobs)

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Omit the column of buttons for users without permission to start jobs."""
        columns = tuple(super().get_list_display(request))
        if self.has_operate_permission(request):
            return columns
        return tuple(column for column in columns if column != "start_button")

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Limit the choice of images to projects of the user."""
        form = super().get_form(request, obj, change=change, **kwargs)
        form.projects = Project.objects.visible_to(request.user, Role.EDITOR)
        return form

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the buttons and of the import."""
        view = self.admin_site.admin_view
        return [
            path("<int:pk>/start", view(require_POST(self.start_view)), name="jobs_job_start"),
            path("<int:pk>/clone", view(require_POST(self.clone_view)), name="jobs_job_clone"),
            path("<int:pk>/schedule", view(self.schedule_view), name="jobs_job_schedule"),
            path("import", view(self.import_view), name="jobs_job_import"),
            path("spiders", view(require_GET(self.spiders_view)), name="jobs_job_spiders"),
            *super().get_urls(),
        ]

    # --- list -------------------------------------------------------------------------------------

    @display(description=_("name"), ordering="name")
    def title(self, job: Job) -> SafeString:
        """Link to the page of the job."""
        return format_html(
            '<a class="font-medium text-primary-600 dark:text-primary-500" href="{}">{}</a>',
            reverse("dashboard:job", args=[job.pk]),
            job.name,
        )

    @display(description=_("image, spider or command"))
    def program(self, job: Job) -> str:
        """Spider or command, and image."""
        program_text = job.spider or " ".join(job.command)
        parts = (job.image.reference if job.image else "", program_text[:60])
        return " · ".join(part for part in parts if part)

    @display(description=_("cron"), ordering="cron")
    def cron_text(self, job: Job) -> SafeString | str:
        """Cron expression and time zone."""
        if not job.cron:
            return ""
        text = '<code class="cy-oneline">{}</code><br>{}'
        return format_html(text, job.cron, job.time_zone)

    @display(description=_("next run"), ordering="next_at")
    def next_run(self, job: Any) -> SafeString | str:
        """Next planned time in the time zone of the page, without seconds."""
        if job.next_at is None or not job.enabled:
            return ""
        shown = timezone.localtime(job.next_at).strftime("%Y-%m-%d %H:%M")
        return format_html('<span class="cy-oneline">{}</span>', shown)

    @display(description=_("tags"))
    def tag_list(self, job: Job) -> SafeString:
        return format_html_join(" ", '<span class="cy-tag">{}</span>', ((tag,) for tag in job.tags))

    @display(description=_("last run"), ordering="newest_run")
    def last_run(self, job: Any) -> SafeString | str:
        """Link to the newest run."""
        if job.newest_run is None:
            return ""
        address = reverse("dashboard:run", args=[job.newest_run])
        return format_html('<a href="{}">#{}</a>', address, job.newest_run)

    @display(description=_("last state"), ordering="newest_state", label=STATUS_TONES)
    def last_state(self, job: Any) -> tuple[str, Any] | None:
        """Outcome or state of the newest run, with its colour."""
        if job.newest_state is None:
            return None
        outcome = outcome_of(
            job.newest_state,
            total=job.newest_total,
            failed=job.newest_failed,
            allowed_percent=job.max_failed_percent,
            exceptions=job.newest_exceptions,
            allowed_exceptions=job.max_exceptions,
            items=job.newest_items,
            least_items=None if job.newest_retries else job.min_items,
            failed_checks=job.newest_failed_checks,
        )
        status = outcome or RunState(job.newest_state)
        return status, status.label

    @display(description=_("items of the last run"), ordering="newest_items")
    def last_items(self, job: Any) -> SafeString | str:
        """Number of items of the newest run, as a link to them."""
        if job.newest_run is None:
            return ""
        address = reverse("datasets:run", args=[job.newest_run])
        shown = "–" if job.newest_items is None else f"{job.newest_items:,}"
        return format_html('<a class="cy-strong" href="{}">{}</a>', address, shown)

    @display(description=_("start"))
    def start_button(self, job: Job) -> SafeString | str:
        """Button to start the job; part of the list's form, which has the CSRF token."""
        if not job.enabled:
            return gettext("disabled")
        address = reverse("admin:jobs_job_start", args=[job.pk])
        return render_to_string("admin/jobs/start_button.html", {"address": address})

    # --- saving -----------------------------------------------------------------------------------

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save through the services, which update the schedule and the audit trail."""
        if obj.project_id not in projects_of(request, Role.EDITOR):
            raise PermissionDenied
        person, now = person_of(request), timezone.now()
        if not change:
            values = {name: form.cleaned_data[name] for name in form.cleaned_data}
            values |= {"secrets": form.secret_changes, "cookies": obj.cookies}
            made = services.create_job(values=values, actor=person, now=now)
            obj.pk, obj._state.adding = made.pk, False
            return
        values = {name: getattr(obj, name) for name in form.changed_data if name != "secrets"}
        if form.secret_changes:
            values["secrets"] = form.secret_changes
        if values:
            stored = Job.objects.get(pk=obj.pk)
            services.update_job(job=stored, values=values, actor=person, now=now)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save the links; ``save_model`` has recorded the job already."""
        for formset in formsets:
            self.save_formset(request, form, formset, change)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        services.delete_job(job=obj, actor=person_of(request))

    # --- buttons ----------------------------------------------------------------------------------

    def start_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Start a job with the entered arguments and show its run."""
        job = self._job(request, pk, Role.OPERATOR)
        job_page = HttpResponseRedirect(reverse("dashboard:job", args=[pk]))
        try:
            arguments = parse_arguments(request.POST.get("arguments", ""))
            overlap = request.POST.get("overlap", "")
            run = services.start_run(
                job=job,
                now=timezone.now(),
                actor=person_of(request),
                arguments=arguments or None,
                overlap=overlap if overlap in OverlapPolicy else None,
            )
        except ValidationError as error:
            messages.error(
                request, gettext("Arguments: %(problem)s") % {"problem": error.messages[0]}
            )
            return job_page
        except JobRunning as error:
            messages.error(request, error.text)
            # The page offers what can be done about it.
            return HttpResponseRedirect(f"{job_page.url}?active={error.run}")
        except DomainError as error:
            messages.error(request, error.text)
            return job_page
        return HttpResponseRedirect(reverse("dashboard:run", args=[run.pk]))

    def clone_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Clone a job and show the clone."""
        job = self._job(request, pk, Role.EDITOR)
        try:
            clone = services.clone_job(job=job, actor=person_of(request), now=timezone.now())
        except DomainError as error:
            messages.error(request, error.text)
            return HttpResponseRedirect(reverse("dashboard:job", args=[pk]))
        text = gettext("This is the clone of %(name)s. It is disabled until you enable it.")
        messages.success(request, text % {"name": job.name})
        return HttpResponseRedirect(reverse("admin:jobs_job_change", args=[clone.pk]))

    def import_view(self, request: HttpRequest) -> HttpResponse:
        """Show the import page."""
        context = {**self.admin_site.each_context(request), "opts": self.opts, "media": self.media}
        return import_page(request, context)

    def schedule_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the schedule of a job; editors change it."""
        role = Role.EDITOR if request.method == "POST" else Role.VIEWER
        job = self._job(request, pk, role)
        context = self.admin_site.each_context(request)
        context |= {"job": job, "may_edit": job.project_id in projects_of(request, Role.EDITOR)}
        return schedule_page(request, job, context)

    def spiders_view(self, request: HttpRequest) -> HttpResponse:
        """Return the fields of spider and arguments for an image and a spider."""
        if not self.has_edit_permission(request):
            raise PermissionDenied
        form_class = self.get_form(request)
        chosen = {name: request.GET.get(name, "") for name in ("image", "spider")}
        form = form_class(initial=chosen)
        drawn = drawn_fields("arguments", form.fields["arguments"].declared, {})
        return JsonResponse({"spider": str(form["spider"]), "arguments": str(drawn)})

    def _job(self, request: HttpRequest, pk: int, role: Role) -> Job:
        rows = Job.objects.visible_to(request.user).select_related("project")
        job: Job | None = rows.filter(pk=pk).first()
        if job is None:
            raise Http404
        if job.project_id not in projects_of(request, role):
            raise PermissionDenied
        return job

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the list of jobs, for editors with a link to the import."""
        extra = {"may_import": self.has_edit_permission(request)}
        kwargs["extra_context"] = {**(kwargs.get("extra_context") or {}), **extra}
        return super().changelist_view(request, *args, **kwargs)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the form below the tabs of the job."""
        extra = dict(extra_context or {})
        job = cast("Any", self.get_object(request, object_id))
        if job is not None:
            extra["preview"] = f"{reverse('admin:agents_agent_preview')}?job={job.pk}"
            extra["may_start"] = job.project_id in projects_of(request, Role.OPERATOR)
            extra["may_clone"] = job.project_id in projects_of(request, Role.EDITOR)
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))

    def response_post_save_add(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Show the page of the new job."""
        return HttpResponseRedirect(reverse("dashboard:job", args=[obj.pk]))

    def response_post_save_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Show the page of the job."""
        return HttpResponseRedirect(reverse("dashboard:job", args=[obj.pk]))
