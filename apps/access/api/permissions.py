"""REST permissions: authentication, token scopes and roles."""

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
    """Require a login; of tokens also a scope for this area."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Sessions have no scopes: they may do everything that the user may."""
        if not isinstance(request.user, User):
            return False
        token = request.auth
        if not isinstance(token, ApiToken):
            return True
        # ``only_reads``: a query with a body, hence a POST.
        reads = request.method in SAFE_METHODS or getattr(view, "only_reads", False)
        access = Access.READ if reads else Access.WRITE
        # A view of another package has no area: require a scope for all areas.
        area = getattr(view, "area", "")
        if scopes_allow(token.scopes, area=area, access=access):
            return True
        raise PermissionDenied(code="scope_missing")


class RoleForAction(BasePermission):
    """Require the action's role in the object's project, or in any project without an object."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Lists are filtered and objects checked later; others need the role in any project."""
        scoped = cast("ReadViewSet[Any]", view)
        role = scoped.role_for_action()
        if request.method in SAFE_METHODS:
            role = role_to_read(request.user, role)
        if role == Role.VIEWER or has_role_somewhere(request.user, role):
            return True
        raise RoleRequired

    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        """Check the role in the object's project."""
        role = cast("ReadViewSet[Any]", view).role_for_action()
        if request.method in SAFE_METHODS:
            role = role_to_read(request.user, role)
        if has_role(request.user, project_id_of(obj), role):
            return True
        raise RoleRequired


class SeesEverything(BasePermission):
    """Require access to everything: for read-only data that belongs to no project."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Check the user and the token in use."""
        return isinstance(request.user, User) and request.user.sees_everything


class RulesEverything(BasePermission):
    """Objects that belong to no project: superusers and auditors read, superusers write."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Check the user and the token in use."""
        user = request.user
        if not isinstance(user, User):
            return False
        if request.method in SAFE_METHODS:
            return user.sees_everything
        if not user.rules_everything:
            raise RoleRequired
        return True


class RoleInAnyProject(BasePermission):
    """Objects shared by all projects: viewers of any project read, admins of any project write."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Check the role in any project: viewer to read, admin to write."""
        reads = request.method in SAFE_METHODS or getattr(view, "only_reads", False)
        role = Role.VIEWER if reads else Role.ADMIN
        if has_role_somewhere(request.user, role):
            return True
        raise RoleRequired
