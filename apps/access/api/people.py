"""People over REST: superusers manage them, auditors see them, everybody has a password."""

from __future__ import annotations

from typing import Any, cast

from django.db.models import Exists, OuterRef, QuerySet
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied, Throttled
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from apps.access.api.base import ApiView, WriteViewSet
from apps.access.api.idempotency import idempotent
from apps.access.api.people_serializers import (
    EndedSessionsSerializer,
    NewPersonSerializer,
    PasswordSerializer,
    PersonSerializer,
)
from apps.access.api.permissions import InsideScopes, RulesEverything
from apps.access.api.throttles import GuessThrottle
from apps.access.errors import RoleRequired, WrongPassword
from apps.access.models import ApiToken, SecondFactor, User
from apps.access.services import client_address
from apps.access.services.accounts import (
    change_account,
    choose_password,
    create_account,
    delete_account,
    reset_password,
)
from apps.access.services.second_factor import remove_factor
from apps.access.services.sessions import end_sessions
from apps.access.states import Access, scopes_allow


@extend_schema_view(
    list=extend_schema(summary="People"),
    retrieve=extend_schema(summary="One person"),
    partial_update=extend_schema(summary="Change a person, or let them in no more"),
    destroy=extend_schema(summary="Delete a person"),
)
class PersonViewSet(WriteViewSet[User]):
    """Everybody who may log in. Who has left is better deactivated than deleted."""

    queryset = User.objects.all()
    serializer_class = PersonSerializer
    permission_classes = (InsideScopes, RulesEverything)
    filterset_fields = ("username", "email", "is_active", "is_superuser", "is_auditor")
    ordering = ("id",)
    http_method_names = ("get", "post", "patch", "delete")

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse tokens limited to a part of the platform: they may not grant all of it."""
        super().initial(request, *args, **kwargs)
        token = request.auth
        if (
            request.method not in SAFE_METHODS
            and isinstance(token, ApiToken)
            and not scopes_allow(token.scopes, area="*", access=Access.WRITE)
        ):
            raise PermissionDenied(code="scope_missing")

    def get_queryset(self) -> QuerySet[User]:
        """All of them."""
        return User.objects.annotate(
            has_factor=Exists(SecondFactor.objects.filter(user=OuterRef("pk")))
        )

    def check_role_for_input(self, serializer: BaseSerializer[User]) -> None:
        """Nothing more: people belong to no project."""

    def project_of_input(self, values: Any) -> int | None:
        """None."""
        return None

    def stored_answer(self, data: dict[str, Any]) -> dict[str, Any]:
        """A repeat does not get the password: it is stored nowhere."""
        return {**data, "password": None} if "password" in data else data

    @extend_schema(
        summary="Add a person",
        description="The one-time password is in this answer only; it is changed at the login.",
        responses={201: NewPersonSerializer},
    )
    @idempotent
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """201 with the person and a one-time password."""
        body = self.get_serializer(data=request.data)
        body.is_valid(raise_exception=True)
        user, password = create_account(actor=self.person, values=body.validated_data)
        return self._with_password(user, password, status.HTTP_201_CREATED)

    def update_object(self, obj: User, values: dict[str, Any]) -> User:
        """Change names, address and rights; not those of the last superuser."""
        return change_account(actor=self.person, user=obj, values=values)

    def delete_object(self, obj: User) -> None:
        """Delete a person with their roles and tokens."""
        delete_account(actor=self.person, user=obj)

    @extend_schema(
        summary="Give a person a one-time password",
        description="It is in this answer only. The one before is worth nothing from here on.",
        request=None,
        responses=NewPersonSerializer,
    )
    @action(detail=True, methods=["post"], url_path="reset-password")
    @idempotent
    def reset_password(self, request: Request, pk: str) -> Response:
        """The person and a one-time password; their sessions end."""
        user = self.get_object()
        password = reset_password(actor=self.person, user=user)
        return self._with_password(user, password, status.HTTP_200_OK)

    @extend_schema(
        summary="Remove a person's second factor", request=None, responses=PersonSerializer
    )
    @action(detail=True, methods=["post"], url_path="reset-factor")
    @idempotent
    def reset_factor(self, request: Request, pk: str) -> Response:
        """Remove the second factor of a person who lost phone and recovery codes; 409 without a
        factor.
        """
        user = self.get_object()
        remove_factor(actor=self.person, user=user)
        return self.answer(self.get_object())

    @extend_schema(
        summary="End a person's sessions", request=None, responses=EndedSessionsSerializer
    )
    @action(detail=True, methods=["post"], url_path="log-out")
    @idempotent
    def log_out(self, request: Request, pk: str) -> Response:
        """Wherever they are logged in, but for the session of this call; tokens go on."""
        user = self.get_object()
        key = request.session.session_key if user == self.person else None
        return Response({"ended": end_sessions(actor=self.person, user=user, but=key)})

    def _with_password(self, user: User, password: str, http_status: int) -> Response:
        shown = cast("dict[str, Any]", PersonSerializer(user).data)
        headers = {"Cache-Control": "no-store"}
        return Response({**shown, "password": password}, status=http_status, headers=headers)


class OwnPasswordView(ApiView):
    """The caller's own password."""

    @extend_schema(
        operation_id="me_password",
        request=PasswordSerializer,
        responses={204: OpenApiResponse(description="It is the new one; sessions have ended.")},
    )
    def post(self, request: Request) -> Response:
        """204. 422 for a wrong old one, or a new one that is easy to guess; 429 for guessing."""
        if self.person.acting_token is not None and self.person.acting_token.project_id is not None:
            raise RoleRequired
        body = PasswordSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        guesses, whom = GuessThrottle(), f"password of {self.person.pk}"
        if not guesses.may_try(client_address(request), whom):
            raise Throttled(guesses.wait())
        values = body.validated_data
        try:
            choose_password(
                user=self.person, old=values["old_password"], new=values["new_password"]
            )
        except WrongPassword:
            guesses.failed(client_address(request), whom)
            raise
        return Response(status=status.HTTP_204_NO_CONTENT)
