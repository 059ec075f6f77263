"""Serializers of messages, daemons and periodic tasks."""

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
    """Return beat's model of periodic tasks, loaded on first use."""
    return apps.get_model("django_celery_beat", "PeriodicTask")


class BodySerializer(serializers.Serializer[Any]):
    """Decoded body of a message; values with secret names are masked."""

    form = serializers.ChoiceField(choices=["message", "msgpack", "json", "text", "hex"])
    kind = serializers.CharField(help_text="Type of a message of the platform.")
    text = serializers.CharField()
    cut = serializers.BooleanField(help_text="The text is truncated.")


class _MessageSerializer(serializers.ModelSerializer[Any]):
    """Base: message with masked headers."""

    headers = serializers.SerializerMethodField()

    @extend_schema_field({"type": "object", "additionalProperties": {}})
    def get_headers(self, row: DeadLetter | OutboxMessage) -> dict[str, Any]:
        """Return the headers; values with secret names are masked."""
        return mask(row.headers)


class _WithBody(serializers.Serializer[Any]):
    """Adds the decoded body."""

    body = serializers.SerializerMethodField()

    @extend_schema_field(BodySerializer)
    def get_body(self, row: DeadLetter | OutboxMessage) -> dict[str, Any]:
        """Return the decoded body, truncated."""
        return dict(BodySerializer(preview(bytes(row.body), mask)).data)


class DeadLetterSerializer(_MessageSerializer):
    """A message that no consumer could process."""

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
    """A dead letter with its body."""

    class Meta(DeadLetterSerializer.Meta):
        fields = (*DeadLetterSerializer.Meta.fields, "body")
        read_only_fields = fields


class OutboxMessageSerializer(_MessageSerializer):
    """An unsent message of the outbox."""

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
        extra_kwargs: ClassVar = {"next_try_at": {"help_text": "null: as soon as possible."}}


class OutboxMessageDetailSerializer(_WithBody, OutboxMessageSerializer):
    """An unsent message with its body."""

    class Meta(OutboxMessageSerializer.Meta):
        fields = (*OutboxMessageSerializer.Meta.fields, "body")
        read_only_fields = fields


class DaemonSerializer(serializers.ModelSerializer[Daemon]):
    """A daemon, by its last heartbeat."""

    alive = serializers.SerializerMethodField()
    detail = serializers.SerializerMethodField(help_text="Further data of the heartbeat.")

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
        """Whether its heartbeat is recent and its state is not final."""
        return is_live(daemon, now=self.context.get("now"))

    @extend_schema_field({"type": "object", "additionalProperties": {}})
    def get_detail(self, daemon: Daemon) -> dict[str, Any]:
        """Return the data; values with secret names are masked."""
        return mask(daemon.detail)


class PeriodicTaskSerializer(serializers.Serializer[Any]):
    """A periodic task of beat."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    task = serializers.CharField()
    arguments = serializers.CharField(source="kwargs", help_text="JSON.")
    queue = serializers.CharField(allow_null=True)
    schedule = serializers.SerializerMethodField(help_text="Times of the task, in words.")
    enabled = serializers.BooleanField()
    last_run_at = serializers.DateTimeField(allow_null=True)
    total_run_count = serializers.IntegerField()
    date_changed = serializers.DateTimeField()

    def get_schedule(self, task: Any) -> str:
        """Return the times of the task, in words."""
        return str(task.scheduler)
