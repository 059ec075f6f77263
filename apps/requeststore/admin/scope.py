"""Which biz a page is about, and what the person may do with it."""

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
from apps.requeststore.engine.errors import RequestStoreError, StoreUnavailable, UnknownBiz
from apps.requeststore.services.yard import BoundBiz, shared_yard

KEY: Final = re.compile(r"([0-9]{1,18})\.([a-z][a-z0-9_]{0,31})")
_NONE: Final = gettext_lazy("There is no such biz, or it is not yours to see.")
REFUSALS: Final = (RequestStoreError, DomainError)


@dataclass(frozen=True, slots=True)
class Tabs:
    """The pages of a biz; ``here`` is the one that is open."""

    bound: BoundBiz
    project: Project
    here: str
    may_operate: bool
    may_edit: bool

    @property
    def key(self) -> str:
        """As addresses name it: ``7.news``."""
        return key_of(self.bound)


class BizScope(ProjectScopedAdmin):
    """What the pages and the buttons of bizzes share."""

    def expect_view(self, request: HttpRequest) -> None:
        """Only for people who may see some project."""
        if not self.has_view_permission(request):
            raise PermissionDenied

    def bizzes(self, request: HttpRequest) -> list[BoundBiz]:
        """All that the person may see, by project and name."""
        self.expect_view(request)
        projects = projects_of(request, Role.VIEWER)
        found = [each for each in shared_yard().bizzes() if each.project_id in projects]
        return sorted(found, key=lambda each: (each.project_id, each.name))

    def bound(self, request: HttpRequest, key: str, role: Role = Role.VIEWER) -> BoundBiz:
        """404 for one that is not there or not to be seen, 403 where the role is missing."""
        self.expect_view(request)
        named = KEY.fullmatch(key)
        if named is None or int(named[1]) not in projects_of(request, Role.VIEWER):
            raise Http404(_NONE)
        if int(named[1]) not in projects_of(request, role):
            raise PermissionDenied
        try:
            return shared_yard().biz(int(named[1]), named[2])
        except UnknownBiz:
            raise Http404(
                gettext_lazy("There is no such biz, or it is not yours to see.")
            ) from None

    def page_context(self, request: HttpRequest, title: object, **more: Any) -> dict[str, Any]:
        """What every page needs."""
        return {
            **self.admin_site.each_context(request),
            "title": title,
            "media": self.media,
            **more,
        }

    def biz_context(
        self, request: HttpRequest, bound: BoundBiz, here: str, title: object, **more: Any
    ) -> dict[str, Any]:
        """The same for a page of one biz."""
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
        """A button that was of no avail."""
        messages.error(request, text_of(error))
        return HttpResponseRedirect(back)


def key_of(bound: BoundBiz) -> str:
    """``7.news``."""
    return f"{bound.project_id}.{bound.name}"


def page_of(bound: BoundBiz, name: str = "biz") -> str:
    """The address of a page of it."""
    return reverse(f"admin:requeststore_{name}", args=[key_of(bound)])


def text_of(error: Exception) -> str:
    """A refusal, for the person who asked."""
    if isinstance(error, StoreUnavailable):
        return _("The request store does not answer. Nothing is lost; try again in a moment.")
    if isinstance(error, DomainError):
        return error.text
    return str(error)
