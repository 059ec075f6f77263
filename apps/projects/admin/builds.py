"""Admin of builds: list, live page with steps and log, buttons."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, cast

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.forms import Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_POST
from unfold.contrib.filters.admin import FieldTextFilter
from unfold.decorators import action, display

from apps.access.admin.base import ProjectScopedAdmin, person_of, projects_of
from apps.access.admin.bulk import by_role, do_each
from apps.access.admin.confirm import ask_first, asks_first
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.projects.admin.images import spiders_context
from apps.projects.errors import AlreadyBuilt
from apps.projects.models import Build, Project
from apps.projects.services import build_tag, cancel_build, rebuild
from apps.projects.states import BUILD_FINAL, BUILD_TONES, BuildState, BuildStep

SHOWN_REASON: Final = 120
MAX_TAG: Final = 250


@admin.register(Build)
class BuildAdmin(ReadOnly, ProjectScopedAdmin):
    """Read-only admin of builds; operators cancel and repeat them."""

    list_display = (
        "tag",
        "project",
        "state_label",
        "step_label",
        "short_reason",
        "requested_by",
        "attempt",
        "took",
        "created_at",
    )
    list_select_related = ("project",)
    list_filter = (("project", VisibleRelatedFilter), "state", ("tag", FieldTextFilter))
    list_filter_submit = True
    search_fields = ("tag", "=commit", "requested_by", "worker")
    list_per_page = 50
    actions = ("cancel_selected", "rebuild_selected")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("project", "tag"),
                    ("release", "name", "version"),
                    ("commit", "requested_by"),
                    ("attempt", "repeats_link", "no_cache"),
                    ("worker", "created_at"),
                )
            },
        ),
    )
    readonly_fields = ("repeats_link",)
    change_form_outer_before_template = "admin/projects/build/head.html"

    class Media:
        css = {"all": ["dashboard/dashboard.css", "projects/projects.css"]}
        js = [Script("projects/build.js", defer=True)]

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the buttons and of the live fragment."""
        view = self.admin_site.admin_view
        return [
            path(
                "<int:pk>/cancel",
                view(require_POST(self.cancel_view)),
                name="projects_build_cancel",
            ),
            path(
                "<int:pk>/rebuild",
                view(require_POST(self.rebuild_view)),
                name="projects_build_rebuild",
            ),
            path("<int:pk>/live", view(require_GET(self.live_view)), name="projects_build_live"),
            path(
                "of/<int:project>", view(require_POST(self.build_view)), name="projects_build_tag"
            ),
            *super().get_urls(),
        ]

    # --- columns ----------------------------------------------------------------------------------

    @display(description=_("state"), ordering="state", label=BUILD_TONES)
    def state_label(self, build: Build) -> tuple[str, Any]:
        """State with its colour."""
        return build.state, BuildState(build.state).label

    @admin.display(description=_("step"), ordering="step")
    def step_label(self, build: Build) -> str:
        """Current step, or the step at which the build ended."""
        return str(BuildStep(build.step).label) if build.step else "–"

    @admin.display(description=_("reason"))
    def short_reason(self, build: Build) -> str:
        """Reason, shortened."""
        return Truncator(build.reason).chars(SHOWN_REASON) or "–"

    @admin.display(description=_("took"))
    def took(self, build: Build) -> str:
        """Duration of the build, so far or in total."""
        if build.started_at is None:
            return "–"
        return clock(build.started_at, build.ended_at or timezone.now())

    @admin.display(description=_("repeats"))
    def repeats_link(self, build: Build) -> SafeString | str:
        """Link to the original build of a repeated build."""
        if build.repeats_id is None:
            return "–"
        address = reverse("admin:projects_build_change", args=[build.repeats_id])
        return format_html('<a class="cy-strong" href="{}">#{}</a>', address, build.repeats_id)

    # --- page of one build ------------------------------------------------------------------------

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the build with its steps, its log and the allowed buttons."""
        extra = dict(extra_context or {})
        build = cast("Build | None", self.get_object(request, object_id))
        if build is not None:
            extra |= live_context(build)
            may = build.project_id in projects_of(request, Role.OPERATOR)
            extra["may_cancel"] = may and build.state in (BuildState.QUEUED, BuildState.RUNNING)
            extra["may_rebuild"] = may and build.state in BUILD_FINAL
        return cast(HttpResponse, super().change_view(request, object_id, form_url, extra))

    def live_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the part of a build's page that refreshes itself."""
        build = self._build(request, pk, Role.VIEWER)
        return TemplateResponse(request, "admin/projects/build/live.html", live_context(build))

    def cancel_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Cancel a build after a confirmation."""
        build = self._build(request, pk, Role.OPERATOR)
        page = ask_first(
            request,
            verb=gettext("Cancel the build"),
            loss=gettext("The work done so far is discarded."),
            ids=[pk],
            names=[build],
            back=reverse("admin:projects_build_change", args=[pk]),
        )
        if page is not None:
            return page
        try:
            cancel_build(build=build, now=timezone.now(), actor=person_of(request))
        except DomainError as error:
            messages.error(request, error.text)
        return HttpResponseRedirect(reverse("admin:projects_build_change", args=[pk]))

    def rebuild_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Repeat a build and show the new build."""
        build = self._build(request, pk, Role.OPERATOR)
        try:
            build = rebuild(
                build=build,
                now=timezone.now(),
                actor=person_of(request),
                no_cache="cache" not in request.POST,
            )
        except DomainError as error:
            messages.error(request, error.text)
            build = getattr(error, "build", build)
        return HttpResponseRedirect(reverse("admin:projects_build_change", args=[build.pk]))

    def build_view(self, request: HttpRequest, project: int) -> HttpResponse:
        """Build a tag of the project and show the build."""
        row = Project.objects.visible_to(request.user).filter(pk=project).first()
        if row is None:
            raise Http404
        if project not in projects_of(request, Role.OPERATOR):
            raise PermissionDenied
        tag = request.POST.get("tag", "")[: MAX_TAG + 1]
        try:
            build = build_tag(project=row, tag=tag, now=timezone.now(), actor=person_of(request))
        except AlreadyBuilt as error:
            messages.warning(request, error.text)
            build = error.build
        except DomainError as error:
            messages.error(request, error.text)
            return HttpResponseRedirect(reverse("admin:projects_project_tags", args=[project]))
        return HttpResponseRedirect(reverse("admin:projects_build_change", args=[build.pk]))

    # --- bulk actions -----------------------------------------------------------------------------

    @action(description=_("Cancel"), permissions=["operate"])
    @asks_first(verb=_("Cancel the builds"), loss=_("The work done so far is discarded."))
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Build]) -> None:
        """Cancel the selected active builds; show the reasons of refusals."""
        done = self._each(request, queryset, cancel_build)
        if done:
            text = ngettext(
                "%(count)d build was cancelled.", "%(count)d builds were cancelled.", done
            )
            messages.success(request, text % {"count": done})

    @action(description=_("Build again"), permissions=["operate"])
    def rebuild_selected(self, request: HttpRequest, queryset: QuerySet[Build]) -> None:
        """Repeat the selected ended builds."""
        done = self._each(request, queryset, rebuild)
        if done:
            text = ngettext("%(count)d build was queued.", "%(count)d builds were queued.", done)
            messages.success(request, text % {"count": done})

    def _each(self, request: HttpRequest, queryset: QuerySet[Build], do: Callable[..., Any]) -> int:
        now, actor = timezone.now(), person_of(request)
        rows = queryset.select_related("project")
        mine, refused = by_role(request, rows, Role.OPERATOR, lambda build: build.project)
        return do_each(
            request,
            mine,
            lambda build: do(build=build, now=now, actor=actor),
            named=True,
            refused=refused,
        )

    def _build(self, request: HttpRequest, pk: int, role: Role) -> Build:
        rows = Build.objects.visible_to(request.user).select_related("project", "image")
        build = rows.filter(pk=pk).first()
        if build is None:
            raise Http404
        if build.project_id not in projects_of(request, role):
            raise PermissionDenied
        return build


