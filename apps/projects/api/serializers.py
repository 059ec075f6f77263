"""JSON of projects."""

from __future__ import annotations

from rest_framework import serializers

from apps.projects.models import Project, validate_networks


class ProjectSerializer(serializers.ModelSerializer[Project]):
    """A project."""

    allowed_networks = serializers.ListField(
        child=serializers.CharField(max_length=60), required=False, validators=[validate_networks]
    )

    class Meta:
        model = Project
        fields = (
            "id",
            "name",
            "slug",
            "description",
            "allowed_networks",
            "created_at",
            "updated_at",
        )
        read_only_fields = ("created_at", "updated_at")
