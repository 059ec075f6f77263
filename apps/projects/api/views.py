"""REST of projects."""

from __future__ import annotations

from typing import Any

from rest_framework.serializers import BaseSerializer

from apps.access.api.base import WriteViewSet
from apps.access.errors import RoleRequired
from apps.access.states import Role
from apps.projects.api.serializers import ProjectSerializer
from apps.projects.models import Project
from apps.projects.services import change_project, create_project, delete_project


class ProjectViewSet(WriteViewSet[Project]):
    """Projects: made and deleted by superusers, kept by the project's admins."""

    queryset = Project.objects.all()
    serializer_class = ProjectSerializer
    filterset_fields = ("slug", "name")
    required_roles = dict.fromkeys(("create", "update", "partial_update", "destroy"), Role.ADMIN)

    def check_role_for_input(self, serializer: BaseSerializer[Project]) -> None:
        """A new project is nobody's yet."""
        if not self.person.sees_everything:
            raise RoleRequired

    def project_of_input(self, values: Any) -> int | None:
        """The input names no project: it is one."""
        return None

    def create_object(self, values: dict[str, Any]) -> Project:
        """By the service."""
        return create_project(actor=self.person, values=values)

    def update_object(self, obj: Project, values: dict[str, Any]) -> Project:
        """By the service."""
        return change_project(actor=self.person, project=obj, values=values)

    def delete_object(self, obj: Project) -> None:
        """By the service; like making one, for those who see everything."""
        if not self.person.sees_everything:
            raise RoleRequired
        delete_project(actor=self.person, project=obj)