def live_context(build: Build) -> dict[str, Any]:
    """Return the context of the part of a build's page that refreshes itself."""
    now = timezone.now()
    known = {step.get("step"): step for step in build.steps}
    steps = []
    for step in BuildStep:
        if step == BuildStep.NONE:
            continue
        times = known.get(step.value)
        started = _time(times, "started_at")
        ended = _time(times, "ended_at")
        steps.append(
            {
                "label": step.label,
                "started_at": started,
                "took": clock(started, ended or now) if started else "",
                "tone": _tone(build, step, started, ended),
            }
        )
    image = getattr(build, "image", None)
    return {
        "build": build,
        "steps": steps,
        "state_label": BuildState(build.state).label,
        "state_tone": BUILD_TONES[BuildState(build.state)],
        "image": image,
        **spiders_context(image),
    }


def _tone(build: Build, step: BuildStep, started: datetime | None, ended: datetime | None) -> str:
    if started is None:
        return "default"
    if build.step == step and build.state in BUILD_FINAL:
        return BUILD_TONES[BuildState(build.state)]
    return "info" if ended is None else "success"


def _time(times: dict[str, Any] | None, name: str) -> datetime | None:
    text = (times or {}).get(name)
    return datetime.fromisoformat(text) if text else None


def clock(started: datetime, ended: datetime) -> str:
    """Return a duration as ``1:02:03`` or ``2:03``."""
    seconds = max(timedelta(0), ended - started) // timedelta(seconds=1)
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
