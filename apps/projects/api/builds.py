"""REST views of builds and images."""

from __future__ import annotations

from typing import Any, cast

from django.http import Http404
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ReadViewSet
from apps.access.api.fields import KnownFields, VisibleRelatedField
from apps.access.api.idempotency import idempotent
from apps.access.errors import RoleRequired
from apps.access.services import has_role
from apps.access.states import Role
from apps.projects.api.filters import BuildFilter, ImageFilter
from apps.projects.models import Build, Image, ImageDescription, Project
from apps.projects.services import build_tag, cancel_build, rebuild
from apps.projects.states import SpiderKind

MAX_TAG = 250


@extend_schema_field(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "step": {"type": "string"},
                "started_at": {"type": "string", "format": "date-time"},
                "ended_at": {"type": "string", "format": "date-time", "nullable": True},
            },
        },
    }
)
class StepsField(serializers.JSONField):
    """Steps of a build, with their start and end times."""


class BuildSerializer(serializers.ModelSerializer[Build]):
    """Build of a tag."""

    active = serializers.BooleanField(
        source="is_active", read_only=True, help_text=_("Not in a final state.")
    )
    steps = StepsField(read_only=True)
    image = serializers.SerializerMethodField(help_text=_("Image of this build, if it is current."))
    stream = serializers.CharField(read_only=True, help_text=_("Name of its log."))

    class Meta:
        model = Build
        fields = (
            "id",
            "project",
            "tag",
            "release",
            "name",
            "version",
            "commit",
            "state",
            "active",
            "step",
            "steps",
            "reason",
            "warning",
            "attempt",
            "repeats",
            "no_cache",
            "requested_by",
            "worker",
            "image",
            "stream",
            "created_at",
            "started_at",
            "ended_at",
        )
        read_only_fields = fields

    def get_image(self, build: Build) -> int | None:
        """ID of the image; null until the build succeeds."""
        image = getattr(build, "image", None)
        return None if image is None else cast(int, image.pk)


class BuildRequestSerializer(KnownFields, serializers.Serializer[Any]):
    """Tag to build."""

    project = VisibleRelatedField(queryset=Project.objects.all(), at_least=Role.VIEWER)
    tag = serializers.CharField(max_length=MAX_TAG)


class RebuildSerializer(KnownFields, serializers.Serializer[Any]):
    """Options of a repeated build."""

    no_cache = serializers.BooleanField(default=True, help_text=_("Build without cached layers."))


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class ImageLabelsField(serializers.JSONField):
    """Labels of an image by name."""


_ARGUMENT = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "type": {"type": "string", "enum": ["str", "int", "float", "bool", "list", "dict", "any"]},
        "default": {},
        "required": {"type": "boolean"},
        "description": {"type": "string"},
    },
}


@extend_schema_field(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "As the field spider of a job names it."},
                "class": {"type": "string"},
                "description": {"type": "string"},
                "arguments": {"type": "array", "items": _ARGUMENT},
                "settings": {"type": "object", "additionalProperties": {}},
            },
        },
    }
)
class SpidersField(serializers.JSONField):
    """Spiders with their arguments and settings."""


@extend_schema_field(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"module": {"type": "string"}, "error": {"type": "string"}},
        },
    }
)
class ModuleErrorsField(serializers.JSONField):
    """Modules whose spiders are unknown."""


@extend_schema_field({"type": "object", "additionalProperties": {}})
class ProjectSettingsField(serializers.JSONField):
    """Settings of a Scrapy project by name; secret ones are masked."""


class ImageDescriptionSerializer(serializers.ModelSerializer[ImageDescription]):
    """Spiders of an image, as its build asked for them."""

    spiders = SpidersField(read_only=True)
    settings = ProjectSettingsField(read_only=True)
    module_errors = ModuleErrorsField(source="errors", read_only=True)

    class Meta:
        model = ImageDescription
        fields = ("image", "kind", "spiders", "settings", "module_errors", "created_at")
        read_only_fields = fields


