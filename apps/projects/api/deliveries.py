"""REST views of webhook deliveries."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from apps.access.api.base import ReadViewSet
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.projects.models import Delivery
from apps.projects.services import replay_delivery


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    """Delivery without headers and body."""

    class Meta:
        model = Delivery
        fields = (
            "id",
            "project",
            "source",
            "delivery_id",
            "event",
            "verdict",
            "code",
            "reason",
            "tag",
            "commit",
            "build",
            "image",
            "body_bytes",
            "remote_address",
            "repeats",
            "replay_of",
            "received_at",
        )
        read_only_fields = fields


class DeliveryDetailSerializer(DeliverySerializer):
    """Delivery with its headers, without secret ones, and its body as text."""

    body = serializers.SerializerMethodField(help_text="As UTF-8; invalid bytes are replaced.")

    class Meta(DeliverySerializer.Meta):
        fields = (*DeliverySerializer.Meta.fields, "headers", "body")  # type: ignore[assignment]
        read_only_fields = fields  # type: ignore[assignment]

    def get_body(self, delivery: Delivery) -> str:
        """Body as received."""
        return bytes(delivery.body).decode("utf-8", "replace")


class DeliveryViewSet(ReadViewSet[Delivery]):
    """Webhook deliveries, newest first."""

    queryset = Delivery.objects.all()
    serializer_class = DeliverySerializer
    filterset_fields = ("project", "source", "event", "verdict", "code", "tag", "build")
    required_roles = {"replay": Role.OPERATOR}

    def get_queryset(self) -> Any:
        """Load the body, which may be long, only for a single delivery."""
        rows = super().get_queryset()
        return rows.defer("body", "headers") if self.action == "list" else rows

    def get_serializer_class(self) -> type[BaseSerializer[Delivery]]:
        """Use the serializer with headers and body for a single delivery."""
        return DeliveryDetailSerializer if self.action == "retrieve" else DeliverySerializer

    @extend_schema(request=None, responses={201: DeliverySerializer})
    @action(detail=True, methods=["post"])
    @idempotent
    def replay(self, request: Request, pk: str | None = None) -> Response:
        """Process the body again with the current settings. 409 for a refused delivery."""
        again = replay_delivery(delivery=self.get_object(), actor=self.person, now=timezone.now())
        return self.answer(again, http_status=status.HTTP_201_CREATED)
