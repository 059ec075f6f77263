"""Agents over REST."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView, ReadViewSet
from apps.access.api.idempotency import idempotent
from apps.access.api.permissions import InsideScopes, RoleInAnyProject
from apps.agents.api.filters import AgentFilter, AllocationFilter, SampleFilter
from apps.agents.api.serializers import (
    AgentSampleSerializer,
    AgentSerializer,
    AllocatedAgentsSerializer,
    AllocationSerializer,
    ExitSerializer,
    ModeSerializer,
    PreviewRequestSerializer,
    PreviewSerializer,
)
from apps.agents.models import Agent, AgentSample, Allocation
from apps.agents.queries import newest_allocation, preview_allocation
from apps.agents.services import exit_agent, switch_agent
from apps.agents.states import AgentMode
from apps.jobs.models import Run


class AgentViewSet(ReadViewSet[Agent]):
    """Download agents, by id."""

    queryset = Agent.objects.all()
    serializer_class = AgentSerializer
    filterset_class = AgentFilter
    permission_classes = (InsideScopes, RoleInAnyProject)
    ordering = ("id",)

    def get_queryset(self) -> QuerySet[Agent]:
        """Return all agents: they have no project."""
        return Agent.objects.all()

    @extend_schema(request=ModeSerializer, responses=AgentSerializer)
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change the mode of an agent."""
        agent = self.get_object()
        body = ModeSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        return self._switch(agent, AgentMode(body.validated_data["mode"]))

    @extend_schema(request=None, responses=AgentSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def enable(self, request: Request, pk: str | None = None) -> Response:
        """Return an agent to service."""
        return self._switch(self.get_object(), AgentMode.ENABLED)

    @extend_schema(request=None, responses=AgentSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def drain(self, request: Request, pk: str | None = None) -> Response:
        """Give an agent no new runs; it continues those it serves."""
        return self._switch(self.get_object(), AgentMode.DRAINING)

    @extend_schema(request=None, responses=AgentSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def disable(self, request: Request, pk: str | None = None) -> Response:
        """Stop sending requests to an agent, within 5 s."""
        return self._switch(self.get_object(), AgentMode.DISABLED)

    @extend_schema(request=ExitSerializer, responses=AgentSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def exit(self, request: Request, pk: str | None = None) -> Response:
        """Ask an agent to finish what it holds and to exit. 409 when it is not alive."""
        agent = self.get_object()
        body = ExitSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        reason = body.validated_data.get("reason", "")
        exit_agent(agent=agent, reason=reason, actor=self.person, now=timezone.now())
        return self.answer(agent)

    def _switch(self, agent: Agent, mode: AgentMode) -> Response:
        switch_agent(agent=agent, mode=mode, actor=self.person, now=timezone.now())
        return self.answer(agent)


class AgentSamplesViewSet(ReadViewSet[AgentSample]):
    """Figures of an agent by minute, newest first."""

    queryset = AgentSample.objects.all()
    serializer_class = AgentSampleSerializer
    filterset_class = SampleFilter
    permission_classes = (InsideScopes, RoleInAnyProject)

    def get_queryset(self) -> QuerySet[AgentSample]:
        if getattr(self, "swagger_fake_view", False):
            return AgentSample.objects.none()
        agent = Agent.objects.filter(pk=self.kwargs["agent"]).first()
        if agent is None:
            raise Http404
        return AgentSample.objects.filter(agent=agent)


class AllocationViewSet(ReadViewSet[Allocation]):
    """Which agents serve which run, newest first."""

    queryset = Allocation.objects.prefetch_related("agents")
    serializer_class = AllocationSerializer
    filterset_class = AllocationFilter


class AllocationPreviewView(ApiView):
    """Preview which agents a run would be given now, and why not the others."""

    permission_classes = (InsideScopes, RoleInAnyProject)
    only_reads = True

    @extend_schema(
        operation_id="agents_allocations_preview",
        request=PreviewRequestSerializer,
        responses=PreviewSerializer,
    )
    def post(self, request: Request) -> Response:
        """Preview for a job, or for a policy, a number and a type of downloader."""
        body = PreviewRequestSerializer(data=request.data, context={"request": request})
        body.is_valid(raise_exception=True)
        preview = preview_allocation(
            policy=body.validated_data["policy"],
            agents=body.validated_data["agents"],
            wanted_type=body.validated_data["type"],
            now=timezone.now(),
        )
        context = {"request": request, "type": preview.wanted_type}
        return Response(PreviewSerializer(preview, context=context).data)


class RunAgentsView(ApiView):
    """Agents of a run."""

    @extend_schema(operation_id="runs_agents_retrieve", responses=AllocatedAgentsSerializer)
    def get(self, request: Request, run: int) -> Response:
        """Return the agents of its newest allocation; none before the first."""
        found = Run.objects.visible_to(self.person).filter(pk=run).first()
        if found is None:
            raise Http404
        allocation = newest_allocation(found.owner)
        if allocation is None:
            nothing = {"policy": "", "asked": 0, "warning": "", "released_at": None, "agents": []}
            return Response(nothing)
        return Response(AllocatedAgentsSerializer(allocation).data)
