"""REST views of configurations, versions and activations."""

from __future__ import annotations

from typing import Any, cast

from django.db import transaction
from django.db.models import Model, QuerySet
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from apps.access.api.base import ApiView, ReadViewSet
from apps.access.api.errors import BadRequest
from apps.access.api.idempotency import idempotent
from apps.access.errors import RoleRequired
from apps.access.services import has_role
from apps.access.states import Role
from apps.configcenter import services
from apps.configcenter.api.filters import ActivationFilter, ConfigurationFilter, VersionFilter
from apps.configcenter.api.serializers import (
    ConfigActivationSerializer,
    ConfigCheckedSerializer,
    ConfigDiffSerializer,
    ConfigFileSerializer,
    ConfigKindSerializer,
    ConfigRevertSerializer,
    ConfigRunnerSerializer,
    ConfigSavedSerializer,
    ConfigSaveSerializer,
    ConfigSwitchSerializer,
    ConfigTrialSerializer,
    ConfigurationSerializer,
    ConfigVersionDetailSerializer,
    ConfigVersionSerializer,
    data_for,
)
from apps.configcenter.models import Activation, Configuration, ConfigVersion
from apps.configcenter.queries import rollouts_of

AGAINST = OpenApiParameter(
    "against",
    OpenApiTypes.INT,
    description="Number of the version to compare with; by default the one before.",
)


