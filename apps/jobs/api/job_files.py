"""REST actions to export and import jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any, ClassVar

from django.http import HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser, MultiPartParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.fields import VisibleRelatedField
from apps.access.api.idempotency import idempotent
from apps.access.api.parsers import BodyTooLarge, StrictJSONParser
from apps.access.states import Role
from apps.jobs.engine.portable import CONTENT_TYPES, MAX_BYTES, MAX_JOBS, JobFileFormat, format_of
from apps.jobs.services import portable
from apps.jobs.services.portable import ImportMode, ImportPlan
from apps.projects.models import Project

_YAML_TYPES = ("text/yaml", "application/yaml", "text/x-yaml", "application/x-yaml")
MULTIPART = "multipart/form-data"


class _TextParser(BaseParser):
    """Parser of a request body that is the job file itself; the options are query parameters."""

    kind: ClassVar[JobFileFormat]

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the body in the structure of the JSON request. Raises ``BodyTooLarge``."""
        raw = stream.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise BodyTooLarge
        return {"format": self.kind.value, "raw": raw}


class CsvParser(_TextParser):
    """Parser of job files with the content type ``text/csv``."""

    media_type = "text/csv"
    kind = JobFileFormat.CSV


_YAML_PARSERS = tuple(
    type("YamlParser", (_TextParser,), {"media_type": name, "kind": JobFileFormat.YAML})
    for name in _YAML_TYPES
)


