"""REST serializers of jobs."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.access.api.fields import KnownFields, VisibleRelatedField
from apps.access.states import Role
from apps.jobs.api.job_fields import (
    CommandField,
    CookiesField,
    CutRulesField,
    EnvironmentField,
    FiniteField,
    LabelsField,
    RetryRulesField,
    SecretsField,
    TagsField,
)
from apps.jobs.api.serializers import ArgumentsField
from apps.jobs.engine.retry import validate_retry_rules
from apps.jobs.errors import JobNameTaken
from apps.jobs.models import OPTIONS, DeletedJob, Job, job_contradictions
from apps.jobs.models.execution_rules import (
    validate_command,
    validate_environment,
    validate_host_labels,
    validate_line,
    validate_tags,
)
from apps.jobs.models.job import MAX_SPEED
from apps.jobs.models.options import MAX_TIMEOUT_SECONDS
from apps.jobs.models.validators import validate_cut_rules
from apps.jobs.queries import SPIDER_FIELDS, spider_errors
from apps.projects.models import Image, Project
from apps.seeds.models import Frontier


class JobSerializer(KnownFields, serializers.ModelSerializer[Job]):
    """Job: what to run, when, how fast, and how pages are downloaded."""

    project = VisibleRelatedField(queryset=Project.objects.all(), at_least=Role.EDITOR)
    image = VisibleRelatedField(
        queryset=Image.objects.all(),
        required=False,
        allow_null=True,
        help_text=_("An image of the same project; null is a local process."),
    )
    frontier = VisibleRelatedField(
        queryset=Frontier.objects.all(),
        required=False,
        allow_null=True,
        help_text=_("A URL queue of the same project; the runs add seeds to it and crawl them."),
    )
    image_reference = serializers.SerializerMethodField(help_text=_("name:tag of the image."))
    command = CommandField(
        required=False,
        validators=[validate_command],
        help_text=_("Program and arguments, instead of a spider."),
    )
    arguments = ArgumentsField(required=False, help_text=_("A JSON object the spider receives."))
    environment = EnvironmentField(
        required=False,
        validators=[validate_environment],
        help_text=_("Visible to everyone who can see the job."),
    )
    secrets = SecretsField(
        required=False,
        help_text=_("Encrypted environment variables, write-only. A null removes a name."),
    )
    secret_names = serializers.SerializerMethodField(help_text=_("Names of the stored secrets."))
    cpu_limit = FiniteField(
        required=False,
        allow_null=True,
        min_value=0.01,
        max_value=256.0,
        help_text=_("Cores; null is the installation's default."),
    )
    host_labels = LabelsField(required=False, validators=[validate_host_labels])
    retry_rules = RetryRulesField(required=False, validators=[validate_retry_rules])
    tags = TagsField(required=False, validators=[validate_tags])
    speed = FiniteField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=MAX_SPEED,
        help_text=_("Requests per second; 0 is unlimited, null is the spider's own."),
    )
    timeout_seconds = FiniteField(
        required=False,
        min_value=0.1,
        max_value=MAX_TIMEOUT_SECONDS,
        help_text=_("Timeout of a download, seconds."),
    )
    request_timeout_seconds = FiniteField(
        required=False,
        allow_null=True,
        min_value=0.1,
        max_value=3600.0,
        help_text=_(
            "Seconds until the spider repeats an unanswered request; null uses the "
            "spider's own setting."
        ),
    )
    cut = CutRulesField(required=False, validators=[validate_cut_rules])
    cookies = CookiesField(required=False, help_text=_("Initial cookies; encrypted, write-only."))
    cookies_set = serializers.SerializerMethodField(help_text=_("Whether cookies are stored."))

    class Meta:
        model = Job
        fields = [
            "id",
            "project",
            "name",
            "enabled",
            "image",
            "image_reference",
            "spider",
            "command",
            "arguments",
            "frontier",
            "environment",
            "secrets",
            "secret_names",
            "cron",
            "time_zone",
            "overlap",
            "misfire",
            "priority",
            "cpu_limit",
            "memory_limit_bytes",
            "max_run_seconds",
            "max_failed_percent",
            "max_exceptions",
            "min_items",
            "trial_required",
            "trial_lost_percent",
            "trial_changed_percent",
            "host_labels",
            "retry_rules",
            "speed",
            "concurrency",
            *OPTIONS,
            "cookies_set",
            "tags",
            "notes",
            "created_at",
            "updated_at",
        ]
        # validate() reports a duplicate name at the field ``name``.
        validators: list[Any] = []

    @extend_schema_field({"type": "string", "nullable": True})
    def get_image_reference(self, job: Job) -> str | None:
        """``name:tag`` of the image."""
        return job.image.reference if job.image else None

    def get_secret_names(self, job: Job) -> list[str]:
        """Names of the secrets, without their values."""
        return job.secret_names

    def get_cookies_set(self, job: Job) -> bool:
        """Whether cookies are stored; they are not decrypted."""
        return bool(job.__dict__["cookies"])

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check fields that depend on each other, including stored values."""
        job = self.instance if isinstance(self.instance, Job) else Job()
        merged = {**job.judged(), **attrs}
        changes = attrs.get("secrets", {})
        names = {*merged["secret_names"], *changes}
        merged["secret_names"] = {name for name in names if changes.get(name, "") is not None}
        errors = {
            **job_contradictions(merged),
            **self._image_errors(merged, job),
            **self._frontier_errors(merged),
        }
        if self._is_taken(merged, job):
            errors["name"] = str(JobNameTaken.detail)
        if attrs.keys() & set(SPIDER_FIELDS):
            errors |= spider_errors(**{name: merged[name] for name in SPIDER_FIELDS})
        if errors:
            raise serializers.ValidationError(errors)
        return attrs

    def _image_errors(self, merged: dict[str, Any], job: Job) -> dict[str, str]:
        image = merged["image"]
        if image is None:
            return {}
        if image.project_id != merged["project"].pk and image.pk != job.image_id:
            # Same error as for a missing image, so that the existence of an image is not revealed.
            text = self.fields["image"].error_messages["does_not_exist"]
            return {"image": str(text).format(pk_value=image.pk)}
        if image.removed_at is not None and image.pk != job.image_id:
            return {"image": gettext("This image has been removed; choose another one.")}
        return {}

    def _frontier_errors(self, merged: dict[str, Any]) -> dict[str, str]:
        frontier = merged["frontier"]
        if frontier is None or frontier.project_id == merged["project"].pk:
            return {}
        # Same error as for a missing frontier, so that the existence of one is not revealed.
        text = self.fields["frontier"].error_messages["does_not_exist"]
        return {"frontier": str(text).format(pk_value=frontier.pk)}

    def _is_taken(self, merged: dict[str, Any], job: Job) -> bool:
        namesakes = Job.objects.filter(project=merged["project"], name=merged["name"])
        return bool(namesakes.exclude(pk=job.pk).exists())


class CloneSerializer(KnownFields, serializers.Serializer[Any]):
    """Name of the clone."""

    name = serializers.CharField(
        required=False,
        max_length=100,
        validators=[validate_line],
        help_text=_("By default the job's name with (copy), (copy 2) and so on."),
    )


class DeletedJobSerializer(serializers.ModelSerializer[DeletedJob]):
    """Deleted job, with the time until which it can be restored."""

    ends_at = serializers.DateTimeField(read_only=True, help_text=_("Time of the final deletion."))

    class Meta:
        model = DeletedJob
        fields = ("id", "project", "name", "deleted_at", "deleted_by", "ends_at")
        read_only_fields = fields
