"""Admin of deleted projects, which superusers can restore."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from apps.access.admin.base import person_of
from apps.access.admin.deleted import DeletedAdmin
from apps.projects.models import DeletedProject
from apps.projects.services import restore_project


@admin.register(DeletedProject)
class DeletedProjectAdmin(DeletedAdmin):
    """List of deleted projects, for superusers and auditors."""

    list_display = ("name", "slug", "deleted_at", "deleted_by", "ends")
    fields = ("name", "slug", "deleted_at", "deleted_by", "ends")

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Allow superusers and auditors: a deleted project has no members."""
        person = person_of(request)
        return person is not None and person.is_staff and person.sees_everything

    def restores(self, request: HttpRequest, obj: Any) -> bool:
        """Allow superusers to restore a project: only they may delete projects."""
        person = person_of(request)
        return person is not None and person.rules_everything

    def restore_object(self, request: HttpRequest, obj: Any) -> None:
        restore_project(actor=person_of(request), project=obj)
