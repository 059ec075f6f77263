"""The view classes that every REST view derives from.

A view set of another app::

    class JobViewSet(WriteViewSet[Job]):
        queryset = Job.objects.select_related("project")
        serializer_class = JobSerializer
        required_roles = {"start": Role.OPERATOR}

        def create_object(self, values): return services.create_job(actor=self.person, **values)
        def update_object(self, obj, values): ...
        def delete_object(self, obj): ...

        @extend_schema(request=None, responses=RunSerializer)
        @action(detail=True, methods=["post"])
        @idempotent
        def start(self, request, pk): ...

Rows of other projects do not exist (404); a missing role is 403. ``get_object`` checks the role
of the action in the object's project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, cast

from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import Http404
from rest_framework import mixins, status, viewsets
from rest_framework.exceptions import NotAuthenticated, PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from apps.access.api.etags import etag_of, not_modified, require_match
from apps.access.api.idempotency import idempotent
from apps.access.api.permissions import InsideScopes, RoleForAction
from apps.access.api.throttles import PerUserThrottle
from apps.access.errors import RoleRequired
from apps.access.models import User
from apps.access.querysets import VisibleQuerySet
from apps.access.services import has_role, role_to_read
from apps.access.states import Role

M = TypeVar("M", bound=Model)

DEFAULT_ROLES: Mapping[str, Role] = {
    "list": Role.VIEWER,
    "retrieve": Role.VIEWER,
    "create": Role.EDITOR,
    "update": Role.EDITOR,
    "partial_update": Role.EDITOR,
    "destroy": Role.EDITOR,
}


class ApiView(APIView):
    """Base of single views and of the view sets below.

    ``area`` is the name in token scopes, by default the app's label. ``only_reads``: the view
    changes nothing, whatever the method, so a read scope is enough.
    """

    area: str = ""
    only_reads: bool = False
    permission_classes: Sequence[Any] = (InsideScopes,)
    throttle_classes: Sequence[Any] = (PerUserThrottle,)
    # No OPTIONS: the schema describes everything, and CORS is not supported.
    metadata_class = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "area" not in cls.__dict__:
            package, _dot, rest = cls.__module__.partition(".")
            cls.area = rest.split(".")[0] if package == "apps" else package

    @property
    def person(self) -> User:
        """User who makes the request."""
        if not isinstance(self.request.user, User):
            raise NotAuthenticated
        return self.request.user

    def permission_denied(
        self, request: Request, message: str | None = None, code: str | None = None
    ) -> NoReturn:
        """Raise 401 for anonymous callers, even if an authenticator has handled them."""
        if not request.user or not request.user.is_authenticated:
            raise NotAuthenticated
        raise PermissionDenied(detail=message, code=code)


class ReadViewSet(ApiView, mixins.ListModelMixin, viewsets.GenericViewSet[M], Generic[M]):
    """List and retrieve of visible rows, with keyset pages and ETags.

    ``required_roles`` maps actions to roles. Custom actions missing in it need viewer for safe
    methods, admin for others: a forgotten entry must not grant access.
    """

    permission_classes: Sequence[Any] = (InsideScopes, RoleForAction)
    required_roles: ClassVar[Mapping[str, Role]] = {}
    visible_at_least: ClassVar[Role] = Role.VIEWER
    ordering: ClassVar[Sequence[str]] = ("-id",)
    lookup_value_regex = "[0-9]+"

    def role_for_action(self) -> Role:
        """Return the role that the current action needs."""
        name = self.action or ""
        if name in self.required_roles:
            return self.required_roles[name]
        if name in DEFAULT_ROLES:
            return DEFAULT_ROLES[name]
        return Role.VIEWER if self.request.method in SAFE_METHODS else Role.ADMIN

    def get_queryset(self) -> QuerySet[M]:
        """Rows visible to the caller."""
        rows = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return rows
        if not isinstance(rows, VisibleQuerySet):
            raise TypeError(f"{type(self).__name__}: the queryset has no visible_to")
        role = self.visible_at_least
        if self.request.method in SAFE_METHODS:
            role = role_to_read(self.request.user, role)
        return cast("QuerySet[M]", rows.visible_to(self.request.user, role))

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page."""
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return one object; 304 if If-None-Match matches."""
        obj = self.get_object()
        data = self.get_serializer(obj).data
        etag = etag_of(obj, data)
        headers = {"ETag": etag}
        if not_modified(request, etag):
            return Response(status=status.HTTP_304_NOT_MODIFIED, headers=headers)
        return Response(data, headers=headers)

    def answer(self, obj: M, *, http_status: int = status.HTTP_200_OK) -> Response:
        """Return the serialized object with its ETag."""
        data = self.get_serializer(obj).data
        return Response(data, status=http_status, headers={"ETag": etag_of(obj, data)})


class WriteViewSet(ReadViewSet[M], Generic[M]):
    """Adds create, update, partial_update and destroy; each calls one service.

    A subclass implements ``create_object``, ``update_object`` and ``delete_object``, or restricts
    ``http_method_names``.
    """

    def create_object(self, values: dict[str, Any]) -> M:
        """Create the object by a service, from validated input."""
        raise NotImplementedError

    def update_object(self, obj: M, values: dict[str, Any]) -> M:
        """Update the object by a service, from validated input."""
        raise NotImplementedError

    def delete_object(self, obj: M) -> None:
        """Delete the object by a service."""
        raise NotImplementedError

    def project_of_input(self, values: Mapping[str, Any]) -> int | None:
        """Return the id of the project in the input, found by ``project_path``."""
        queryset = cast(VisibleQuerySet[Any], super().get_queryset())
        first, *rest = queryset.project_path.split("__")
        holder: Any = values.get(first)
        for step in rest:
            holder = getattr(holder, step, None)
        return None if holder is None else cast(int, holder.pk)

    @idempotent
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return 201 with the new object."""
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        self.check_role_for_input(serializer)
        obj = self.create_object(dict(serializer.validated_data))
        return self.answer(obj, http_status=status.HTTP_201_CREATED)

    def update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return the changed object; 412 if If-Match names an older state."""
        return self._change(request, partial=False)

    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change the given fields only; otherwise like ``update``."""
        return self._change(request, partial=True)

    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return 204."""
        with transaction.atomic():
            obj = self._locked(request)
            self.delete_object(obj)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def check_role_for_input(self, serializer: BaseSerializer[M]) -> None:
        """Raise ``RoleRequired`` unless the caller may do this in the project of the input."""
        project_id = self.project_of_input(serializer.validated_data)
        if not has_role(self.request.user, project_id, self.role_for_action()):
            raise RoleRequired

    def _change(self, request: Request, *, partial: bool) -> Response:
        with transaction.atomic():
            obj = self._locked(request)
            serializer = self.get_serializer(obj, data=request.data, partial=partial)
            serializer.is_valid(raise_exception=True)
            if self.project_of_input(serializer.validated_data) is not None:
                # Moving an object needs the role in the target project as well.
                self.check_role_for_input(serializer)
            obj = self.update_object(obj, dict(serializer.validated_data))
        return self.answer(obj)

    def _locked(self, request: Request) -> M:
        obj = self.get_object()
        if "If-Match" in request.headers:
            # Locked and read again, so that no other process can change it between this check
            # and our change.
            locked = type(obj)._default_manager.select_for_update()
            # Without the model's ordering, whose joins PostgreSQL cannot lock.
            if not locked.filter(pk=obj.pk).order_by().values_list("pk", flat=True):
                raise Http404
            obj = self.get_object()
            require_match(request, etag_of(obj, self.get_serializer(obj).data))
        return obj
