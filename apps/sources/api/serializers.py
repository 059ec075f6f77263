"""Serializers of sources, imports, credentials and records."""

from __future__ import annotations

from typing import Any, ClassVar

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from apps.access.api.fields import VisibleRelatedField
from apps.configcenter.models import Configuration
from apps.projects.models import Project
from apps.sources.models import Credential, Harvest
from apps.sources.queries import progress_of
from apps.sources.services.commands import CommandOutcome
from apps.sources.services.consumption import MAX_LEASE_SECONDS, MAX_RECORDS
from apps.sources.states import HarvestState, Reason, SourceActivity


class HarvestSerializer(serializers.ModelSerializer[Harvest]):
    """An import of a source; read = published + filtered + re_read + refused."""

    progress = serializers.SerializerMethodField(help_text=_("From 0 to 1, or null."))

    class Meta:
        model = Harvest
        fields = (
            "id",
            "project",
            "source",
            "state",
            "reason",
            "collector",
            "asked_by",
            "resumed",
            "first",
            "total",
            "start_offset",
            "end_offset",
            "next_offset",
            "progress",
            "batches",
            "read",
            "published",
            "filtered",
            "re_read",
            "refused",
            "bad_dates",
            "gaps",
            "notes",
            "error",
            "config_version",
            "started_at",
            "moved_at",
            "ended_at",
        )
        read_only_fields = fields

    def get_progress(self, harvest: Harvest) -> float | None:
        """Progress from 0 to 1."""
        return progress_of(harvest)


class ShownHarvestSerializer(serializers.Serializer[Any]):
    """The newest import of a source."""

    id = serializers.IntegerField()
    state = serializers.ChoiceField(choices=HarvestState.choices)
    reason = serializers.ChoiceField(choices=Reason.choices, allow_blank=True)
    resumed = serializers.BooleanField()
    first = serializers.BooleanField()
    total = serializers.IntegerField(allow_null=True)
    start_offset = serializers.IntegerField(allow_null=True)
    end_offset = serializers.IntegerField(allow_null=True)
    next_offset = serializers.IntegerField(allow_null=True)
    progress = serializers.FloatField(allow_null=True)
    batches = serializers.IntegerField()
    read = serializers.IntegerField()
    published = serializers.IntegerField()
    filtered = serializers.IntegerField()
    re_read = serializers.IntegerField()
    refused = serializers.IntegerField()
    balanced = serializers.BooleanField()
    bad_dates = serializers.IntegerField()
    error = serializers.CharField()
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class SourceSerializer(serializers.Serializer[Any]):
    """A source: its settings, how far it was read, and its newest import."""

    name = serializers.CharField()
    description = serializers.CharField()
    kind = serializers.CharField(allow_null=True)
    task_id = serializers.CharField()
    configured = serializers.BooleanField(help_text=_("false: removed from the configuration."))
    enabled = serializers.BooleanField()
    auto_start = serializers.BooleanField()
    cron = serializers.CharField()
    queue = serializers.CharField(allow_null=True)
    activity = serializers.ChoiceField(choices=SourceActivity.choices)
    waiting_for = serializers.CharField()
    problem = serializers.CharField()
    last_start_offset = serializers.IntegerField(allow_null=True)
    last_total = serializers.IntegerField(allow_null=True)
    never_read = serializers.JSONField()
    stopped_at = serializers.DateTimeField(allow_null=True)
    stopped_by = serializers.CharField()
    next_run_at = serializers.DateTimeField(allow_null=True)
    collector = serializers.CharField()
    harvest = ShownHarvestSerializer(allow_null=True)


class SourceProjectSerializer(serializers.ModelSerializer[Configuration]):
    """A project with sources."""

    id = serializers.IntegerField(source="project_id")
    project = serializers.CharField(source="project.slug")
    version = serializers.IntegerField(source="active.number", allow_null=True, default=None)

    class Meta:
        model = Configuration
        fields: ClassVar = ["id", "project", "version", "changed_at"]


class SourceProjectDetailSerializer(SourceProjectSerializer):
    """A project with all its sources."""

    sources = SourceSerializer(many=True)

    class Meta(SourceProjectSerializer.Meta):
        fields: ClassVar = [*SourceProjectSerializer.Meta.fields, "sources"]


class NamesSerializer(serializers.Serializer[Any]):
    """Names of sources; empty for all."""

    sources = serializers.ListField(
        child=serializers.CharField(max_length=64),
        required=False,
        allow_empty=False,
        max_length=500,
        help_text=_("Names of sources. Default: all enabled ones."),
    )


class AskedSerializer(serializers.Serializer[Any]):
    """Result of a start or stop for each source."""

    name = serializers.CharField()
    became = serializers.ChoiceField(choices=[outcome.value for outcome in CommandOutcome])


