"""REST views of bizzes: settings, physical names, accounting, re-balance, reopening."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.helpers import forced_singular_serializer
from drf_spectacular.utils import extend_schema
from rest_framework import status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.api.idempotency import repeatable
from apps.access.api.pagination import PageQuerySerializer, page_in
from apps.access.services import require_role
from apps.access.states import Role
from apps.requeststore.api.serializers import (
    BizPageSerializer,
    BizSerializer,
    RebalancePreviewSerializer,
    RebalanceSerializer,
    ReextractionSerializer,
    ReopenedRequestsSerializer,
    ReopenRequestsSerializer,
    SelectRequestsSerializer,
    place_of,
)
from apps.requeststore.api.store_errors import StoreErrorsMixin, biz_id, biz_named, seen_bizzes
from apps.requeststore.api.tester import RuleTesterMixin
from apps.requeststore.engine.biz import BIZ_ID
from apps.requeststore.engine.limits import MAX_TS
from apps.requeststore.engine.moments import ts_of
from apps.requeststore.queries.accounting import BizAccounting, standings
from apps.requeststore.services.rebalance_preview import preview
from apps.requeststore.services.rebalances import start_rebalance
from apps.requeststore.services.reextractions import start_reextraction
from apps.requeststore.services.reopen import reopen_requests
from apps.requeststore.services.store import BoundBiz, shared_request_store


class BizViewSet(RuleTesterMixin, StoreErrorsMixin, ApiView, viewsets.ViewSet):
    """Bizzes of the active configurations. To change one, activate a new version."""

    lookup_value_regex = BIZ_ID
    pagination_class: ClassVar[None] = None

    @extend_schema(
        parameters=[PageQuerySerializer],
        # drf-spectacular has no type for this attribute.
        responses=forced_singular_serializer(BizPageSerializer),  # type: ignore[no-untyped-call]
    )
    def list(self, request: Request) -> Response:
        """List the bizzes of the caller's projects, by project and name."""
        bizzes, after = page_in(
            request, seen_bizzes(request.user), key=lambda bound: (bound.project_id, bound.name)
        )
        accounting = standings({bound.project_id for bound in bizzes}, by_flag=True)
        rows = [
            shown(bound, accounting.get((bound.project_id, bound.name), BizAccounting()))
            for bound in bizzes
        ]
        return Response(BizPageSerializer({"results": rows, "next": after}).data)

    @extend_schema(responses=BizSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        """Return one biz. `books` are a few seconds old."""
        bound = biz_named(request.user, pk)
        accounting = standings([bound.project_id], bound.name, by_flag=True)
        standing = accounting.get((bound.project_id, bound.name), BizAccounting())
        return Response(BizSerializer(shown(bound, standing)).data)

    @extend_schema(methods=["get"], responses=RebalancePreviewSerializer)
    @extend_schema(methods=["post"], request=None, responses={202: RebalanceSerializer})
    @action(detail=True, methods=["get", "post"])
    @repeatable
    def rebalance(self, request: Request, pk: str) -> Response:
        """GET: preview a re-balance (dry run). POST: start one.

        Every request of an older epoch moves to its place under the newest epoch, and can be found
        all the time. 409 while another re-balance runs, when there is only one epoch, or when the
        newest epoch has not begun.
        """
        bound = biz_named(request.user, pk)
        if request.method == "GET":
            return Response(RebalancePreviewSerializer(preview(bound, shared_request_store())).data)
        require_role(request.user, bound.project_id, Role.EDITOR)
        row = start_rebalance(project_id=bound.project_id, biz=bound.name, actor=self.person)
        return Response(RebalanceSerializer(row).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=ReopenRequestsSerializer, responses=ReopenedRequestsSerializer)
    @action(detail=True, methods=["post"])
    @repeatable
    def reopen(self, request: Request, pk: str) -> Response:
        """Reopen ended requests: failed ones of a period, or those named by `ids`.

        They are new again and queued. Repeating the call reopens only requests that have ended
        again. Expired requests are not reopened.
        """
        bound = biz_named(request.user, pk)
        require_role(request.user, bound.project_id, Role.OPERATOR)
        serializer = ReopenRequestsSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        done = reopen_requests(
            bound,
            actor=self.person,
            ids=[int(value) for value in values["ids"]] if "ids" in values else None,
            flag=values.get("flag"),
            since=ts_of(values.get("since"), 0),
            until=ts_of(values.get("until"), MAX_TS),
            limit=values["limit"],
        )
        answer = {"reopened": done.reopened, "more": done.more}
        return Response(ReopenedRequestsSerializer(answer).data)

    @extend_schema(request=SelectRequestsSerializer, responses={202: ReextractionSerializer})
    @action(detail=True, methods=["post"], url_path="extract-again")
    @repeatable
    def extract_again(self, request: Request, pk: str) -> Response:
        """Read the kept pages of ended requests again with the rules of now, without a download.

        New records join the dataset. 409 while another re-extraction of the biz runs, or when no
        page of it is kept.
        """
        bound = biz_named(request.user, pk)
        require_role(request.user, bound.project_id, Role.OPERATOR)
        serializer = SelectRequestsSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        row = start_reextraction(
            project_id=bound.project_id,
            biz=bound.name,
            ids=[int(value) for value in values["ids"]] if "ids" in values else None,
            flag=values.get("flag"),
            since=ts_of(values.get("since"), 0),
            until=ts_of(values.get("until"), MAX_TS),
            actor=self.person,
        )
        return Response(ReextractionSerializer(row).data, status=status.HTTP_202_ACCEPTED)


def shown(bound: BoundBiz, standing: BizAccounting) -> dict[str, Any]:
    """Return a biz in the format of the REST API."""
    biz = bound.settings
    queue = standing.queue
    return {
        "id": biz_id(bound),
        "project": bound.project_id,
        "name": bound.name,
        "description": biz.description,
        "enabled": biz.enabled,
        "settings_version": bound.version,
        "queue": bound.queue_name,
        "ttl_seconds": biz.ttl_seconds,
        "keep_seconds": biz.keep_seconds,
        "take_seconds": biz.take_seconds,
        "max_waiting": biz.max_waiting,
        "epochs": biz.epochs,
        "places": [place_of(place) for place in bound.places],
        "books": {
            "stored": standing.stored,
            "new": standing.new,
            "taken": standing.taken,
            "moving": standing.moving,
            "processed": standing.processed,
            "expired": standing.expired,
            "by_flag": {str(flag): number for flag, number in standing.ended.items()},
            "balanced": standing.balanced,
            "waiting_in_queue": None if queue is None else queue.waiting,
            "expiring": dict(standing.expiring),
            "oldest_new_at": standing.oldest_new_at,
            "reported_at": standing.reported_at,
        },
    }
