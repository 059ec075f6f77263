"""Items over REST: lists, one with its story, and what people do with them."""

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
    """Routed items, the newest first."""

    queryset = RoutedItem.objects.all()
    serializer_class = RoutedItemSerializer
    filterset_class = RoutedItemFilter
    required_roles = {
        "cancel": Role.OPERATOR,
        "resubmit": Role.OPERATOR,
        "resubmit_many": Role.OPERATOR,
    }

    def get_queryset(self) -> Any:
        """Without what they hold, where many are shown."""
        rows: Any = super().get_queryset()
        return list_items(rows) if self.action == "list" else rows

    def get_serializer_class(self) -> type[BaseSerializer[RoutedItem]]:
        """One alone comes with its story."""
        return RoutedItemSerializer if self.action == "list" else RoutedItemDetailSerializer

    @extend_schema(parameters=[FindItemsSerializer], responses=FoundItemsSerializer, filters=False)
    @action(detail=False, methods=["get"], pagination_class=None, filterset_class=None)
    def find(self, request: Request) -> Response:
        """Items that hold a value, at most 100, the newest first; also where it came and went."""
        asked = FindItemsSerializer(data=request.query_params, context={"request": request})
        asked.is_valid(raise_exception=True)
        values = asked.validated_data
        if "value" not in values:
            return Response({"results": [], "complete": True})
        found = find_by_value(
            RoutedItem.objects.visible_to(request.user).defer("item", "steps"),
            project=values["project"].pk,
            value=values["value"],
            key=values["key"],
        )
        answer = {"results": found.items, "complete": found.complete}
        return Response(FoundItemsSerializer(answer).data)

    @extend_schema(request=ItemNoteSerializer, responses=RoutedItemDetailSerializer)
    @action(detail=True, methods=["post"])
    @idempotent
    def cancel(self, request: Request, pk: str | None = None) -> Response:
        """End an open item. 409 when it has ended; a result that still comes is a late one."""
        item = self.get_object()
        asked = ItemNoteSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        services.cancel_item(
            item=item, actor=self.person, now=timezone.now(), **asked.validated_data
        )
        return self.answer(self.get_object())

    @extend_schema(request=ResubmitSerializer, responses={201: RoutedItemDetailSerializer})
    @action(detail=True, methods=["post"])
    @idempotent
    def resubmit(self, request: Request, pk: str | None = None) -> Response:
        """Submit a dead letter again, as it was or changed; the answer is the new item.

        409 when it is open, has succeeded or was submitted again before.
        """
        item = self.get_object()
        asked = ResubmitSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        values = asked.validated_data
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
        """Submit many dead letters again, each by itself: what is refused stops no other."""
        asked = BulkResubmitSerializer(data=request.data, context={"request": request})
        asked.is_valid(raise_exception=True)
        values = asked.validated_data
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
    """The items by id, the oldest first, and whether more of them fit."""
    mine = RoutedItem.objects.visible_to(request.user, Role.OPERATOR)
    mine = mine.filter(project=values["project"]).defer("steps")
    if "ids" in values:
        found = mine.in_bulk(values["ids"])
        return {pk: found.get(pk) for pk in sorted(set(values["ids"]))}, False
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
