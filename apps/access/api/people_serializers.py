"""Serializers of users and passwords."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import serializers

from apps.access.models import SecondFactor, User


class PersonSerializer(serializers.ModelSerializer[User]):
    """A user. Roles in projects: `/memberships`."""

    email = serializers.EmailField(required=False, allow_blank=True)
    has_second_factor = serializers.SerializerMethodField()

    class Meta:
        model = User
        fields: ClassVar[tuple[str, ...]] = (
            "id",
            "username",
            "first_name",
            "last_name",
            "email",
            "is_active",
            "is_staff",
            "is_auditor",
            "is_superuser",
            "must_change_password",
            "has_second_factor",
            "last_login",
            "date_joined",
        )
        read_only_fields = ("must_change_password", "last_login", "date_joined")

    def get_has_second_factor(self, user: User) -> bool:
        """Whether login asks for a second factor."""
        known: bool | None = getattr(user, "has_factor", None)
        return SecondFactor.objects.filter(user=user).exists() if known is None else known


class NewPersonSerializer(PersonSerializer):
    """A new user with a one-time password; the password is null in repeated responses."""

    password = serializers.CharField(read_only=True, allow_null=True)

    class Meta(PersonSerializer.Meta):
        fields = (*PersonSerializer.Meta.fields, "password")


class PasswordSerializer(serializers.Serializer[Any]):
    """The current and the new password."""

    old_password = serializers.CharField(max_length=4096, trim_whitespace=False)
    new_password = serializers.CharField(max_length=4096, trim_whitespace=False)


class EndedSessionsSerializer(serializers.Serializer[Any]):
    """Number of sessions that were ended."""

    ended = serializers.IntegerField()
