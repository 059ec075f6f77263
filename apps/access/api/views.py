"""REST views of the caller, tokens, memberships and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from django.db.models import Model, QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from apps.access.api.base import ApiView, ReadViewSet, WriteViewSet
from apps.access.api.filters import AuditFilter, MembershipFilter, SavedFilterFilter
from apps.access.api.idempotency import idempotent
from apps.access.api.permissions import InsideScopes
from apps.access.api.serializers import (
    ApiTokenSerializer,
    AuditRecordSerializer,
    MembershipSerializer,
    MeSerializer,
    NewTokenSerializer,
    RotationSerializer,
    SavedFilterSerializer,
)
from apps.access.errors import RoleRequired
from apps.access.models import ApiToken, AuditRecord, Membership, SavedFilter
from apps.access.services import (
    NewToken,
    create_token,
    delete_filter,
    rename_filter,
    revoke_token,
    rotate_token,
    save_filter,
    set_role,
)
from apps.access.states import Role


class MeView(ApiView):
    """The caller."""

    @extend_schema(operation_id="me", responses=MeSerializer)
    def get(self, request: Request) -> Response:
        """Return the caller, their roles, and the token in use."""
        return Response(MeSerializer(self.person, context={"request": request}).data)


@extend_schema_view(
    list=extend_schema(summary="Your tokens"), retrieve=extend_schema(summary="One of your tokens")
)
class TokenViewSet(ReadViewSet[ApiToken]):
    """The caller's own tokens."""

    queryset = ApiToken.objects.all()
    serializer_class = ApiTokenSerializer
    permission_classes = (InsideScopes,)

    def get_queryset(self) -> QuerySet[ApiToken]:
        """The caller's own tokens; through a token of one project only those of that project."""
        if getattr(self, "swagger_fake_view", False):
            return ApiToken.objects.none()
        rows = ApiToken.objects.filter(user=self.person)
        holder = self.person.acting_token
        if holder is not None and holder.project_id is not None:
            rows = rows.filter(project_id=holder.project_id)
        return rows

    def stored_answer(self, data: dict[str, Any]) -> dict[str, Any]:
        """Remove the secret from the stored response: it is stored nowhere."""
        return {**data, "secret": None}

    @extend_schema(
        summary="Make a token",
        description="The secret is in this answer only.",
        request=ApiTokenSerializer,
        responses={201: NewTokenSerializer},
    )
    @idempotent
    def create(self, request: Request) -> Response:
        """Create a token; 201 with its secret."""
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        made = create_token(
            actor=self.person,
            user=self.person,
            name=values["name"],
            scopes=values["scopes"],
            project=values["project"],
            expires_at=values.get("expires_at"),
            allowed_networks=values.get("allowed_networks", []),
        )
        return self._shown_once(made, status.HTTP_201_CREATED)

    @extend_schema(
        summary="Give a token a new secret",
        description="The secret is in this answer only. The old one works for the overlap.",
        request=RotationSerializer,
        responses=NewTokenSerializer,
    )
    @action(detail=True, methods=["post"])
    @idempotent
    def rotate(self, request: Request, pk: str) -> Response:
        """Return the token with a new secret; 409 if the token has ended."""
        token = self.get_object()
        serializer = RotationSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        overlap = timedelta(seconds=serializer.validated_data["overlap_seconds"])
        made = rotate_token(actor=self.person, token=token, overlap=overlap)
        return self._shown_once(made, status.HTTP_200_OK)

    def _shown_once(self, made: NewToken, http_status: int) -> Response:
        data = {**self.get_serializer(made.token).data, "secret": made.secret}
        return Response(data, status=http_status, headers={"Cache-Control": "no-store"})

    @extend_schema(summary="Revoke a token", request=None, responses=ApiTokenSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def revoke(self, request: Request, pk: str) -> Response:
        """Revoke the token; 409 if it was revoked before."""
        token = self.get_object()
        revoke_token(actor=self.person, token=token)
        return self.answer(token)


class MembershipViewSet(WriteViewSet[Membership]):
    """Roles of users in projects."""

    queryset = Membership.objects.select_related("user", "project")
    serializer_class = MembershipSerializer
    filterset_class = MembershipFilter
    required_roles = dict.fromkeys(("create", "update", "partial_update", "destroy"), Role.ADMIN)

    def create_object(self, values: dict[str, Any]) -> Membership:
        """Assign the role."""
        return self._set(values["user"], values["project"], values.get("role", Role.VIEWER))

    def update_object(self, obj: Membership, values: dict[str, Any]) -> Membership:
        """Change the role."""
        return self._set(obj.user, obj.project, values.get("role", obj.role))

    def delete_object(self, obj: Membership) -> None:
        """Remove the role."""
        set_role(actor=self.person, user=obj.user, project=obj.project, role=None)

    def _set(self, user: Any, project: Model, role: str) -> Membership:
        done = set_role(actor=self.person, user=user, project=project, role=Role(role))
        return cast(Membership, done)


class AuditViewSet(ReadViewSet[AuditRecord]):
    """Audit trail: project admins see their projects, superusers and auditors all records."""

    queryset = AuditRecord.objects.all()
    serializer_class = AuditRecordSerializer
    filterset_class = AuditFilter
    visible_at_least = Role.ADMIN
    required_roles = {"list": Role.ADMIN, "retrieve": Role.ADMIN}


@extend_schema_view(
    list=extend_schema(summary="Your saved filters"),
    retrieve=extend_schema(summary="One of your saved filters"),
    create=extend_schema(summary="Save a filter of a page"),
    update=extend_schema(summary="Rename a saved filter"),
    partial_update=extend_schema(summary="Rename a saved filter"),
    destroy=extend_schema(summary="Delete a saved filter"),
)
class SavedFilterViewSet(WriteViewSet[SavedFilter]):
    """The caller's saved list filters."""

    queryset = SavedFilter.objects.all()
    serializer_class = SavedFilterSerializer
    filterset_class = SavedFilterFilter
    # Saved filters belong to a user, not to a project.
    permission_classes = (InsideScopes,)

    def get_queryset(self) -> QuerySet[SavedFilter]:
        """The caller's own filters; none through a token of one project."""
        if getattr(self, "swagger_fake_view", False):
            return SavedFilter.objects.none()
        return SavedFilter.objects.visible_to(self.person)

    def check_role_for_input(self, serializer: BaseSerializer[SavedFilter]) -> None:
        """Allow every user who may log in; a token of one project acts for that project only."""
        holder = self.person.acting_token
        if holder is not None and holder.project_id is not None:
            raise RoleRequired

    def project_of_input(self, values: Mapping[str, Any]) -> int | None:
        """Return None: filters belong to no project."""
        return None

    def create_object(self, values: dict[str, Any]) -> SavedFilter:
        """Save the filter."""
        return save_filter(user=self.person, **values)

    def update_object(self, obj: SavedFilter, values: dict[str, Any]) -> SavedFilter:
        """Rename the filter."""
        return rename_filter(user=self.person, saved=obj, name=values.get("name", obj.name))

    def delete_object(self, obj: SavedFilter) -> None:
        """Delete the filter."""
        delete_filter(user=self.person, saved=obj)
