"""Serializers of resource pools. Only the answer to a lease contains a secret."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.access.api.fields import VisibleRelatedField
from apps.access.states import Role
from apps.projects.models import Project
from apps.seeds.engine.resource_files import MAX_BYTES, MAX_NAME, FileFormat
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.services.resources import MAX_KEY, MAX_LEASE_SECONDS
from yardkit.protocol import ResourceOutcome
from yardkit.protocol.resources import MAX_REASON


class ResourcePoolSerializer(serializers.ModelSerializer[ResourcePool]):
    """Resource pool, with the number of its resources per state."""

    project = VisibleRelatedField(queryset=Project.objects.all())
    total = serializers.IntegerField(read_only=True)
    at_hand = serializers.IntegerField(read_only=True, help_text=_("Free and available now."))
    leased = serializers.IntegerField(read_only=True)
    cooling = serializers.IntegerField(read_only=True, help_text=_("Free, but cooling down."))
    banned = serializers.IntegerField(read_only=True)
    disabled = serializers.IntegerField(read_only=True)

    class Meta:
        model = ResourcePool
        fields = (
            "id",
            "project",
            "name",
            "description",
            "rotation_percent",
            "lease_seconds",
            "rest_seconds",
            "cool_down_seconds",
            "ban_after",
            "is_enabled",
            "total",
            "at_hand",
            "leased",
            "cooling",
            "banned",
            "disabled",
            "created_at",
            "updated_at",
        )
        read_only_fields = ("created_at", "updated_at")

    def get_fields(self) -> dict[str, Any]:
        """Make the project read-only after creation."""
        fields: dict[str, Any] = super().get_fields()
        if self.instance is not None and not isinstance(self.instance, list):
            fields["project"].read_only = True
        return fields


@extend_schema_field(
    {"oneOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]}
)
class SecretField(serializers.JSONField):
    """Write-only secret: a text, or an object of texts."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "write_only": True})


class ResourceSerializer(serializers.ModelSerializer[Resource]):
    """Resource without its secret."""

    pool = VisibleRelatedField(queryset=ResourcePool.objects.all(), at_least=Role.VIEWER)
    project = serializers.IntegerField(source="pool.project_id", read_only=True)
    name = serializers.CharField(max_length=MAX_NAME)
    secret = SecretField()

    class Meta:
        model = Resource
        fields = (
            "id",
            "project",
            "pool",
            "name",
            "secret",
            "state",
            "score",
            "lease",
            "leased_by",
            "leased_until",
            "available_at",
            "last_used_at",
            "used_count",
            "succeeded_count",
            "failed_count",
            "expired_count",
            "late_count",
            "failures_in_a_row",
            "banned_at",
            "reason",
        )
        read_only_fields = fields[5:]
        # Disabled here: the error of the service also fits a rename.
        validators: list[Any] = []

    def get_fields(self) -> dict[str, Any]:
        """Make the pool read-only after creation."""
        fields: dict[str, Any] = super().get_fields()
        if self.instance is not None and not isinstance(self.instance, list):
            fields["pool"].read_only = True
        return fields


class ResourceLeaseSerializer(serializers.Serializer[Any]):
    """Duration and idempotency key of a lease."""

    seconds = serializers.FloatField(
        default=0.0,
        min_value=0.0,
        max_value=MAX_LEASE_SECONDS,
        help_text=_("0: the pool's default"),
    )
    key = serializers.CharField(
        default="",
        allow_blank=True,
        max_length=MAX_KEY,
        help_text=_("unique for each call: a repeated call gets the same resource"),
    )


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class OpenedSecretField(serializers.DictField):
    """Decrypted secret of a leased resource."""


class HandedOutSerializer(serializers.Serializer[Any]):
    """Leased resource with its secret."""

    id = serializers.IntegerField()
    name = serializers.CharField()
    lease = serializers.IntegerField(help_text=_("Lease number, needed to return the resource."))
    until = serializers.DateTimeField()
    secret = OpenedSecretField()


class LeasedResourceSerializer(serializers.Serializer[Any]):
    """Leased resource, or the time at which one may be free."""

    resource = HandedOutSerializer(allow_null=True)
    next_at = serializers.DateTimeField(allow_null=True)


class ResourceReturnSerializer(serializers.Serializer[Any]):
    """Lease to end, and the outcome of the use."""

    lease = serializers.IntegerField(min_value=1, max_value=2**63 - 1)
    outcome = serializers.ChoiceField(choices=[choice.name.lower() for choice in ResourceOutcome])
    reason = serializers.CharField(default="", allow_blank=True, max_length=MAX_REASON)


class ReturnedResourceSerializer(serializers.Serializer[Any]):
    """Result of a return."""

    code = serializers.ChoiceField(choices=["returned", "repeated", "late"])
    resource = ResourceSerializer()


class ResourceBanSerializer(serializers.Serializer[Any]):
    """Reason of a ban."""

    reason = serializers.CharField(default="", allow_blank=True, max_length=MAX_REASON)


class ResourceFileSerializer(serializers.Serializer[Any]):
    """Uploaded file of resources."""

    file_format = serializers.ChoiceField(
        choices=[choice.value for choice in FileFormat], default=FileFormat.CSV.value
    )
    text = serializers.CharField(
        trim_whitespace=False, max_length=MAX_BYTES, help_text=_("Content of the file.")
    )


class ImportedResourcesSerializer(serializers.Serializer[Any]):
    """Result of an import of resources."""

    added = serializers.IntegerField()
    changed = serializers.IntegerField()
    unchanged = serializers.IntegerField()
