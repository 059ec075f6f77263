"""REST views of links between jobs."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from apps.access.api.base import WriteViewSet
from apps.access.api.fields import KnownFields, VisibleRelatedField
from apps.access.querysets import VisibleQuerySet
from apps.access.states import Role
from apps.jobs import services
from apps.jobs.api.filters import JobLinkFilter
from apps.jobs.models import Job, JobLink
from apps.jobs.states import LinkCondition


class JobLinkSerializer(KnownFields, serializers.ModelSerializer[JobLink]):
    """Link between jobs: when a run of `after` ends and `condition` holds, `job` is run."""

    project = serializers.IntegerField(source="job.project_id", read_only=True)
    job = VisibleRelatedField(queryset=Job.objects.all(), at_least=Role.EDITOR)
    after = VisibleRelatedField(queryset=Job.objects.all(), at_least=Role.EDITOR)
    condition = serializers.ChoiceField(
        choices=LinkCondition.choices, default=LinkCondition.SUCCEEDED
    )

    class Meta:
        model = JobLink
        fields = ["id", "project", "job", "after", "condition", "created_at"]
        # The service checks for a duplicate link, under a lock.
        validators: list[Any] = []

    def get_fields(self) -> dict[str, Any]:
        """Make both jobs read-only after creation."""
        fields = super().get_fields()
        if isinstance(self.instance, JobLink):
            fields["job"].read_only = fields["after"].read_only = True
        return fields


class JobLinkViewSet(WriteViewSet[JobLink]):
    """Links between jobs. Only the condition of a link can be changed."""

    queryset = JobLink.objects.select_related("job", "after")
    serializer_class = JobLinkSerializer
    filterset_class = JobLinkFilter

    def get_queryset(self) -> QuerySet[JobLink]:
        """Return links where both jobs are visible to the caller."""
        rows = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return rows
        seen: VisibleQuerySet[Job] = Job.objects.visible_to(self.request.user)
        return rows.filter(after__in=seen)

    def create_object(self, values: dict[str, Any]) -> JobLink:
        """Add a link; 422 with the path if the link would form a cycle."""
        return services.add_link(actor=self.person, **values)

    def update_object(self, obj: JobLink, values: dict[str, Any]) -> JobLink:
        condition = values.get("condition", obj.condition)
        return services.change_link(link=obj, condition=condition, actor=self.person)

    def delete_object(self, obj: JobLink) -> None:
        services.remove_link(link=obj, actor=self.person)
