"""Helpers of the views: the biz of a page, and the permissions of the user."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.access.admin import ProjectScopedAdmin
from apps.access.admin.base import projects_of
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.engine.biz import BIZ_ID
from apps.requeststore.engine.errors import RequestStoreError, RequestStoreUnavailable, UnknownBiz
from apps.requeststore.services.store import BoundBiz, shared_request_store

_NONE: Final = gettext_lazy(
    "This request group does not exist, or you do not have permission to view it."
)
REFUSALS: Final = (RequestStoreError, DomainError)


@dataclass(frozen=True, slots=True)
class Tabs:
    """Tabs of the pages of a biz; ``here`` is the active one."""

    bound: BoundBiz
    project: Project
    here: str
    may_operate: bool
    may_edit: bool

    @property
    def key(self) -> str:
        """Return the biz as URLs name it: ``7.news``."""
        return key_of(self.bound)


class BizScope(ProjectScopedAdmin):
    """Mixin shared by the pages and actions of bizzes."""

    def expect_view(self, request: HttpRequest) -> None:
        """Raise ``PermissionDenied`` unless the user may view at least one project."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    def bizzes(self, request: HttpRequest) -> list[BoundBiz]:
        """Return all visible bizzes, by project and name."""
        self.expect_view(request)
        projects = projects_of(request, Role.VIEWER)
        visible = [biz for biz in shared_request_store().bizzes() if biz.project_id in projects]
        return sorted(visible, key=lambda each: (each.project_id, each.name))

    def bound(self, request: HttpRequest, key: str, role: Role = Role.VIEWER) -> BoundBiz:
        """Return the biz; 404 when it does not exist or is not visible, 403 when the role is
        missing.
        """
        self.expect_view(request)
        project, _dot, name = key.partition(".")
        if not re.fullmatch(BIZ_ID, key) or int(project) not in projects_of(request, Role.VIEWER):
            raise Http404(_NONE)
        if int(project) not in projects_of(request, role):
            raise PermissionDenied
        try:
            return shared_request_store().biz(int(project), name)
        except UnknownBiz:
            raise Http404(
                gettext_lazy(
                    "This request group does not exist, or you do not have permission to view it."
                )
            ) from None

    def page_context(self, request: HttpRequest, title: object, **more: Any) -> dict[str, Any]:
        """Return the template context of every page."""
        return {
            **self.admin_site.each_context(request),
            "title": title,
            "media": self.media,
            **more,
        }

    def biz_context(
        self, request: HttpRequest, bound: BoundBiz, here: str, title: object, **more: Any
    ) -> dict[str, Any]:
        """Return the template context of a page about one biz."""
        project = Project.objects.get(pk=bound.project_id)
        tabs = Tabs(
            bound,
            project,
            here,
            may_operate=project.pk in projects_of(request, Role.OPERATOR),
            may_edit=project.pk in projects_of(request, Role.EDITOR),
        )
        return self.page_context(
            request, bound.name, subtitle=title, tabs=tabs, bound=bound, **more
        )

    def refused(self, request: HttpRequest, error: Exception, back: str) -> HttpResponse:
        """Show an action's error message and redirect."""
        messages.error(request, text_of(error))
        return HttpResponseRedirect(back)


def key_of(bound: BoundBiz) -> str:
    """Return ``7.news``."""
    return f"{bound.project_id}.{bound.name}"


def page_of(bound: BoundBiz, name: str = "biz") -> str:
    """Return the URL of a page of this biz."""
    return reverse(f"admin:requeststore_{name}", args=[key_of(bound)])


def text_of(error: Exception) -> str:
    """Return an error as text for the user."""
    if isinstance(error, RequestStoreUnavailable):
        return _("The request store is unreachable. No data is lost. Try again shortly.")
    if isinstance(error, DomainError):
        return error.text
    return str(error)
