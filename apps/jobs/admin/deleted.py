"""Admin of deleted jobs, which editors can restore."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from apps.access.admin.base import person_of, projects_of
from apps.access.admin.deleted import DeletedAdmin
from apps.access.admin.filters import VisibleRelatedFilter
from apps.access.states import Role
from apps.jobs.models import DeletedJob
from apps.jobs.services import restore_job


@admin.register(DeletedJob)
class DeletedJobAdmin(DeletedAdmin):
    """List of deleted jobs in existing projects; restoring a project also restores its jobs."""

    list_display = ("name", "project", "deleted_at", "deleted_by", "ends")
    list_select_related = ("project",)
    list_filter = (("project", VisibleRelatedFilter),)
    fields = ("name", "project", "deleted_at", "deleted_by", "ends")

    def restores(self, request: HttpRequest, obj: Any) -> bool:
        """Allow editors to restore a job: they may delete jobs, too."""
        return obj.project_id in projects_of(request, Role.EDITOR)

    def restore_object(self, request: HttpRequest, obj: Any) -> None:
        restore_job(job=obj, actor=person_of(request))