class ImageSerializer(serializers.ModelSerializer[Image]):
    """Image that jobs can use."""

    kind = serializers.SerializerMethodField(
        help_text=_("Kind of its spiders; null if the image does not describe them.")
    )

    reference = serializers.CharField(read_only=True)
    available = serializers.SerializerMethodField(help_text=_("Whether jobs can use it."))
    labels = ImageLabelsField(read_only=True)

    class Meta:
        model = Image
        fields = (
            "id",
            "project",
            "build",
            "source",
            "name",
            "tag",
            "reference",
            "digest",
            "size_bytes",
            "labels",
            "commit",
            "kind",
            "available",
            "created_at",
            "removed_at",
        )
        read_only_fields = fields

    @extend_schema_field({"type": "string", "enum": list(SpiderKind.values), "nullable": True})
    def get_kind(self, image: Image) -> str | None:
        """Kind of the spiders."""
        described = getattr(image, "description", None)
        return None if described is None else str(described.kind)

    def get_available(self, image: Image) -> bool:
        """Whether jobs can use the image: it has not been removed."""
        return image.removed_at is None


class BuildViewSet(ReadViewSet[Build]):
    """Builds, newest first. Operators request, cancel and repeat them."""

    queryset = Build.objects.select_related("image", "project")
    serializer_class = BuildSerializer
    filterset_class = BuildFilter
    required_roles = dict.fromkeys(("create", "cancel", "rebuild"), Role.OPERATOR)

    @extend_schema(
        request=BuildRequestSerializer,
        responses={201: BuildSerializer},
        examples=[
            OpenApiExample(
                "A tag", value={"project": 1, "tag": "release-v1.4.0"}, request_only=True
            )
        ],
    )
    @idempotent
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Queue a build of a tag.

        409 if the tag is being built or was built, 422 if the tag does not match the template.
        """
        body = BuildRequestSerializer(data=request.data, context=self.get_serializer_context())
        body.is_valid(raise_exception=True)
        project = body.validated_data["project"]
        if not has_role(self.person, project.pk, Role.OPERATOR):
            raise RoleRequired
        build = build_tag(
            project=project, tag=body.validated_data["tag"], now=timezone.now(), actor=self.person
        )
        return self.answer(build, http_status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses=BuildSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def cancel(self, request: Request, pk: str | None = None) -> Response:
        """Cancel a build: at once if it is queued, else by its worker. 409 if it has ended."""
        build = self.get_object()
        cancel_build(build=build, now=timezone.now(), actor=self.person)
        return self.answer(build)

    @extend_schema(request=RebuildSerializer, responses={201: BuildSerializer})
    @action(detail=True, methods=["post"])
    @idempotent
    def rebuild(self, request: Request, pk: str | None = None) -> Response:
        """Build the tag again; the image gets the new digest. 409 while the tag is being built."""
        build = self.get_object()
        body = RebuildSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        again = rebuild(
            build=build,
            now=timezone.now(),
            actor=self.person,
            no_cache=body.validated_data["no_cache"],
        )
        return self.answer(again, http_status=status.HTTP_201_CREATED)


class ImageViewSet(ReadViewSet[Image]):
    """Images, newest first: of successful builds and of the registry."""

    queryset = Image.objects.select_related("description").defer(
        "description__spiders", "description__settings", "description__errors"
    )
    serializer_class = ImageSerializer
    filterset_class = ImageFilter

    # Not named "description": that is a view's own name for what it does.
    @extend_schema(summary="Spiders of an image", responses=ImageDescriptionSerializer)
    @action(detail=True, methods=["get"], url_path="description")
    def spiders(self, request: Request, pk: str | None = None) -> Response:
        """Return the image's spiders, arguments and settings. 404 if it does not describe them."""
        described = ImageDescription.objects.filter(image=self.get_object()).first()
        if described is None:
            raise Http404
        return Response(ImageDescriptionSerializer(described).data)
