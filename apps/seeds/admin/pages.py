"""Views of a frontier's pages."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.states import Role
from apps.seeds.admin import granularity, look_up, seed_forms
from apps.seeds.admin.frontier_page import frontier_view
from apps.seeds.admin.refusals import REFUSALS, text_of
from apps.seeds.admin.scope import FrontierScope, rest_of
from apps.seeds.models import Frontier


class FrontierPages(FrontierScope):
    """Pages of a frontier. Read-only except for the form that adds seeds."""

    def page_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show counts, segments and operations, refreshed live."""
        frontier = self.frontier(request, pk)
        context = self.page_context(request, frontier, "overview", _("URL queue"))
        context |= self._live(request, frontier)
        return TemplateResponse(request, "admin/seeds/frontier/page.html", context)

    def live_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Return the live part of the frontier's page."""
        frontier = self.frontier(request, pk)
        context = {"frontier": frontier, "tabs": self.tabs(request, frontier, "overview")}
        context |= self._live(request, frontier)
        return TemplateResponse(request, "admin/seeds/frontier/live.html", context)

    def _live(self, request: HttpRequest, frontier: Frontier) -> dict[str, Any]:
        whole = request.GET.get("segments") == "all"
        return {"view": frontier_view(frontier, timezone.now(), whole=whole), "whole": whole}

    def look_up_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Look up a URL. It is sent by POST, so that it is not part of the page's address."""
        frontier = self.frontier(request, pk)
        context = self.page_context(request, frontier, "look_up", _("Look up a URL"))
        form_data = request.POST if request.method == "POST" else None
        form = look_up.SeedLookUpForm(form_data, frontier=frontier)
        if form.is_bound and form.is_valid():
            try:
                context["answer"] = look_up.look_up(form, timezone.now())
            except REFUSALS as error:
                context["problem"] = text_of(error)
        context["form"] = form
        return TemplateResponse(request, "admin/seeds/frontier/look_up.html", context)

    def seeds_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Add typed seeds; another button of the page imports a file."""
        frontier = self.frontier(request, pk, Role.OPERATOR)
        context = self.page_context(request, frontier, "seeds", _("Add seeds"))
        form_data = request.POST if request.method == "POST" else None
        form = seed_forms.AddSeedsForm(form_data, frontier=frontier)
        if form.is_bound and form.is_valid():
            now = timezone.now()
            seeds = [form.seed(line, now) for line in form.cleaned_data["seeds"]]
            try:
                context["added"] = seed_forms.add_seeds(frontier, seeds)
                form = seed_forms.AddSeedsForm(frontier=frontier)
            except REFUSALS as error:
                context["problem"] = text_of(error)
        context |= {
            "form": form,
            "file_form": seed_forms.FileForm(),
            "import_to": rest_of(frontier, "import"),
        }
        return TemplateResponse(request, "admin/seeds/frontier/seeds.html", context)

    def granularity_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Preview and start a change of segments, time zone or keys."""
        role = Role.EDITOR if request.method == "POST" else Role.VIEWER
        frontier = self.frontier(request, pk, role)
        context = self.page_context(request, frontier, "granularity", _("Rules"))
        return granularity.page(request, frontier, context)
