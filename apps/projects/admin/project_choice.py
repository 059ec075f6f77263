"""Selection of the project on pages that show the configuration of one project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest

from apps.access.admin.base import ProjectScopedAdmin, projects_of
from apps.access.admin.read_only import ReadOnly
from apps.access.states import Role
from apps.configcenter.models import Configuration
from apps.projects.models import Project

_DIGITS = 18


@dataclass(frozen=True, slots=True)
class ProjectChoice:
    """Selected project, and the projects that the user can select."""

    project: Project
    projects: list[Project]
    request: HttpRequest

    @property
    def query(self) -> str:
        """Query string for links of the page."""
        return f"?project={self.project.pk}"

    def may(self, role: Role) -> bool:
        """Return whether the user has the role in the selected project."""
        return self.project.pk in projects_of(self.request, role)

    @property
    def may_operate(self) -> bool:
        """Whether the user is at least an operator of the selected project."""
        return self.may(Role.OPERATOR)

    @property
    def may_edit(self) -> bool:
        """Whether the user is at least an editor of the selected project."""
        return self.may(Role.EDITOR)


def number_in(text: str) -> int | None:
    """Return the ID in a query string; None if the text is not a valid ID."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def chosen(request: HttpRequest, kind: str) -> ProjectChoice | None:
    """Return the project of ``?project=``; by default the first with a configuration of ``kind``.

    None if the user sees no project. Raises ``Http404`` for a missing or invisible project.
    """
    projects = list(Project.objects.visible_to(request.user).order_by("name"))
    project_text = request.GET.get("project") or request.POST.get("project") or ""
    if project_text:
        selected = next(
            (project for project in projects if project.pk == number_in(project_text)), None
        )
        if selected is None:
            raise Http404
    else:
        selected = _first(projects, kind)
    return None if selected is None else ProjectChoice(selected, projects, request)


def _first(projects: list[Project], kind: str) -> Project | None:
    rows = Configuration.objects.filter(kind=kind, newest__gte=1)
    configured = set(rows.values_list("project_id", flat=True))
    first = next(iter(projects), None)
    return next((project for project in projects if project.pk in configured), first)


class ChosenProjectAdmin(ReadOnly, ProjectScopedAdmin):
    """Base class of admin pages about one project, in place of a list of rows."""

    # Kind of configuration that the pages show.
    configuration_kind: ClassVar[str]

    def chosen(self, request: HttpRequest) -> ProjectChoice | None:
        """Return the selected project. Raises ``Http404``, ``PermissionDenied``."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return chosen(request, self.configuration_kind)

    def context(
        self, request: HttpRequest, choice: ProjectChoice | None, title: object
    ) -> dict[str, Any]:
        """Return the context of the page with the selected project."""
        return {
            **self.admin_site.each_context(request),
            "title": title,
            "subtitle": None if choice is None else str(choice.project),
            "media": self.media,
            "choice": choice,
        }
