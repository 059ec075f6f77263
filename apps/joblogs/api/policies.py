"""Retention of logs over REST."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.access.api.base import WriteViewSet
from apps.access.api.fields import VisibleRelatedField
from apps.access.states import Role
from apps.joblogs.api.filters import LogPolicyFilter
from apps.joblogs.models import LogPolicy
from apps.joblogs.services import add_policy, change_policy, remove_policy
from apps.jobs.models import Job
from apps.projects.models import Project


class LogPolicySerializer(serializers.ModelSerializer[LogPolicy]):
    """How long lines are kept: of one job, or without one of the project's others."""

    project = VisibleRelatedField(queryset=Project.objects.all(), at_least=Role.EDITOR)
    job = VisibleRelatedField(
        queryset=Job.objects.all(), at_least=Role.EDITOR, allow_null=True, required=False
    )

    class Meta:
        model = LogPolicy
        fields = ["id", "project", "job", "days", "quiet_days", "max_bytes"]
        # That there is none yet is the service's to say.
        validators: list[Any] = []

    def get_fields(self) -> dict[str, Any]:
        """Whose it is is settled when it is made."""
        fields = super().get_fields()
        if isinstance(self.instance, LogPolicy):
            fields["project"].read_only = fields["job"].read_only = True
        return fields


class LogPolicyViewSet(WriteViewSet[LogPolicy]):
    """Days and sizes; what is null is said by the project's own, else by the settings."""

    queryset = LogPolicy.objects.select_related("project", "job")
    serializer_class = LogPolicySerializer
    filterset_class = LogPolicyFilter

    def create_object(self, values: dict[str, Any]) -> LogPolicy:
        """One call."""
        return add_policy(actor=self.person, **values)

    def update_object(self, obj: LogPolicy, values: dict[str, Any]) -> LogPolicy:
        """One call."""
        return change_policy(policy=obj, actor=self.person, **values)

    def delete_object(self, obj: LogPolicy) -> None:
        """One call."""
        remove_policy(policy=obj, actor=self.person)
