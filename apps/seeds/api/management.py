"""REST management of a frontier: single seeds directly, many seeds as an operation."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.idempotency import idempotent, repeatable
from apps.access.models import User
from apps.access.services import record
from apps.seeds import services
from apps.seeds.api.bodies import checked
from apps.seeds.api.call_serializers import OneSeedSerializer, SeedStateSerializer
from apps.seeds.api.serializers import (
    DropSegmentSerializer,
    OperationSerializer,
    ReopenFailedSerializer,
    WipeSerializer,
)
from apps.seeds.api.shapes import checked_key
from apps.seeds.models import Frontier, Operation
from apps.seeds.services.management import segment_at
from apps.seeds.states import OperationKind


class ManagementMixin:
    """Management actions, for the view set of frontiers."""

    @extend_schema(request=OneSeedSerializer, responses=SeedStateSerializer)
    @action(detail=True, methods=["post"])
    @repeatable
    def reopen(self: Any, request: Request, pk: str | None = None) -> Response:
        """Make a finished seed pending again, with its full number of tries. 409
        `seed_not_final`.
        """
        return _with_seed(self, request, services.reopen, "init")

    @extend_schema(request=OneSeedSerializer, responses=SeedStateSerializer)
    @action(detail=True, methods=["post"])
    @repeatable
    def forget(self: Any, request: Request, pk: str | None = None) -> Response:
        """Delete a seed, so that its key counts as new. 409 `seed_in_use` while it is leased."""
        return _with_seed(self, request, services.forget, None)

    @extend_schema(request=ReopenFailedSerializer, responses={202: OperationSerializer})
    @action(detail=True, methods=["post"], url_path="reopen-failed")
    @idempotent
    def reopen_failed(self: Any, request: Request, pk: str | None = None) -> Response:
        """Reopen the failed seeds of a segment in the current segment or in `target`."""
        frontier = self.get_object()
        values = checked(ReopenFailedSerializer, request.data)
        source = segment_at(frontier, values["segment"])
        arguments = {"source": source, "target": values["target"]}
        return _start_operation(self.person, frontier, OperationKind.REOPEN_FAILED, arguments)

    @extend_schema(request=DropSegmentSerializer, responses={202: OperationSerializer})
    @action(detail=True, methods=["post"], url_path="drop-segment")
    @idempotent
    def drop_segment(self: Any, request: Request, pk: str | None = None) -> Response:
        """Delete a whole segment, given by its beginning or any time in it; its keys count as new.

        404 `unknown_segment`: the frontier has no such segment.
        """
        frontier = self.get_object()
        values = checked(DropSegmentSerializer, request.data)
        values["segment"] = segment_at(frontier, values["segment"])
        return _start_operation(self.person, frontier, OperationKind.DROP, values)

    @extend_schema(request=WipeSerializer, responses={202: OperationSerializer})
    @action(detail=True, methods=["post"])
    @idempotent
    def wipe(self: Any, request: Request, pk: str | None = None) -> Response:
        """Delete all seeds of the frontier. While some are leased, `leased_too` is required."""
        frontier = self.get_object()
        values = checked(WipeSerializer, request.data)
        if values["confirm"] != frontier.name:
            text = _("This is not the name of the URL queue.")
            raise serializers.ValidationError({"confirm": [text]})
        return _start_operation(
            self.person, frontier, OperationKind.WIPE, {"leased_too": values["leased_too"]}
        )

    @extend_schema(responses=OperationSerializer(many=True), filters=False)
    @action(detail=True, methods=["get"], filterset_class=None)
    def operations(self: Any, request: Request, pk: str | None = None) -> Response:
        """List the frontier's operations, newest first."""
        rows: Any = Operation.objects.filter(frontier=self.get_object())
        page = self.paginate_queryset(rows.select_related("frontier"))
        response: Response = self.get_paginated_response(OperationSerializer(page, many=True).data)
        return response


def _with_seed(view: Any, request: Request, do: Any, state: str | None) -> Response:
    frontier = view.get_object()
    values = checked(OneSeedSerializer, request.data)
    seed = {"segment": values["segment"], "key": checked_key(values["key"])}
    do(frontier, **seed)
    record(actor=view.person, action=f"seeds.{view.action}", obj=frontier, after=seed)
    return Response({**seed, "state": state})


def _start_operation(
    person: User, frontier: Frontier, kind: str, arguments: dict[str, Any]
) -> Response:
    operation = services.start_operation(frontier, kind, arguments, actor=person)
    return Response(OperationSerializer(operation).data, status=status.HTTP_202_ACCEPTED)