class SourceNameSerializer(serializers.Serializer[Any]):
    """Name of a source."""

    name = serializers.CharField(max_length=64)


class HarvestPreviewSerializer(serializers.Serializer[Any]):
    """What an import would read; ``counted`` is false where the number is unknown beforehand."""

    total = serializers.IntegerField()
    batches = serializers.IntegerField()
    records = serializers.IntegerField()
    new = serializers.IntegerField()
    re_read = serializers.IntegerField(help_text=_("Records imported earlier, dropped."))
    start_offset = serializers.IntegerField(allow_null=True)
    end_offset = serializers.IntegerField(allow_null=True)
    first = serializers.BooleanField()
    resumed = serializers.BooleanField(help_text=_("true if it resumes an earlier import."))
    shrunk = serializers.BooleanField(help_text=_("The source has fewer records than before."))
    counted = serializers.BooleanField()


class MarkerSerializer(SourceNameSerializer):
    """Marker: the offset at which the next import ends."""

    marker = serializers.IntegerField(
        min_value=0,
        max_value=2**53 - 1,
        allow_null=True,
        help_text=_("The last start offset; null: the next import reads everything."),
    )
    by_seed_rule = serializers.BooleanField(
        default=False,
        help_text=_("true if set by a program that skips the first total % batch records."),
    )


class QueueSerializer(serializers.Serializer[Any]):
    """``?queue=``"""

    queue = serializers.CharField(
        max_length=200,
        required=False,
        default="",
        help_text=_("Optional while the project has a single queue."),
    )


class TakeSerializer(QueueSerializer):
    """Number of records to take."""

    count = serializers.IntegerField(min_value=1, max_value=MAX_RECORDS, default=100)


class RecordLeaseSerializer(TakeSerializer):
    """Number of records, and the seconds of the lease."""

    seconds = serializers.FloatField(min_value=1, max_value=MAX_LEASE_SECONDS, default=300)


class EndLeaseSerializer(QueueSerializer):
    """Records of a lease by id; without ids all of them."""

    lease = serializers.CharField(max_length=32)
    ids = serializers.ListField(
        child=serializers.CharField(max_length=255), required=False, max_length=MAX_RECORDS
    )


class RecordSerializer(serializers.Serializer[Any]):
    """A record. ``raw`` is the base64 of a body that is not JSON; ``record`` is null then."""

    id = serializers.CharField()
    record = serializers.JSONField(allow_null=True)
    raw = serializers.CharField(required=False)
    expires_at = serializers.DateTimeField(allow_null=True)


class RecordsSerializer(serializers.Serializer[Any]):
    """Records, oldest first."""

    queue = serializers.CharField()
    records = RecordSerializer(many=True)


class LeasedRecordsSerializer(RecordsSerializer):
    """Leased records, oldest first, until ``deadline_at``; acknowledge them with ``lease``."""

    lease = serializers.CharField()
    deadline_at = serializers.DateTimeField()


class EndedSerializer(serializers.Serializer[Any]):
    """Number of records that were acknowledged or returned."""

    records = serializers.IntegerField()


class SizeSerializer(serializers.Serializer[Any]):
    """Numbers of records in a queue."""

    queue = serializers.CharField()
    size = serializers.IntegerField(help_text=_("Number of records available to consumers."))
    waiting = serializers.IntegerField(help_text=_("Number of messages counted by the broker."))
    expired = serializers.IntegerField(
        help_text=_("Of these, expired messages that the broker has not removed yet.")
    )
    leased = serializers.IntegerField()
    returned = serializers.IntegerField(help_text=_("Returned, or with an expired lease."))


class CredentialSerializer(serializers.ModelSerializer[Credential]):
    """Credentials; the four secrets are write-only."""

    project = VisibleRelatedField(queryset=Project.objects.all())
    username = serializers.CharField(write_only=True, required=False, allow_blank=True)
    password = serializers.CharField(
        write_only=True, required=False, allow_blank=True, trim_whitespace=False
    )
    token = serializers.CharField(write_only=True, required=False, allow_blank=True)
    headers = serializers.CharField(
        write_only=True,
        required=False,
        allow_blank=True,
        help_text=_("A JSON object of names and values."),
    )

    class Meta:
        model = Credential
        fields = (
            "id",
            "project",
            "name",
            "username",
            "password",
            "token",
            "headers",
            "created_at",
            "updated_at",
        )
        read_only_fields = ("created_at", "updated_at")

    def get_fields(self) -> dict[str, Any]:
        """Make project and name read-only after creation: sources refer to the name."""
        fields: dict[str, Any] = super().get_fields()
        if self.instance is not None and not isinstance(self.instance, list):
            fields["project"].read_only = fields["name"].read_only = True
        return fields
