"""REST views of projects."""

from __future__ import annotations

from typing import Any, cast

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from apps.access.api.base import WriteViewSet
from apps.access.api.idempotency import idempotent, repeatable
from apps.access.errors import RoleRequired
from apps.access.states import Role
from apps.projects import services
from apps.projects.api.serializers import (
    ConnectionSerializer,
    DeletedProjectSerializer,
    ProjectSerializer,
    RefreshedSerializer,
    TagPreviewSerializer,
    TagQuestionSerializer,
    WebhookSerializer,
)
from apps.projects.models import DeletedProject, Project
from apps.projects.services import change_project, create_project, delete_project, restore_project
from apps.projects.services.webhook_setup import setup_texts, webhook_address


class ProjectViewSet(WriteViewSet[Project]):
    """Projects. Superusers add and delete projects, admins of a project change it."""

    queryset = Project.objects.all()
    serializer_class = ProjectSerializer
    filterset_fields = ("slug", "name")
    required_roles = {
        **dict.fromkeys(("create", "update", "partial_update", "destroy", "restore"), Role.ADMIN),
        "preview_tag": Role.VIEWER,
        "refresh_images": Role.OPERATOR,
        "test_connection": Role.EDITOR,
        "reveal_secret": Role.EDITOR,
        "rotate_secret": Role.ADMIN,
    }

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Treat the tag preview as a read although it uses POST."""
        self.only_reads = self.action == "preview_tag"
        super().initial(request, *args, **kwargs)

    def check_role_for_input(self, serializer: BaseSerializer[Project]) -> None:
        """Require a superuser, since a new project has no members."""
        if not self.person.rules_everything:
            raise RoleRequired

    def project_of_input(self, values: Any) -> int | None:
        """Return None: the input describes a project instead of referring to one."""
        return None

    def create_object(self, values: dict[str, Any]) -> Project:
        return create_project(actor=self.person, values=values)

    def update_object(self, obj: Project, values: dict[str, Any]) -> Project:
        return change_project(actor=self.person, project=obj, values=values)

    def delete_object(self, obj: Project) -> None:
        """Delete a project through the service; only for superusers."""
        if not self.person.rules_everything:
            raise RoleRequired
        delete_project(actor=self.person, project=obj)

    def get_queryset(self) -> QuerySet[Project]:
        """Return projects; for ``restore`` and ``deleted`` the deleted projects."""
        if self.action == "restore":
            self.queryset = Project.all_objects.all()
        if self.action == "deleted":
            self.queryset = DeletedProject.objects.filter(deleted_at__isnull=False)
        return super().get_queryset()

    @extend_schema(summary="Deleted projects", responses=DeletedProjectSerializer(many=True))
    @action(detail=False, methods=["get"], filterset_fields=())
    def deleted(self, request: Request) -> Response:
        """List deleted projects that are not purged yet, newest first.

        Only for superusers and auditors.
        """
        page: Any = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(DeletedProjectSerializer(page, many=True).data)

    @extend_schema(request=None, responses=ProjectSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def restore(self, request: Request, pk: str | None = None) -> Response:
        """Restore a deleted project with all its contents. 409 if the name is in use."""
        project = self.get_object()
        if not self.person.rules_everything:
            raise RoleRequired
        restore_project(actor=self.person, project=project)
        return self.answer(Project.objects.get(pk=project.pk))

    @extend_schema(request=None, responses=ConnectionSerializer)
    @action(detail=True, methods=["post"], url_path="test-connection")
    def test_connection(self, request: Request, pk: str | None = None) -> Response:
        """List the tags of the git server, and how each is parsed. 409 if it is unreachable."""
        connection = services.check_connection(project=self.get_object())
        return Response(ConnectionSerializer(connection).data)

    @extend_schema(request=TagQuestionSerializer, responses=TagPreviewSerializer)
    @action(detail=True, methods=["post"], url_path="tags/preview")
    def preview_tag(self, request: Request, pk: str | None = None) -> Response:
        """Preview how a tag is parsed, or why it is ignored. Read-only."""
        project = self.get_object()
        question = TagQuestionSerializer(data=request.data)
        question.is_valid(raise_exception=True)
        read = services.preview_tag(project=project, **question.validated_data)
        return Response(TagPreviewSerializer(read).data)

    @extend_schema(request=None, responses=RefreshedSerializer)
    @action(detail=True, methods=["post"], url_path="images/refresh")
    @repeatable
    def refresh_images(self, request: Request, pk: str | None = None) -> Response:
        """List the newest images of the registry. 409 if it is unreachable."""
        project = self.get_object()
        refreshed = services.refresh_images(project=project, now=timezone.now(), actor=self.person)
        return Response(RefreshedSerializer(refreshed).data)

    @extend_schema(responses=WebhookSerializer)
    @action(detail=True, methods=["get"])
    def webhook(self, request: Request, pk: str | None = None) -> Response:
        """Return webhook URL and setup instructions, without the secret."""
        return self._webhook(self.get_object(), None)

    @extend_schema(request=None, responses=WebhookSerializer)
    @action(detail=True, methods=["post"], url_path="webhook/reveal")
    def reveal_secret(self, request: Request, pk: str | None = None) -> Response:
        """Return webhook URL, setup instructions and secret; recorded in the audit trail."""
        project = self.get_object()
        secret = services.reveal_webhook_secret(project=project, actor=self.person)
        return self._webhook(project, secret)

    @extend_schema(request=None, responses=WebhookSerializer)
    @action(detail=True, methods=["post"], url_path="webhook/rotate")
    @idempotent
    def rotate_secret(self, request: Request, pk: str | None = None) -> Response:
        """Replace the webhook secret and return the new secret; the old secret is invalid at once.

        A repeated call with the same `Idempotency-Key` does not return it; use `webhook/reveal`.
        """
        project = self.get_object()
        secret = services.rotate_webhook_secret(project=project, actor=self.person)
        return self._webhook(project, secret)

    def stored_answer(self, data: dict[str, Any]) -> dict[str, Any]:
        """Remove the secret from the response that is stored for repeated calls."""
        if self.action != "rotate_secret":
            return data
        return cast("dict[str, Any]", self._webhook(self.get_object(), None).data)

    def _webhook(self, project: Project, secret: str | None) -> Response:
        shown = {
            "address": webhook_address(project),
            "secret": secret,
            "texts": setup_texts(project, secret),
        }
        headers = {"Cache-Control": "no-store"}
        return Response(WebhookSerializer(shown).data, headers=headers)
