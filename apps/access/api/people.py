"""REST views of users: superusers manage them, auditors view them; everyone changes their own
password.
"""

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
    """Users. Deactivate a user who has left rather than delete them."""

    queryset = User.objects.all()
    serializer_class = PersonSerializer
    permission_classes = (InsideScopes, RulesEverything)
    filterset_fields = ("username", "email", "is_active", "is_superuser", "is_auditor")
    ordering = ("id",)
    http_method_names = ("get", "post", "patch", "delete")

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse tokens with limited scopes or a project: they must not grant more."""
        super().initial(request, *args, **kwargs)
        token = request.auth
        if (
            request.method not in SAFE_METHODS
            and isinstance(token, ApiToken)
            and not scopes_allow(token.scopes, area="*", access=Access.WRITE)
        ):
            raise PermissionDenied(code="scope_missing")

    def get_queryset(self) -> QuerySet[User]:
        """All users."""
        return User.objects.annotate(
            has_factor=Exists(SecondFactor.objects.filter(user=OuterRef("pk")))
        )

    def check_role_for_input(self, serializer: BaseSerializer[User]) -> None:
        """Do nothing: users belong to no project."""

    def project_of_input(self, values: Any) -> int | None:
        """Return None: users belong to no project."""
        return None

    def stored_answer(self, data: dict[str, Any]) -> dict[str, Any]:
        """Remove the password from the stored response: it is stored nowhere."""
        return {**data, "password": None} if "password" in data else data

    @extend_schema(
        summary="Add a person",
        description="The one-time password is in this answer only; it is changed at the login.",
        responses={201: NewPersonSerializer},
    )
    @idempotent
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Create a user; 201 with a one-time password."""
        body = self.get_serializer(data=request.data)
        body.is_valid(raise_exception=True)
        user, password = create_account(actor=self.person, values=body.validated_data)
        return self._with_password(user, password, status.HTTP_201_CREATED)

    def update_object(self, obj: User, values: dict[str, Any]) -> User:
        """Change names, e-mail address and permissions; 409 for the last superuser."""
        return change_account(actor=self.person, user=obj, values=values)

    def delete_object(self, obj: User) -> None:
        """Delete a user with their roles and tokens."""
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
        """Set a one-time password, return it, and end the user's sessions."""
        user = self.get_object()
        password = reset_password(actor=self.person, user=user)
        return self._with_password(user, password, status.HTTP_200_OK)

    @extend_schema(
        summary="Remove a person's second factor", request=None, responses=PersonSerializer
    )
    @action(detail=True, methods=["post"], url_path="reset-factor")
    @idempotent
    def reset_factor(self, request: Request, pk: str) -> Response:
        """Remove the second factor of a user who has lost phone and recovery codes; 409 if there is
        none.
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
        """End the user's sessions except the one of this call; tokens stay valid."""
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
        """Change the password. 422 if the old one is wrong or the new one too weak; 429 after too
        many attempts.
        """
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
