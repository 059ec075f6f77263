"""The router of a project in the admin: how it is now, and the rules that it runs."""

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
from apps.routing.admin.overview import Window, overview
from apps.routing.models import RouterReport
from apps.routing.queries.tracks import KIND

MEDIA = ["dashboard/dashboard.css", "configcenter/configcenter.css", "routing/routing.css"]


@admin.register(RouterReport)
class RouterAdmin(ChosenProjectAdmin):
    """Pages about a project instead of a list of rows: what routers report is one of them."""

    configuration_kind = KIND

    class Media:
        css = {"all": MEDIA}

    def get_urls(self) -> list[URLPattern]:
        """The overview, what refreshes it, and the editor of the rules."""
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
        """No report has a page of its own."""

    # --- how it is now --------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The router of ``?project=``."""
        choice = self.chosen(request)
        context = self.context(request, choice, _("Router")) | _overview(request, choice)
        return TemplateResponse(request, "admin/routing/router.html", context)

    def live_view(self, request: HttpRequest) -> HttpResponse:
        """The changing part of it."""
        choice = self.chosen(request)
        context = {"choice": choice} | _overview(request, choice)
        return TemplateResponse(request, "admin/routing/router_live.html", context)

    # --- its rules ------------------------------------------------------------------------------

    def rules_view(self, request: HttpRequest) -> HttpResponse:
        """The rules of ``?project=&version=``, to read or to edit."""
        choice = self.chosen(request)
        context = self.context(request, choice, _("Routing rules"))
        return rules.page(request, choice, context)

    def check_view(self, request: HttpRequest) -> HttpResponse:
        """What is wrong with an entry that is being edited."""
        return rules.check(request, self.chosen(request))

    def save_view(self, request: HttpRequest) -> HttpResponse:
        """Keep the draft of the page as a new version."""
        return rules.save(request, self.chosen(request))


def _overview(request: HttpRequest, choice: ProjectChoice | None) -> dict[str, Any]:
    now = timezone.now()
    window = Window.of(request.GET.dict())
    view = None if choice is None else overview(choice.project, now, window)
    return {"view": view, "now": now}
