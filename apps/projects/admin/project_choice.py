"""Which project a page is about, for pages that show what one configuration of it does."""

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
    """The project that was asked for, and those that the person may ask for."""

    project: Project
    projects: list[Project]
    request: HttpRequest

    @property
    def query(self) -> str:
        """What the addresses of its pages end in."""
        return f"?project={self.project.pk}"

    def may(self, role: Role) -> bool:
        """Whether the person has this role in the project."""
        return self.project.pk in projects_of(self.request, role)

    @property
    def may_operate(self) -> bool:
        """Start, stop, cancel, submit again."""
        return self.may(Role.OPERATOR)

    @property
    def may_edit(self) -> bool:
        """Save and activate."""
        return self.may(Role.EDITOR)


def number_in(text: str) -> int | None:
    """A number as an address may hold one; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def chosen(request: HttpRequest, kind: str) -> ProjectChoice | None:
    """The project of ``?project=``; without, the first with a configuration of this kind.

    None: there is no project that this person sees.

    Raises ``Http404`` for one that is not there, or not for this person.
    """
    projects = list(Project.objects.visible_to(request.user).order_by("name"))
    asked = request.GET.get("project") or request.POST.get("project") or ""
    if asked:
        found = next((each for each in projects if each.pk == number_in(asked)), None)
        if found is None:
            raise Http404
    else:
        found = _first(projects, kind)
    return None if found is None else ProjectChoice(found, projects, request)


def _first(projects: list[Project], kind: str) -> Project | None:
    rows = Configuration.objects.filter(kind=kind, newest__gte=1)
    configured = set(rows.values_list("project_id", flat=True))
    return next((each for each in projects if each.pk in configured), next(iter(projects), None))


class ChosenProjectAdmin(ReadOnly, ProjectScopedAdmin):
    """Base of pages about one project, instead of a list of rows."""

    # Of the configuration that they show.
    configuration_kind: ClassVar[str]

    def chosen(self, request: HttpRequest) -> ProjectChoice | None:
        """See ``chosen``. Raises ``PermissionDenied``, too."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return chosen(request, self.configuration_kind)

    def context(
        self, request: HttpRequest, choice: ProjectChoice | None, title: object
    ) -> dict[str, Any]:
        """What every page of the admin needs, and whom this one is about."""
        return {
            **self.admin_site.each_context(request),
            "title": title,
            "subtitle": None if choice is None else str(choice.project),
            "media": self.media,
            "choice": choice,
        }
