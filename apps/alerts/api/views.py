"""REST endpoints of incidents, channels and notifications."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from apps.access.api.base import ReadViewSet, WriteViewSet
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.alerts.api.filters import ChannelFilter, IncidentFilter, NoticeFilter
from apps.alerts.api.serializers import (
    ChannelSerializer,
    IncidentDetailSerializer,
    IncidentSerializer,
    NoteSerializer,
    NoticeSerializer,
    SnoozeSerializer,
)
from apps.alerts.models import Channel, Incident, Notice
from apps.alerts.services.channels import change_channel, create_channel, delete_channel
from apps.alerts.services.incidents import acknowledge, close, snooze
from apps.alerts.services.notices import resend, send_test


@extend_schema_view(
    list=extend_schema(summary="Incidents, newest first"),
    retrieve=extend_schema(summary="One with its story", responses=IncidentDetailSerializer),
)
class IncidentViewSet(ReadViewSet[Incident]):
    """Incidents opened by alert rules. Users acknowledge, snooze and close them."""

    queryset = Incident.objects.select_related("project", "acknowledged_by")
    serializer_class = IncidentSerializer
    filterset_class = IncidentFilter
    required_roles = dict.fromkeys(("acknowledge", "snooze", "close"), Role.OPERATOR)

    def get_serializer_class(self) -> type[BaseSerializer[Incident]]:
        """Add the history to a single incident."""
        return IncidentSerializer if self.action == "list" else IncidentDetailSerializer

    def get_queryset(self) -> QuerySet[Incident]:
        """Prefetch what the detail shows."""
        rows = super().get_queryset()
        return rows if self.action == "list" else rows.prefetch_related("notes", "notices")

    @extend_schema(
        summary="Take care of it", request=NoteSerializer, responses=IncidentDetailSerializer
    )
    @action(detail=True, methods=["post"])
    @idempotent
    def acknowledge(self, request: Request, pk: str | None = None) -> Response:
        """Acknowledge: no further reminders and escalations. 409 if the incident has ended."""
        incident, values = self._asked(request, NoteSerializer)
        acknowledge(incident=incident, actor=self.person, now=timezone.now(), note=values["note"])
        return self._shown(incident)

    @extend_schema(
        summary="Be quiet for a while", request=SnoozeSerializer, responses=IncidentDetailSerializer
    )
    @action(detail=True, methods=["post"])
    @idempotent
    def snooze(self, request: Request, pk: str | None = None) -> Response:
        """Pause notifications; all are notified again if the incident is still open then."""
        incident, values = self._asked(request, SnoozeSerializer)
        now = timezone.now()
        snooze(
            incident=incident,
            until=now + timedelta(seconds=values["seconds"]),
            actor=self.person,
            now=now,
            note=values["note"],
        )
        return self._shown(incident)

    @extend_schema(summary="Close it", request=NoteSerializer, responses=IncidentDetailSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def close(self, request: Request, pk: str | None = None) -> Response:
        """Close the incident, without notification."""
        incident, values = self._asked(request, NoteSerializer)
        close(incident=incident, actor=self.person, now=timezone.now(), note=values["note"])
        return self._shown(incident)

    def _asked(self, request: Request, shape: type[Any]) -> tuple[Incident, dict[str, Any]]:
        incident = self.get_object()
        serializer = shape(data=request.data)
        serializer.is_valid(raise_exception=True)
        return incident, dict(serializer.validated_data)

    def _shown(self, incident: Incident) -> Response:
        return self.answer(self.get_queryset().get(pk=incident.pk))


@extend_schema_view(
    list=extend_schema(summary="Channels"), create=extend_schema(summary="Make a channel")
)
class ChannelViewSet(WriteViewSet[Channel]):
    """Notification channels. Managed by editors; secrets are write-only."""

    queryset = Channel.objects.filter(person=None).select_related("project", "person")
    serializer_class = ChannelSerializer
    filterset_class = ChannelFilter
    required_roles = {"test": Role.EDITOR}

    def create_object(self, values: dict[str, Any]) -> Channel:
        project = values.get("project")
        return create_channel(
            project_id=None if project is None else project.pk,
            name=values["name"],
            kind=values["kind"],
            typed={**values["settings"], **values["secrets"]},
            language=values["language"],
            enabled=values.get("enabled", True),
            actor=self.person,
        )

    def update_object(self, obj: Channel, values: dict[str, Any]) -> Channel:
        """Change a channel; without ``settings`` they are kept."""
        typed = None
        if "settings" in values or "secrets" in values:
            typed = {**values.get("settings", obj.settings), **values.get("secrets", {})}
        return change_channel(
            channel=obj,
            typed=typed,
            language=values.get("language"),
            enabled=values.get("enabled"),
            actor=self.person,
        )

    def delete_object(self, obj: Channel) -> None:
        """Delete a channel. Fails while rules use it."""
        delete_channel(channel=obj, actor=self.person)

    @extend_schema(summary="Send a test", request=None, responses={202: NoticeSerializer})
    @action(detail=True, methods=["post"])
    @idempotent
    def test(self, request: Request, pk: str | None = None) -> Response:
        """Send a test. 202 with the notification; poll it for the result."""
        notice = send_test(channel=self.get_object(), actor=self.person, now=timezone.now())
        return Response(NoticeSerializer(notice).data, status=status.HTTP_202_ACCEPTED)


@extend_schema_view(list=extend_schema(summary="Notices, newest first"))
class NoticeViewSet(ReadViewSet[Notice]):
    """Notifications with their results."""

    queryset = Notice.objects.select_related("project", "channel", "incident")
    serializer_class = NoticeSerializer
    filterset_class = NoticeFilter
    required_roles = {"resend": Role.OPERATOR}

    @extend_schema(summary="Send it again", request=None, responses={202: NoticeSerializer})
    @action(detail=True, methods=["post"])
    @idempotent
    def resend(self, request: Request, pk: str | None = None) -> Response:
        """Resend a notification. 202 with the new one; 409 while this one is still being sent."""
        again = resend(notice=self.get_object(), actor=self.person, now=timezone.now())
        return Response(NoticeSerializer(again).data, status=status.HTTP_202_ACCEPTED)