class _AnyFormat(DefaultContentNegotiation):
    """Content negotiation that ignores ``?format=``, which here is the format of the job file."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: Any = None
    ) -> tuple[BaseRenderer, str]:
        """Return the first renderer, whatever the client accepts."""
        return renderers[0], renderers[0].media_type


class ImportSerializer(serializers.Serializer[Any]):
    """Job file and the options of its import."""

    format = serializers.ChoiceField(
        choices=[(format_.value, format_.value) for format_ in JobFileFormat],
        default=JobFileFormat.YAML.value,
    )
    text = serializers.CharField(
        trim_whitespace=False, help_text=gettext_lazy("Content of the file, at most 1 MiB.")
    )
    project = VisibleRelatedField(
        queryset=Project.objects.all(),
        at_least=Role.EDITOR,
        required=False,
        allow_null=True,
        help_text=gettext_lazy(
            "Target project of all jobs; without it each job of the file names its own."
        ),
    )
    mode = serializers.ChoiceField(choices=ImportMode.choices, default=ImportMode.UPSERT)
    dry_run = serializers.BooleanField(
        default=False, help_text=gettext_lazy("Return the plan without importing anything.")
    )


class UploadSerializer(ImportSerializer):
    """Job file as a multipart form, and the options; the file name gives the default format."""

    format = serializers.ChoiceField(
        choices=[(format_.value, format_.value) for format_ in JobFileFormat], required=False
    )
    text = None  # type: ignore[assignment]
    file = serializers.FileField()


class _OptionsSerializer(ImportSerializer):
    """Options as query parameters, for a request whose body is the job file."""

    text = None  # type: ignore[assignment]


class PlannedJobSerializer(serializers.Serializer[Any]):
    """Effect of an import on one job of the file."""

    id = serializers.SerializerMethodField(help_text=gettext_lazy("null for a new job."))
    name = serializers.CharField()
    project = serializers.CharField(help_text=gettext_lazy("Slug of the project."))
    what = serializers.ChoiceField(
        choices=[("added", "added"), ("changed", "changed"), ("unchanged", "unchanged")]
    )
    changes = serializers.SerializerMethodField(
        help_text=gettext_lazy("Old and new value by field.")
    )
    secrets_to_set = serializers.ListField(
        child=serializers.CharField(),
        help_text=gettext_lazy("Names of secrets in the file that are not stored here."),
    )

    def get_id(self, planned: Any) -> int | None:
        """ID of the job; null for a new job."""
        return None if planned.job is None else planned.job.pk

    def get_changes(self, planned: Any) -> dict[str, list[Any]]:
        """Old and new value by field name."""
        return {name: list(pair) for name, pair in planned.changes.items()}


class PlanSerializer(serializers.Serializer[Any]):
    """Result or preview of an import."""

    dry_run = serializers.BooleanField()
    added = serializers.IntegerField()
    changed = serializers.IntegerField()
    unchanged = serializers.IntegerField()
    problems = serializers.ListField(
        child=serializers.CharField(),
        help_text=gettext_lazy(
            "Only in a dry run; otherwise problems are an error and nothing is imported."
        ),
    )
    jobs = PlannedJobSerializer(many=True)


def _shown(plan: ImportPlan, *, dry_run: bool) -> dict[str, Any]:
    counts = {change: plan.count(change) for change in ("added", "changed", "unchanged")}
    plain = {"dry_run": dry_run, **counts, "problems": plan.said, "jobs": plan.jobs}
    return dict(PlanSerializer(plain).data)


_EXPORT = OpenApiParameter("format", str, enum=[*JobFileFormat], default=JobFileFormat.YAML.value)
_IN_ADDRESS = [
    OpenApiParameter("project", int, description="When the body is the file itself."),
    OpenApiParameter("mode", str, enum=ImportMode.values, description="The same."),
    OpenApiParameter("dry_run", bool, description="The same."),
]


class JobFilesMixin:
    """Mixin with the export and import actions of the view set of jobs."""

    @extend_schema(
        parameters=[_EXPORT],
        responses={
            (200, "application/yaml"): OpenApiTypes.OBJECT,
            (200, "text/csv"): OpenApiTypes.STR,
        },
    )
    @action(
        detail=False, methods=["get"], content_negotiation_class=_AnyFormat, pagination_class=None
    )
    def export(self: Any, request: Request) -> HttpResponse:
        """Export the filtered jobs, at most 1,000, without secrets."""
        wanted = request.query_params.get("format", JobFileFormat.YAML.value)
        if wanted not in set(JobFileFormat):
            message = _("Unknown format; use one of %(known)s.")
            known = ", ".join(format_.value for format_ in JobFileFormat)
            raise serializers.ValidationError({"format": message % {"known": known}})
        jobs = self.filter_queryset(self.get_queryset())
        rows = jobs.order_by("project__slug", "name")[: MAX_JOBS + 1]
        text = portable.export_jobs(rows, JobFileFormat(wanted))
        content_type = CONTENT_TYPES[JobFileFormat(wanted)]
        headers = {"Content-Disposition": f'attachment; filename="jobs.{wanted}"'}
        return HttpResponse(text, content_type=content_type, headers=headers)

    @extend_schema(
        parameters=_IN_ADDRESS,
        request={
            "application/json": ImportSerializer,
            MULTIPART: UploadSerializer,
            "application/yaml": OpenApiTypes.STR,
            "text/csv": OpenApiTypes.STR,
        },
        responses=PlanSerializer,
    )
    @action(
        detail=False,
        methods=["post"],
        url_path="import",
        url_name="import",
        parser_classes=[StrictJSONParser, MultiPartParser, CsvParser, *_YAML_PARSERS],
    )
    @idempotent
    def import_file(self: Any, request: Request) -> Response:
        """Add and change jobs from a file, all or nothing; 422 lists every problem."""
        values = self._import_values(request)
        wanted: dict[str, Any] = {
            "raw": values["raw"],
            "kind": JobFileFormat(values["format"]),
            "actor": self.person,
            "project": values.get("project"),
            "mode": ImportMode(values["mode"]),
            "file": values["name"],
        }
        if values["dry_run"]:
            plan = portable.plan_import(**wanted)
        else:
            plan = portable.import_jobs(**wanted, now=timezone.now())
        return Response(_shown(plan, dry_run=values["dry_run"]))

    def _import_values(self: Any, request: Request) -> dict[str, Any]:
        context = self.get_serializer_context()
        data = request.data
        if isinstance(data, dict) and isinstance(data.get("raw"), bytes):
            options = {**request.query_params.dict(), "format": data["format"]}
            body: Any = _OptionsSerializer(data=options, context=context)
            body.is_valid(raise_exception=True)
            return {**body.validated_data, "raw": data["raw"], "name": ""}
        is_form = (request.content_type or "").startswith(MULTIPART)
        body = (UploadSerializer if is_form else ImportSerializer)(data=data, context=context)
        body.is_valid(raise_exception=True)
        values = dict(body.validated_data)
        if not is_form:
            return {**values, "raw": values["text"], "name": ""}
        file = values["file"]
        if file.size > MAX_BYTES:
            raise BodyTooLarge
        kind = values.get("format") or format_of(file.name)
        return {**values, "format": kind, "raw": file.read(), "name": file.name}
