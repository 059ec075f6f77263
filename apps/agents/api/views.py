"""Agents over REST."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.access.api.base import ApiView, ReadViewSet
from apps.access.api.permissions import InsideScopes
from apps.access.errors import RoleRequired
from apps.access.services import has_role_somewhere
from apps.access.states import Role
from apps.agents.api.filters import AgentFilter
from apps.agents.api.serializers import (
    AgentSerializer,
    AllocatedAgentsSerializer,
    EnableSerializer,
)
from apps.agents.models import Agent
from apps.agents.queries import newest_allocation
from apps.agents.services import enable_agent
from apps.jobs.models import Run


class RoleInAnyProject(BasePermission):
    """Agents serve every project: any project's viewer sees them, any one's admin switches them."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Viewer to read, admin to write, in whichever project."""
        role = Role.VIEWER if request.method in SAFE_METHODS else Role.ADMIN
        if has_role_somewhere(request.user, role):
            return True
        raise RoleRequired


class AgentViewSet(ReadViewSet[Agent]):
    """Agents, by id."""

    queryset = Agent.objects.all()
    serializer_class = AgentSerializer
    filterset_class = AgentFilter
    permission_classes = (InsideScopes, RoleInAnyProject)
    ordering = ("id",)

    def get_queryset(self) -> QuerySet[Agent]:
        """All of them: they have no project."""
        return Agent.objects.all()

    @extend_schema(request=EnableSerializer, responses=AgentSerializer)
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Take an agent out of service, or put it back."""
        agent = self.get_object()
        body = EnableSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        enable_agent(agent=agent, enabled=body.validated_data["enabled"], actor=self.person)
        return self.answer(agent)


class RunAgentsView(ApiView):
    """The agents a run uses (seed S1.16)."""

    @extend_schema(operation_id="runs_agents_retrieve", responses=AllocatedAgentsSerializer)
    def get(self, request: Request, run: int) -> Response:
        """Those of its newest allocation; none before the first."""
        found = Run.objects.visible_to(self.person).filter(pk=run).first()
        if found is None:
            raise Http404
        allocation = newest_allocation(found.owner)
        if allocation is None:
            nothing = {"policy": "", "asked": 0, "warning": "", "released_at": None, "agents": []}
            return Response(nothing)
        return Response(AllocatedAgentsSerializer(allocation).data)
