"""Base of the frontier pages: loads the frontier and checks permissions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.base import projects_of
from apps.access.states import Role
from apps.seeds.models import Frontier

_REST: Final = "/api/v1/frontiers/"


@dataclass(frozen=True, slots=True)
class FrontierTabs:
    """Tabs of a frontier's pages; ``here`` is the active one."""

    frontier: Frontier
    here: str
    may_operate: bool
    may_edit: bool
    may_wipe: bool


class FrontierScope(ProjectScopedAdmin):
    """Base class of the pages and actions of frontiers."""

    def expect_view(self, request: HttpRequest) -> None:
        """Deny access without permission to view any frontier."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    def frontier(self, request: HttpRequest, pk: int, role: Role = Role.VIEWER) -> Frontier:
        """Return the frontier. 404 if it is missing or not visible, 403 if the user lacks
        ``role``.
        """
        self.expect_view(request)
        rows = Frontier.objects.visible_to(request.user).select_related("project")
        frontier = rows.filter(pk=pk).first()
        if frontier is None:
            raise Http404(
                _("This URL queue does not exist, or you do not have permission to view it.")
            )
        if not self.may(request, frontier, role):
            raise PermissionDenied
        return frontier

    def may(self, request: HttpRequest, frontier: Frontier, role: Role) -> bool:
        """Return whether the user has ``role`` in the frontier's project."""
        return frontier.project_id in projects_of(request, role)

    def tabs(self, request: HttpRequest, frontier: Frontier, here: str) -> FrontierTabs:
        """Return the tabs for the page header."""
        return FrontierTabs(
            frontier,
            here,
            may_operate=self.may(request, frontier, Role.OPERATOR),
            may_edit=self.may(request, frontier, Role.EDITOR),
            may_wipe=self.may(request, frontier, Role.ADMIN),
        )

    def page_context(
        self, request: HttpRequest, frontier: Frontier, here: str, title: object
    ) -> dict[str, Any]:
        """Return the template context of a frontier's page."""
        return {
            **self.admin_site.each_context(request),
            "title": frontier.name,
            "subtitle": title,
            "media": self.media,
            "opts": self.opts,
            "original": frontier,
            "frontier": frontier,
            "tabs": self.tabs(request, frontier, here),
        }


def page_of(pk: int) -> str:
    """Return the URL of a frontier's page."""
    return reverse("admin:seeds_frontier_page", args=[pk])


def rest_of(frontier: Frontier, what: str) -> str:
    """Return the REST URL for files of the frontier's seeds, which pages use too."""
    return f"{_REST}{frontier.pk}/{what}"
