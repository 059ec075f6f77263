"""Which frontier a page is about, and what the person may do with it."""

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
    """The pages of a frontier; ``here`` is the one that is open."""

    frontier: Frontier
    here: str
    may_operate: bool
    may_edit: bool
    may_wipe: bool


class FrontierScope(ProjectScopedAdmin):
    """Base of the pages and actions of frontiers."""

    def expect_view(self, request: HttpRequest) -> None:
        """Deny access without permission to view any frontier."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    def frontier(self, request: HttpRequest, pk: int, role: Role = Role.VIEWER) -> Frontier:
        """404 for one that is not there or not to be seen, 403 where the role is missing."""
        self.expect_view(request)
        rows = Frontier.objects.visible_to(request.user).select_related("project")
        frontier = rows.filter(pk=pk).first()
        if frontier is None:
            raise Http404(_("There is no such frontier, or it is not yours to see."))
        if not self.may(request, frontier, role):
            raise PermissionDenied
        return frontier

    def may(self, request: HttpRequest, frontier: Frontier, role: Role) -> bool:
        """Whether the person has the role in its project."""
        return frontier.project_id in projects_of(request, role)

    def tabs(self, request: HttpRequest, frontier: Frontier, here: str) -> FrontierTabs:
        """For the head of a page."""
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
    """The address of the page of a frontier."""
    return reverse("admin:seeds_frontier_page", args=[pk])


def rest_of(frontier: Frontier, what: str) -> str:
    """The REST address for files of its seeds: pages and programs use the same."""
    return f"{_REST}{frontier.pk}/{what}"
