"""Messages, processes and periodic tasks as REST shows them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.apps import apps
from django.db.models import Model
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.access.services import mask
from apps.runtime.engine.preview import preview
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage
from apps.runtime.queries import is_live


def beat_model() -> type[Model]:
    """Periodic tasks, without loading beat's models before they are needed."""
    return apps.get_model("django_celery_beat", "PeriodicTask")


class BodySerializer(serializers.Serializer[Any]):
    """What can be read of a body; values under secret names are hidden."""

    form = serializers.ChoiceField(choices=["message", "msgpack", "json", "text", "hex"])
    kind = serializers.CharField(help_text="The name of a message of the platform.")
    text = serializers.CharField()
    cut = serializers.BooleanField(help_text="Only its beginning.")


class _MessageSerializer(serializers.ModelSerializer[Any]):
    """Headers without what sounds secret."""

    headers = serializers.SerializerMethodField()

    @extend_schema_field({"type": "object", "additionalProperties": {}})
    def get_headers(self, row: DeadLetter | OutboxMessage) -> dict[str, Any]:
        """The message's own."""
        return mask(row.headers)


class _WithBody(serializers.Serializer[Any]):
    """The body beside all else."""

    body = serializers.SerializerMethodField()

    @extend_schema_field(BodySerializer)
    def get_body(self, row: DeadLetter | OutboxMessage) -> dict[str, Any]:
        """Cut to a size."""
        return dict(BodySerializer(preview(bytes(row.body), mask)).data)


class DeadLetterSerializer(_MessageSerializer):
    """A message that nobody could use."""

    class Meta:
        model = DeadLetter
        fields: ClassVar[tuple[str, ...]] = (
            "id",
            "message_id",
            "queue",
            "reason",
            "body_size",
            "headers",
            "exchange",
            "key",
            "project",
            "died_at",
            "stored_at",
            "state",
            "resolved_by",
            "resolved_at",
        )
        read_only_fields = fields


class DeadLetterDetailSerializer(_WithBody, DeadLetterSerializer):
    """With its body."""

    class Meta(DeadLetterSerializer.Meta):
        fields = (*DeadLetterSerializer.Meta.fields, "body")
        read_only_fields = fields


class OutboxMessageSerializer(_MessageSerializer):
    """A message that waits to be sent."""

    class Meta:
        model = OutboxMessage
        fields: ClassVar[tuple[str, ...]] = (
            "id",
            "message_id",
            "exchange",
            "key",
            "headers",
            "ttl_seconds",
            "priority",
            "persistent",
            "mandatory",
            "created_at",
            "attempts",
            "next_try_at",
            "error",
        )
        read_only_fields = fields
        extra_kwargs: ClassVar = {"next_try_at": {"help_text": "null: at once."}}


class OutboxMessageDetailSerializer(_WithBody, OutboxMessageSerializer):
    """With its body."""

    class Meta(OutboxMessageSerializer.Meta):
        fields = (*OutboxMessageSerializer.Meta.fields, "body")
        read_only_fields = fields


class DaemonSerializer(serializers.ModelSerializer[Daemon]):
    """A process, by its last heartbeat."""

    alive = serializers.SerializerMethodField()
    detail = serializers.SerializerMethodField(help_text="What its heartbeat says beside.")

    class Meta:
        model = Daemon
        fields = (
            "id",
            "kind",
            "name",
            "host",
            "pid",
            "boot",
            "state",
            "alive",
            "version",
            "started_at",
            "beat_at",
            "detail",
        )
        read_only_fields = fields

    def get_alive(self, daemon: Daemon) -> bool:
        """Its heartbeat is young, and it has not said that it ends."""
        return is_live(daemon, now=self.context.get("now"))

    @extend_schema_field({"type": "object", "additionalProperties": {}})
    def get_detail(self, daemon: Daemon) -> dict[str, Any]:
        """Without what sounds secret."""
        return mask(daemon.detail)


class PeriodicTaskSerializer(serializers.Serializer[Any]):
    """Something that beat wakes a worker for."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    task = serializers.CharField()
    arguments = serializers.CharField(source="kwargs", help_text="JSON.")
    queue = serializers.CharField(allow_null=True)
    schedule = serializers.SerializerMethodField(help_text="In words.")
    enabled = serializers.BooleanField()
    last_run_at = serializers.DateTimeField(allow_null=True)
    total_run_count = serializers.IntegerField()
    date_changed = serializers.DateTimeField()

    def get_schedule(self, task: Any) -> str:
        """When."""
        return str(task.scheduler)
