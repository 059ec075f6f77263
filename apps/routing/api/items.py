"""REST views of routed items: list, detail with history, search, cancel and resubmit."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from apps.access.api.base import ReadViewSet
from apps.access.api.idempotency import idempotent
from apps.access.errors import DomainError
from apps.access.states import Role
from apps.routing import services
from apps.routing.api.filters import RoutedItemFilter
from apps.routing.api.serializers import (
    BulkResubmitSerializer,
    BulkResubmittedSerializer,
    FindItemsSerializer,
    FoundItemsSerializer,
    ItemNoteSerializer,
    ResubmitSerializer,
    RoutedItemDetailSerializer,
    RoutedItemSerializer,
)
from apps.routing.errors import ItemNotResubmittable
from apps.routing.models import RoutedItem
from apps.routing.queries import find_by_value, list_items


class RoutedItemViewSet(ReadViewSet[RoutedItem]):
    """Routed items, newest first."""

    queryset = RoutedItem.objects.all()
    serializer_class = RoutedItemSerializer
    filterset_class = RoutedItemFilter
    required_roles = {
        "cancel": Role.OPERATOR,
        "resubmit": Role.OPERATOR,
        "resubmit_many": Role.OPERATOR,
    }

    def get_queryset(self) -> Any:
        """Leave the content of items out of the list."""
        rows: Any = super().get_queryset()
        return list_items(rows) if self.action == "list" else rows

    def get_serializer_class(self) -> type[BaseSerializer[RoutedItem]]:
        """Use the serializer with content and history for single items."""
        return RoutedItemSerializer if self.action == "list" else RoutedItemDetailSerializer

    @extend_schema(parameters=[FindItemsSerializer], responses=FoundItemsSerializer, filters=False)
    @action(detail=False, methods=["get"], pagination_class=None, filterset_class=None)
    def find(self, request: Request) -> Response:
        """Find items that contain a value, at most 100, newest first.

        Matches both the values that an item arrived with and those it got later.
        """
        serializer = FindItemsSerializer(data=request.query_params, context={"request": request})
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        if "value" not in values:
            return Response({"results": [], "complete": True})
        result = find_by_value(
            RoutedItem.objects.visible_to(request.user).defer("item", "steps"),
            project=values["project"].pk,
            value=values["value"],
            key=values["key"],
        )
        answer = {"results": result.items, "complete": result.complete}
        return Response(FoundItemsSerializer(answer).data)

    @extend_schema(request=ItemNoteSerializer, responses=RoutedItemDetailSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def cancel(self, request: Request, pk: str | None = None) -> Response:
        """Cancel an open item.

        Answers 409 if the item has ended. A result that arrives afterwards is counted as late.
        """
        item = self.get_object()
        serializer = ItemNoteSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        services.cancel_item(
            item=item, actor=self.person, now=timezone.now(), **serializer.validated_data
        )
        return self.answer(self.get_object())

    @extend_schema(request=ResubmitSerializer, responses={201: RoutedItemDetailSerializer})
    @action(detail=True, methods=["post"])
    @idempotent
    def resubmit(self, request: Request, pk: str | None = None) -> Response:
        """Submit a dead letter again, unchanged or edited; returns the new item.

        Answers 409 if the item is open, has succeeded or was resubmitted before.
        """
        item = self.get_object()
        serializer = ResubmitSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        entry = services.resubmit_item(
            item=item,
            data=values.get("item"),
            actor=self.person,
            now=timezone.now(),
            note=values["note"],
        )
        made = RoutedItem.objects.get(pk=entry.id)
        return self.answer(made, http_status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="routing_items_resubmit_many",
        request=BulkResubmitSerializer,
        responses=BulkResubmittedSerializer,
    )
    @action(detail=False, methods=["post"], url_path="resubmit")
    @idempotent
    def resubmit_many(self, request: Request) -> Response:
        """Submit many dead letters again; a refused item does not stop the others."""
        serializer = BulkResubmitSerializer(data=request.data, context={"request": request})
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        items, more = _chosen(request, values)
        answer: dict[str, Any] = {"resubmitted": [], "refused": [], "more": more}
        for pk, item in items.items():
            if item is None:
                answer["refused"].append(_refused(pk, ItemNotResubmittable()))
                continue
            try:
                with transaction.atomic():
                    entry = services.resubmit_item(
                        item=item, actor=self.person, now=timezone.now(), note=values["note"]
                    )
            except DomainError as error:
                answer["refused"].append(_refused(pk, error))
            else:
                answer["resubmitted"].append({"id": pk, "task_uuid": str(entry.task_uuid)})
        return Response(answer)


def _chosen(request: Request, values: dict[str, Any]) -> tuple[dict[int, RoutedItem | None], bool]:
    """Return the selected items by ID, oldest first, and whether more items match.

    An ID that is unknown or not visible to the caller is mapped to None.
    """
    mine = RoutedItem.objects.visible_to(request.user, Role.OPERATOR)
    mine = mine.filter(project=values["project"]).defer("steps")
    if "ids" in values:
        items = mine.in_bulk(values["ids"])
        return {pk: items.get(pk) for pk in sorted(set(values["ids"]))}, False
    rows = mine.dead_letters()
    for name in ("inbound", "outbound", "reason"):
        if name in values:
            rows = rows.filter(**{name: values[name]})
    if values.get("state"):
        rows = rows.filter(state__in=values["state"])
    limit: int = values["limit"]
    fitting = list(rows.order_by("id")[: limit + 1])
    return {item.pk: item for item in fitting[:limit]}, len(fitting) > limit


def _refused(pk: int, error: DomainError) -> dict[str, Any]:
    return {"id": pk, "code": error.code, "detail": error.text}
