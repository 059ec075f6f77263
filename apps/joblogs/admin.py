"""Admin of log retention, and the link to the page of error groups."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.admin.read_only import ReadOnly
from apps.joblogs.models import ErrorGroup, LogPolicy


@admin.register(LogPolicy)
class LogPolicyAdmin(ProjectScopedAdmin):
    """Retention of log lines by project and job; the settings are the default."""

    list_display = ("subject", "project", "kept_days", "kept_quiet", "kept_size")
    list_select_related = ("project", "job")
    list_filter = (("project", VisibleRelatedFilter),)
    fields = ("project", "job", ("days", "quiet_days"), "max_bytes")

    @display(description=_("job"), ordering="job__name")
    def subject(self, policy: LogPolicy) -> Any:
        """The job, or all other jobs of the project."""
        return policy.job.name if policy.job else _("all other jobs and builds")

    @display(description=_("days"), ordering="days")
    def kept_days(self, policy: LogPolicy) -> str:
        """Days for which lines are kept; a dash means the project's or installation's default."""
        return _or_dash(policy.days)

    @display(description=_("days for low levels"), ordering="quiet_days")
    def kept_quiet(self, policy: LogPolicy) -> str:
        """Days for which quiet lines are kept; a dash means the default."""
        return _or_dash(policy.quiet_days)

    @display(description=_("size limit"), ordering="max_bytes")
    def kept_size(self, policy: LogPolicy) -> str:
        """Maximum size of a job's lines; a dash means the default."""
        return "–" if policy.max_bytes is None else filesizeformat(policy.max_bytes)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Make project and job read-only after creation."""
        return ("project", "job") if obj is not None else ()


@admin.register(ErrorGroup)
class ErrorGroupAdmin(ReadOnly, ProjectScopedAdmin):
    """Link to the page of error groups, shown to people with permission to view them."""

    def changelist_view(self, request: HttpRequest, /, *args: Any, **kwargs: Any) -> HttpResponse:
        """Redirect to the page of error groups."""
        return HttpResponseRedirect(reverse("joblogs:errors"))

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Redirect to the page of error groups."""
        return HttpResponseRedirect(reverse("joblogs:errors"))


def _or_dash(value: int | None) -> str:
    return "–" if value is None else str(value)
