"""Admin pages of a project's router: its status, and the editor of its rules."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET, require_POST

from apps.projects.admin.project_choice import ChosenProjectAdmin, ProjectChoice
from apps.routing.admin import rules
from apps.routing.admin.overview import OutboundPage, overview
from apps.routing.models import RouterReport
from apps.routing.queries.tracks import KIND

MEDIA = ["dashboard/dashboard.css", "configcenter/configcenter.css", "routing/routing.css"]


@admin.register(RouterReport)
class RouterAdmin(ChosenProjectAdmin):
    """Pages about the router of one project, in the place of a list of ``RouterReport`` rows."""

    configuration_kind = KIND

    class Media:
        css = {"all": MEDIA}

    def get_urls(self) -> list[URLPattern]:
        """Add the URLs of the refreshed part of the overview and of the editor of the rules."""
        view = self.admin_site.admin_view
        return [
            path("live", view(require_GET(self.live_view)), name="routing_routerreport_live"),
            path("rules/", view(require_GET(self.rules_view)), name="routing_rules"),
            path("rules/check", view(require_POST(self.check_view)), name="routing_rules_check"),
            path("rules/save", view(require_POST(self.save_view)), name="routing_rules_save"),
            *super().get_urls(),
        ]

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> None:
        """Return None for every ID: a report has no page of its own."""

    # --- status ---------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the status of the router of ``?project=``."""
        choice = self.chosen(request)
        context = self.context(request, choice, _("Router")) | _overview(request, choice)
        return TemplateResponse(request, "admin/routing/router.html", context)

    def live_view(self, request: HttpRequest) -> HttpResponse:
        """Return the part of the status page that refreshes itself."""
        choice = self.chosen(request)
        context = {"choice": choice} | _overview(request, choice)
        return TemplateResponse(request, "admin/routing/router_live.html", context)

    # --- rules ----------------------------------------------------------------------------------

    def rules_view(self, request: HttpRequest) -> HttpResponse:
        """Show the rules of ``?project=&version=``, editable for editors."""
        choice = self.chosen(request)
        context = self.context(request, choice, _("Routing rules"))
        return rules.page(request, choice, context)

    def check_view(self, request: HttpRequest) -> HttpResponse:
        """Return the problems of a draft as JSON."""
        return rules.check(request, self.chosen(request))

    def save_view(self, request: HttpRequest) -> HttpResponse:
        """Save a draft as a new version."""
        return rules.save(request, self.chosen(request))


def _overview(request: HttpRequest, choice: ProjectChoice | None) -> dict[str, Any]:
    now = timezone.now()
    window = OutboundPage.of(request.GET.dict())
    view = None if choice is None else overview(choice.project, now, window)
    return {"view": view, "now": now}
