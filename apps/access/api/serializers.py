"""Serializers of users, tokens, memberships and the audit trail."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.apps import apps
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.access.api.fields import VisibleRelatedField
from apps.access.models import ApiToken, AuditRecord, Membership, SavedFilter, User
from apps.access.queries import changed_fields
from apps.access.services import MAX_NETWORKS, MAX_OVERLAP
from apps.access.states import MAX_SCOPES, Role


def all_projects() -> Any:
    """Queryset of projects, without importing the app above this one."""
    return apps.get_model("projects", "Project")._default_manager.all()


class MembershipSerializer(serializers.ModelSerializer[Membership]):
    """The role of one person in one project."""

    user = serializers.SlugRelatedField(
        slug_field="username",
        queryset=User.objects.filter(is_active=True),
        help_text=_("User name."),
    )
    project = VisibleRelatedField(queryset=Membership.objects.none())

    class Meta:
        model = Membership
        fields = ("id", "user", "project", "role")
        # No uniqueness check: assigning a role again updates it.
        validators: ClassVar[list[Any]] = []

    def get_fields(self) -> dict[str, Any]:
        """Make everything but the role read-only after creation."""
        fields: dict[str, Any] = super().get_fields()
        fields["project"].queryset = all_projects()
        if self.instance is not None and not isinstance(self.instance, list):
            fields["user"].read_only = fields["project"].read_only = True
        return fields


class OwnRoleSerializer(serializers.ModelSerializer[Membership]):
    """A role of the caller."""

    class Meta:
        model = Membership
        fields = ("project", "role")


class ApiTokenSerializer(serializers.ModelSerializer[ApiToken]):
    """A token without its secret."""

    project = VisibleRelatedField(
        queryset=Membership.objects.none(), required=False, allow_null=True, default=None
    )
    scopes = serializers.ListField(
        child=serializers.CharField(max_length=60), min_length=1, max_length=MAX_SCOPES
    )
    allowed_networks = serializers.ListField(
        child=serializers.CharField(max_length=60),
        required=False,
        max_length=MAX_NETWORKS,
        help_text=_("Networks from which the token is accepted, such as 10.20.0.0/16; empty: any."),
    )
    expires_in_days = serializers.IntegerField(
        write_only=True,
        required=False,
        min_value=1,
        max_value=3650,
        help_text=_("Instead of expires_at."),
    )

    class Meta:
        model = ApiToken
        fields = (
            "id",
            "name",
            "prefix",
            "project",
            "scopes",
            "allowed_networks",
            "expires_at",
            "expires_in_days",
            "previous_until",
            "last_used_at",
            "last_used_from",
            "revoked_at",
            "created_at",
        )
        read_only_fields = (
            "prefix",
            "previous_until",
            "last_used_at",
            "last_used_from",
            "revoked_at",
            "created_at",
        )

    def get_fields(self) -> dict[str, Any]:
        """Set the project choices here: the project model is in an app above this one."""
        fields: dict[str, Any] = super().get_fields()
        fields["project"].queryset = all_projects()
        return fields

    def validate_expires_at(self, value: Any) -> Any:
        """Require a time in the future."""
        if value is not None and value <= timezone.now():
            raise serializers.ValidationError(_("This time is in the past."))
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Allow only one of ``expires_at`` and a lifetime."""
        days = attrs.pop("expires_in_days", None)
        if days is not None and attrs.get("expires_at") is not None:
            raise serializers.ValidationError(
                {"expires_in_days": _("Give one of expires_at and expires_in_days.")}
            )
        if days is not None:
            attrs["expires_at"] = timezone.now() + timedelta(days=days)
        return attrs


class NewTokenSerializer(ApiTokenSerializer):
    """A new token with its secret; the secret is null in repeated responses."""

    secret = serializers.CharField(read_only=True, allow_null=True)

    class Meta(ApiTokenSerializer.Meta):
        fields = (*ApiTokenSerializer.Meta.fields, "secret")  # type: ignore[assignment]


class RotationSerializer(serializers.Serializer[Any]):
    """Seconds for which the old secret stays valid beside the new one."""

    overlap_seconds = serializers.IntegerField(
        required=False,
        default=0,
        min_value=0,
        max_value=int(MAX_OVERLAP.total_seconds()),
        help_text=_("Seconds for which the old secret stays valid; 0 ends it at once."),
    )


class MeSerializer(serializers.ModelSerializer[User]):
    """The caller and their permissions."""

    is_superuser = serializers.BooleanField(
        source="rules_everything", help_text=_("Admin of every project.")
    )
    # Not the model's field: most users have no e-mail address, and "" is valid.
    email = serializers.CharField(read_only=True)
    roles = serializers.SerializerMethodField()
    token = ApiTokenSerializer(source="acting_token", allow_null=True)

    class Meta:
        model = User
        fields = (
            "id",
            "username",
            "first_name",
            "last_name",
            "email",
            "is_superuser",
            "is_auditor",
            "roles",
            "token",
        )
        read_only_fields = fields

    @extend_schema_field(OwnRoleSerializer(many=True))
    def get_roles(self, user: User) -> list[dict[str, Any]]:
        """Roles in the projects that this call can access."""
        rows = Membership.objects.visible_to(user, Role.VIEWER).filter(user=user)
        return list(OwnRoleSerializer(rows.order_by("project_id"), many=True).data)


class ChangedFieldSerializer(serializers.Serializer[Any]):
    """A changed field of an audit record."""

    name = serializers.CharField()
    title = serializers.CharField(
        source="label", help_text=_("Translated name, in the language of the request.")
    )
    change = serializers.ChoiceField(choices=["added", "removed", "changed", "same"])
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)


class AuditRecordSerializer(serializers.ModelSerializer[AuditRecord]):
    """One recorded action."""

    changes = serializers.SerializerMethodField(
        help_text=_("Before and after by field, nested ones by dotted names.")
    )

    class Meta:
        model = AuditRecord
        fields = (
            "id",
            "at",
            "actor",
            "actor_label",
            "token",
            "action",
            "object_type",
            "object_id",
            "object_label",
            "project",
            "before",
            "after",
            "changes",
            "request_id",
            "note",
        )

    @extend_schema_field(ChangedFieldSerializer(many=True))
    def get_changes(self, entry: AuditRecord) -> list[dict[str, Any]]:
        """Changed fields."""
        return list(ChangedFieldSerializer(changed_fields(entry), many=True).data)


class SavedFilterSerializer(serializers.ModelSerializer[SavedFilter]):
    """A list filter that the caller has saved."""

    path = serializers.CharField(max_length=200, help_text=_("The page, such as /admin/jobs/run/."))
    query = serializers.CharField(
        max_length=2000, help_text=_("Query string: the part of the address after the ?.")
    )
    name = serializers.CharField(max_length=60)

    class Meta:
        model = SavedFilter
        fields = ("id", "path", "name", "query", "created_at")
        read_only_fields = ("created_at",)
        # The service reports names that are taken.
        validators: ClassVar[list[Any]] = []

    def get_fields(self) -> dict[str, Any]:
        """Make everything but the name read-only after creation."""
        fields: dict[str, Any] = super().get_fields()
        if self.instance is not None and not isinstance(self.instance, list):
            fields["path"].read_only = fields["query"].read_only = True
        return fields