class KindsView(ApiView):
    """Kinds of configuration that installed apps have registered."""

    @extend_schema(operation_id="config_kinds", responses=ConfigKindSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List all kinds by name."""
        kinds = [{"name": k.name, "title": str(k.title)} for k in services.all_kinds()]
        return Response(ConfigKindSerializer(kinds, many=True).data)


class ConfigurationViewSet(ReadViewSet[Configuration]):
    """Configurations: their active version, and the processes that run it."""

    queryset = Configuration.objects.select_related("active", "project")
    serializer_class = ConfigurationSerializer
    filterset_class = ConfigurationFilter
    required_roles = {"check": Role.VIEWER, "revert": Role.OPERATOR, "deactivate": Role.EDITOR}

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List a page; the processes of all its rows are counted in one query."""
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        rows = list(cast("list[Configuration]", page or []))
        context = {**self.get_serializer_context(), "rollouts": rollouts_of(rows)}
        data = ConfigurationSerializer(rows, many=True, context=context).data
        return self.get_paginated_response(data)

    @extend_schema(responses=ConfigRunnerSerializer(many=True), filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def running(self, request: Request, pk: str | None = None) -> Response:
        """List the living processes that follow this configuration, with the version each runs."""
        row = self.get_object()
        return Response(ConfigRunnerSerializer(rollouts_of([row])[row.pk].runners, many=True).data)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Mark ``check`` as reading: it is a POST that changes nothing."""
        self.only_reads = self.action == "check"
        super().initial(request, *args, **kwargs)

    @extend_schema(request=ConfigTrialSerializer, responses=ConfigCheckedSerializer)
    @action(detail=True, methods=["post"])
    def check(self, request: Request, pk: str | None = None) -> Response:
        """Return the problems and differences of data without saving it."""
        row = self.get_object()
        serializer = ConfigTrialSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        data = serializer.validated_data["data"]
        if "text" in serializer.validated_data:
            data = services.read_text(kind=row.kind, text=serializer.validated_data["text"])
        tried = services.check_data(kind_name=row.kind, data=data, configuration=row)
        return Response(ConfigCheckedSerializer(tried).data)

    @extend_schema(request=ConfigRevertSerializer, responses=ConfigActivationSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def revert(self, request: Request, pk: str | None = None) -> Response:
        """Activate a previously active version again. 409 if there is none."""
        row = self.get_object()
        done = services.revert(configuration=row, **_switch(self, request, ConfigRevertSerializer))
        return Response(ConfigActivationSerializer(done).data)

    @extend_schema(request=ConfigSwitchSerializer, responses=ConfigActivationSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def deactivate(self, request: Request, pk: str | None = None) -> Response:
        """Deactivate the configuration: no version is active. 409 if none was."""
        row = self.get_object()
        done = services.deactivate(
            configuration=row, **_switch(self, request, ConfigSwitchSerializer)
        )
        return Response(ConfigActivationSerializer(done).data)


class VersionViewSet(ReadViewSet[ConfigVersion]):
    """Versions: saved, compared, activated; never changed."""

    queryset = ConfigVersion.objects.select_related("configuration__project")
    serializer_class = ConfigVersionSerializer
    filterset_class = VersionFilter
    required_roles = {"activate": Role.EDITOR}

    def get_queryset(self) -> QuerySet[ConfigVersion]:
        """Load the contents, which may be long, only where a single version is shown."""
        rows = super().get_queryset()
        return rows.defer("content") if self.action == "list" else rows

    def get_serializer_class(self) -> type[BaseSerializer[ConfigVersion]]:
        """Show a single version with its data."""
        return (
            ConfigVersionDetailSerializer if self.action == "retrieve" else ConfigVersionSerializer
        )

    @extend_schema(
        request=ConfigSaveSerializer,
        responses={200: ConfigSavedSerializer, 201: ConfigSavedSerializer},
        examples=[
            OpenApiExample(
                "Saved and activated, if nobody was faster",
                value={
                    "kind": "biz",
                    "project": 1,
                    "data": {"bizzes": {"news": {"rules": {"page": {"fields": {"title": "h1"}}}}}},
                    "note": "titles of news pages",
                    "based_on": 3,
                    "activate": True,
                },
                request_only=True,
            )
        ],
    )
    @idempotent
    def create(self, request: Request) -> Response:
        """Save data. 201 with a new version; 200 if the newest version is equal."""
        serializer = ConfigSaveSerializer(data=request.data, context=self.get_serializer_context())
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        project = cast("Model | None", values["project"])
        project_id = None if project is None else project.pk
        if not has_role(self.person, project_id, self.role_for_action()):
            raise RoleRequired
        with transaction.atomic():
            saved = self._save(values, project_id)
        body = {"version": saved.version, "created": saved.created}
        warnings = [str(warning) for warning in saved.warnings]
        context = self.get_serializer_context()
        data = ConfigSavedSerializer(body | {"warnings": warnings}, context=context).data
        made = status.HTTP_201_CREATED if saved.created else status.HTTP_200_OK
        return Response(data, status=made)

    def _save(self, values: dict[str, Any], project_id: int | None) -> services.SaveResult:
        data = values.get("data")
        if data is None:
            data = services.read_text(kind=values["kind"], text=values["text"])
        now = timezone.now()
        saved = services.save_version(
            kind=values["kind"],
            project_id=project_id,
            data=data,
            actor=self.person,
            now=now,
            note=values["note"],
            based_on=values["based_on"],
        )
        configuration = saved.version.configuration
        if values["activate"] and configuration.active_id != saved.version.pk:
            services.activate(
                version=saved.version, actor=self.person, now=now, note=values["note"]
            )
            configuration.active_id = saved.version.pk
        return saved

    @extend_schema(parameters=[AGAINST], responses=ConfigDiffSerializer, filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def diff(self, request: Request, pk: str | None = None) -> Response:
        """Compare this version with another version of the same configuration."""
        new = self.get_object()
        against = request.query_params.get("against", str(new.number - 1))
        if not (against.isascii() and against.isdigit() and len(against) < 10):
            raise BadRequest("against: a number of a version is needed")
        versions = self.get_queryset().filter(configuration=new.configuration_id)
        old = versions.filter(number=int(against)).first()
        if old is None and int(against) != 0:
            raise BadRequest(f"against: there is no version {against}")
        kind = services.shown_by(new.configuration.kind)
        changes = kind.diff(old.data if old is not None else {}, new.data)
        body = {"old": int(against), "new": new.number, "changes": changes}
        return Response(ConfigDiffSerializer(body).data)

    @extend_schema(responses=ConfigFileSerializer, filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def file(self, request: Request, pk: str | None = None) -> Response:
        """Return the version in the text form of its kind, to edit and save it again as `text`."""
        version = self.get_object()
        text = services.shown_by(version.configuration.kind).write(data_for(request, version))
        return Response({"text": text})

    @extend_schema(request=ConfigSwitchSerializer, responses=ConfigActivationSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def activate(self, request: Request, pk: str | None = None) -> Response:
        """Activate this version; processes apply it within a second. 409 if it is active."""
        version = self.get_object()
        done = services.activate(version=version, **_switch(self, request, ConfigSwitchSerializer))
        return Response(ConfigActivationSerializer(done).data)


class ActivationViewSet(ReadViewSet[Activation]):
    """History of activations: which version, when, and by whom."""

    queryset = Activation.objects.select_related("configuration", "version", "previous").defer(
        "version__content", "previous__content"
    )
    serializer_class = ConfigActivationSerializer
    filterset_class = ActivationFilter


def _switch(
    view: ApiView, request: Request, serializer: type[BaseSerializer[Any]]
) -> dict[str, Any]:
    trial = serializer(data=request.data)
    trial.is_valid(raise_exception=True)
    return {**trial.validated_data, "actor": view.person, "now": timezone.now()}
