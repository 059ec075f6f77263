"""Who may call: logged in, inside the token's scopes, with the role that the action needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from apps.access.errors import RoleRequired
from apps.access.models import ApiToken, User
from apps.access.services import has_role, has_role_somewhere, project_id_of, role_to_read
from apps.access.states import Access, Role, scopes_allow

if TYPE_CHECKING:
    from rest_framework.views import APIView

    from apps.access.api.base import ReadViewSet


class InsideScopes(BasePermission):
    """Logged in; and when by token, its scopes allow this area."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Sessions have no scopes: they may do what the person may."""
        if not isinstance(request.user, User):
            return False
        token = request.auth
        if not isinstance(token, ApiToken):
            return True
        # ``only_reads``: a question that needs a body, so it comes by POST.
        reads = request.method in SAFE_METHODS or getattr(view, "only_reads", False)
        access = Access.READ if reads else Access.WRITE
        # A view of another package has no area; then only a scope for everything will do.
        area = getattr(view, "area", "")
        if scopes_allow(token.scopes, area=area, access=access):
            return True
        raise PermissionDenied(code="scope_missing")


class RoleForAction(BasePermission):
    """The role that the action needs: for the object, or in any project when there is none."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Lists are filtered and objects checked later; the rest needs the role somewhere."""
        scoped = cast("ReadViewSet[Any]", view)
        role = scoped.role_for_action()
        if request.method in SAFE_METHODS:
            role = role_to_read(request.user, role)
        if role == Role.VIEWER or has_role_somewhere(request.user, role):
            return True
        raise RoleRequired

    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        """In the project of the object."""
        role = cast("ReadViewSet[Any]", view).role_for_action()
        if request.method in SAFE_METHODS:
            role = role_to_read(request.user, role)
        if has_role(request.user, project_id_of(obj), role):
            return True
        raise RoleRequired


class SeesEverything(BasePermission):
    """For what belongs to no project and is only read."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Sees everything, also through the token in use."""
        return isinstance(request.user, User) and request.user.sees_everything


class RulesEverything(BasePermission):
    """For what belongs to no project: read by who sees everything, changed by superusers."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Also through the token in use."""
        user = request.user
        if not isinstance(user, User):
            return False
        if request.method in SAFE_METHODS:
            return user.sees_everything
        if not user.rules_everything:
            raise RoleRequired
        return True


class RoleInAnyProject(BasePermission):
    """For what serves every project: any one's viewer sees it, any one's admin switches it."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Viewer to read, admin to write, in whichever project."""
        reads = request.method in SAFE_METHODS or getattr(view, "only_reads", False)
        role = Role.VIEWER if reads else Role.ADMIN
        if has_role_somewhere(request.user, role):
            return True
        raise RoleRequired
