"""REST views of jobs."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import WriteViewSet
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.jobs import services
from apps.jobs.api.filters import JobFilter
from apps.jobs.api.job_files import JobFilesMixin
from apps.jobs.api.job_serializers import CloneSerializer, DeletedJobSerializer, JobSerializer
from apps.jobs.api.runs import JobRunsMixin
from apps.jobs.models import DeletedJob, Job


class JobViewSet(JobRunsMixin, JobFilesMixin, WriteViewSet[Job]):
    """Jobs. Editors change jobs, operators start them."""

    queryset = Job.objects.select_related("project", "image")
    serializer_class = JobSerializer
    filterset_class = JobFilter
    required_roles = {
        "start": Role.OPERATOR,
        "pause": Role.OPERATOR,
        "resume": Role.OPERATOR,
        "stop": Role.OPERATOR,
        "clone": Role.EDITOR,
        "restore": Role.EDITOR,
        "import_file": Role.EDITOR,
    }

    def create_object(self, values: dict[str, Any]) -> Job:
        return services.create_job(values=values, actor=self.person)

    def update_object(self, obj: Job, values: dict[str, Any]) -> Job:
        return services.update_job(job=obj, values=values, actor=self.person)

    def delete_object(self, obj: Job) -> None:
        """Delete a job; 409 while one of its runs is active."""
        services.delete_job(job=obj, actor=self.person)

    def get_queryset(self) -> QuerySet[Job]:
        """Return jobs; for ``restore`` and ``deleted`` the deleted jobs."""
        if self.action == "restore":
            self.queryset = Job.all_objects.select_related("project", "image")
        if self.action == "deleted":
            self.queryset = DeletedJob.objects.filter(deleted_at__isnull=False)
        return super().get_queryset()

    @extend_schema(summary="Deleted jobs", responses=DeletedJobSerializer(many=True))
    @action(detail=False, methods=["get"], filterset_class=None)
    def deleted(self, request: Request) -> Response:
        """List deleted jobs that are not purged yet, newest first."""
        page: Any = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(DeletedJobSerializer(page, many=True).data)

    @extend_schema(request=None, responses=JobSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def restore(self, request: Request, pk: str | None = None) -> Response:
        """Restore a deleted job; its schedule continues from now. 409 if the name is in use."""
        return self.answer(services.restore_job(job=self.get_object(), actor=self.person))

    @extend_schema(request=CloneSerializer, responses={201: JobSerializer})
    @action(detail=True, methods=["post"])
    @idempotent
    def clone(self, request: Request, pk: str | None = None) -> Response:
        """Add a disabled copy of this job, including its secrets.

        409 if the name is in use.
        """
        job = self.get_object()
        body = CloneSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        clone = services.clone_job(
            job=job, actor=self.person, now=timezone.now(), name=body.validated_data.get("name", "")
        )
        return self.answer(clone, http_status=status.HTTP_201_CREATED)
