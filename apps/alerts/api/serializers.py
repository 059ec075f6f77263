"""Serializers of incidents, channels and notifications."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.access.api.fields import VisibleRelatedField
from apps.alerts.models import Channel, Incident, IncidentNote, Notice
from apps.alerts.services.channel_fields import shown_host, stored_secrets
from apps.alerts.services.delivery import secrets_of
from apps.alerts.services.incidents import LONGEST_SNOOZE
from apps.alerts.services.texts import advice, sentence
from apps.projects.models import Project


class NoticeSerializer(serializers.ModelSerializer[Notice]):
    """Notification through one channel, with its result."""

    class Meta:
        model = Notice
        fields = (
            "id",
            "project",
            "incident",
            "channel",
            "channel_name",
            "run",
            "kind",
            "state",
            "problem",
            "answer",
            "attempts",
            "created_at",
            "not_before",
            "next_try_at",
            "sent_at",
            "resent_of",
        )
        read_only_fields = fields


class StepSerializer(serializers.ModelSerializer[IncidentNote]):
    """Entry of an incident's history."""

    class Meta:
        model = IncidentNote
        fields = ("at", "what", "by", "detail")
        read_only_fields = fields


class IncidentSerializer(serializers.ModelSerializer[Incident]):
    """Incident opened by a rule."""

    text = serializers.SerializerMethodField(help_text=_("One-line summary in your language."))
    advice = serializers.SerializerMethodField(help_text=_("Recommended action."))
    began_at = serializers.DateTimeField(source="since", read_only=True)
    acknowledged_by = serializers.CharField(
        source="acknowledged_by.username", default=None, allow_null=True, read_only=True
    )

    class Meta:
        model = Incident
        fields: ClassVar[Any] = (
            "id",
            "project",
            "project_name",
            "rule",
            "version",
            "key",
            "source",
            "condition",
            "severity",
            "state",
            "text",
            "advice",
            "facts",
            "address",
            "value",
            "count",
            "began_at",
            "opened_at",
            "seen_at",
            "ended_at",
            "acknowledged_at",
            "acknowledged_by",
            "snoozed_until",
            "escalated",
            "told_at",
        )
        read_only_fields = fields

    def get_text(self, incident: Incident) -> str:
        """Return the summary in one line."""
        return sentence(incident)

    def get_advice(self, incident: Incident) -> str:
        """Return what to do: by the rule, or by what it watches."""
        return advice(incident)


class IncidentDetailSerializer(IncidentSerializer):
    """Incident with its history and notifications."""

    story = StepSerializer(source="notes", many=True, read_only=True)
    notices = NoticeSerializer(many=True, read_only=True)

    class Meta(IncidentSerializer.Meta):
        fields: ClassVar[Any] = (*IncidentSerializer.Meta.fields, "story", "notices")
        read_only_fields = fields


class NoteSerializer(serializers.Serializer[Any]):
    """Comment on an action."""

    note = serializers.CharField(max_length=500, required=False, default="", allow_blank=True)


class SnoozeSerializer(NoteSerializer):
    """Duration of a snooze, with a comment."""

    seconds = serializers.IntegerField(
        min_value=60, max_value=int(LONGEST_SNOOZE.total_seconds()), default=3600
    )


class ChannelSerializer(serializers.ModelSerializer[Channel]):
    """Notification channel. ``secrets`` are write-only."""

    project = VisibleRelatedField(
        queryset=Project.objects.all(),
        allow_null=True,
        required=False,
        default=None,
        help_text=_("null: a platform channel, for all projects."),
    )
    language = serializers.ChoiceField(choices=settings.LANGUAGES, default="en")
    settings = serializers.DictField(
        required=False,
        default=dict,
        help_text=_("Depends on the kind, see the guide on notifications."),
    )
    secrets = serializers.DictField(
        child=serializers.CharField(allow_blank=True, max_length=4000),
        write_only=True,
        required=False,
        default=dict,
        help_text=_('Secrets by name. Omitted ones are kept, "" removes one.'),
    )
    has_secrets = serializers.SerializerMethodField(help_text=_("Names of the stored secrets."))
    host = serializers.SerializerMethodField(help_text=_("Host name of the called server."))

    class Meta:
        model = Channel
        fields = (
            "id",
            "project",
            "name",
            "kind",
            "enabled",
            "language",
            "settings",
            "secrets",
            "has_secrets",
            "host",
            "created_at",
            "updated_at",
        )
        read_only_fields = ("created_at", "updated_at")
        # Uniqueness is validated by the service.
        validators: ClassVar[list[Any]] = []

    def get_fields(self) -> dict[str, Any]:
        """Make name, kind and project read-only for an existing channel: rules refer to them."""
        fields: dict[str, Any] = super().get_fields()
        if self.instance is not None and not isinstance(self.instance, list):
            for name in ("project", "name", "kind"):
                fields[name].read_only = True
        return fields

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_has_secrets(self, channel: Channel) -> list[str]:
        """Return the names of stored secrets, without values."""
        return list(stored_secrets(channel.kind, secrets_of(channel)))

    def get_host(self, channel: Channel) -> str:
        """Return the host name only: the rest of the URL may be secret."""
        return shown_host(secrets_of(channel), channel.settings)
