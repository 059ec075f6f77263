"""REST views of a project's routing: active rules and their status, submission, explain, replay."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from django.conf import settings
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ReadViewSet
from apps.access.api.etags import etag_of, not_modified
from apps.access.api.idempotency import idempotent
from apps.access.states import Role
from apps.configcenter.models import Configuration
from apps.routing.api.bodies import RawJSONParser
from apps.routing.api.callers import track_of_configuration
from apps.routing.api.explain_serializers import (
    ExplainSerializer,
    ExplanationSerializer,
    ReplayedSerializer,
    ReplaySerializer,
)
from apps.routing.api.explanations import explained, track_asked_for
from apps.routing.api.rule_serializers import (
    AuditedBooksSerializer,
    BooksSerializer,
    ParkedSerializer,
    RouterSerializer,
    RoutingProjectDetailSerializer,
    RoutingProjectSerializer,
)
from apps.routing.api.seed import submitted
from apps.routing.api.serializers import SubmittedSerializer
from apps.routing.api.status_data import (
    inbound_shown,
    inbound_standing,
    outbound_shown,
    outbound_standing,
)
from apps.routing.engine.rules import RuleSet, Server
from apps.routing.queries import (
    RoutingStatus,
    item_accounting,
    outbound_counts,
    reconcile_items,
    replay,
    routing_status,
    server_status,
)
from apps.routing.queries.tracks import KIND
from apps.routing.states import ItemState

_TASK = {"company_name": "宁乡县老粮仓镇楚江冻库", "data_type": "change", "rt": True}
# Status of an outbound that no live router reports.
_SILENT: Final = {"full": False, "problem": "", "problem_at": None}
TASK_REQUEST = {
    "application/json": {
        "oneOf": [
            {"type": "object", "additionalProperties": True},
            {
                "type": "array",
                "items": {"type": "object", "additionalProperties": True},
                "minItems": 1,
                "maxItems": 1000,
            },
        ]
    }
}


class RoutingProjectViewSet(ReadViewSet[Configuration]):
    """Projects with routing rules. The ID in the path is that of the project."""

    queryset = Configuration.objects.filter(kind=KIND).select_related("active", "project")
    serializer_class = RoutingProjectSerializer
    lookup_field = "project_id"
    lookup_url_kwarg = "pk"
    required_roles = {"task": Role.OPERATOR, "explain": Role.VIEWER, "replay": Role.VIEWER}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Treat ``explain`` and ``replay`` as reads although they use POST."""
        self.only_reads = self.action in ("explain", "replay")
        super().initial(request, *args, **kwargs)

    @extend_schema(responses=RoutingProjectDetailSerializer)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The active rules in order of evaluation, with the status of each inbound and outbound.

        Secrets are not shown. The reports of routers are at most 15 seconds old.
        """
        configuration = self.get_object()
        data = detail_of(configuration)
        etag = etag_of(configuration, data)
        if not_modified(request, etag):
            return Response(status=status.HTTP_304_NOT_MODIFIED, headers={"ETag": etag})
        return Response(data, headers={"ETag": etag})

    @extend_schema(responses=RouterSerializer(many=True), filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def routers(self, request: Request, pk: str | None = None) -> Response:
        """Live routers of the project, and the version of the rules that each runs."""
        reported = routing_status(self.get_object().home_id, timezone.now())
        return Response(RouterSerializer(_routers(reported), many=True).data)

    @extend_schema(responses=BooksSerializer, filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def books(self, request: Request, pk: str | None = None) -> Response:
        """Accounting of all items that ever arrived."""
        return Response(BooksSerializer(item_accounting(self.get_object().home_id)).data)

    @extend_schema(responses=AuditedBooksSerializer, filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def audit(self, request: Request, pk: str | None = None) -> Response:
        """The counters compared with a count of the items themselves; reads the whole ledger."""
        return Response(AuditedBooksSerializer(reconcile_items(self.get_object().home_id)).data)

    @extend_schema(responses=ParkedSerializer(many=True), filters=False)
    @action(detail=True, methods=["get"], pagination_class=None)
    def parked(self, request: Request, pk: str | None = None) -> Response:
        """Number of items that wait for each outbound, and the reason.

        Outbounds without waiting items are left out.
        """
        project = self.get_object().home_id
        live = routing_status(project, timezone.now()).outbounds
        rows = []
        for count in outbound_counts(project):
            if number := count.by_state.get(ItemState.PARKED.value, 0):
                now = outbound_standing(live.get(count.outbound)) or _SILENT
                rows.append({"outbound": count.outbound, "parked": number, **now})
        return Response(ParkedSerializer(rows, many=True).data)

    @extend_schema(
        request=TASK_REQUEST,
        responses=SubmittedSerializer,
        examples=[
            OpenApiExample("One item", value=_TASK, request_only=True),
            OpenApiExample("Several", value=[_TASK, {"search_key": "9243"}], request_only=True),
            OpenApiExample(
                "Taken",
                value={
                    "project": "ic",
                    "rules_version": 3,
                    "items": [
                        {
                            "task_uuid": "019aa4c1-6c5e-7b1e-9d0a-2f6b8f1f3c55",
                            "fate": "accepted",
                            "inbound": "http",
                            "state": "received",
                            "reason": "",
                            "text": "",
                        }
                    ],
                },
                response_only=True,
            ),
        ],
    )
    @action(detail=True, methods=["post"], parser_classes=[RawJSONParser])
    @idempotent
    def task(self, request: Request, pk: str | None = None) -> Response:
        """Submit one item, or a list of at most 1,000: all of them are accepted, or none.

        Equivalent to the seed's `POST /task/`. Status 200 means that the accepted items are stored
        in the ledger. Status 422 lists the values that are not items; 409: the project has no
        active rules.
        """
        configuration = self.get_object()
        track = track_of_configuration(configuration)
        return submitted(configuration.home_id, configuration.home_slug, track, request)

    @extend_schema(
        request=ExplainSerializer,
        responses=ExplanationSerializer,
        examples=[
            OpenApiExample("By the active rules", value={"item": _TASK}, request_only=True),
            OpenApiExample(
                "As it would come in",
                value={"text": '{"task_result": 1001}', "inbound": "spider_log", "version": 7},
                request_only=True,
            ),
        ],
    )
    @action(detail=True, methods=["post"])
    def explain(self, request: Request, pk: str | None = None) -> Response:
        """Explain what the rules would do with an item, and why. Read-only."""
        configuration = self.get_object()
        serializer = ExplainSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        track = track_asked_for(configuration, values)
        raw = values["text"] if "text" in values else values.get("item", {})
        return explained(configuration.home_id, track, raw, values["inbound"] or None)

    @extend_schema(
        request=ReplaySerializer,
        responses=ReplayedSerializer,
        examples=[
            OpenApiExample(
                "A saved version, before it is activated",
                value={"version": 8, "limit": 1000},
                request_only=True,
            )
        ],
    )
    @action(detail=True, methods=["post"])
    def replay(self, request: Request, pk: str | None = None) -> Response:
        """Compare what two versions of the rules do with recent items of the ledger. Read-only.

        Compared are the rules of `base` (by default the active ones) and those of `version` or
        `draft`. A replay that takes too long is cut off; `stopped` is then true.
        """
        configuration = self.get_object()
        serializer = ReplaySerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        values = dict(serializer.validated_data)
        base = {"version": values.pop("base")} if "base" in values else {}
        result = replay(
            project=configuration.home_id,
            base=track_asked_for(configuration, base),
            draft=track_asked_for(configuration, values),
            limit=values["limit"],
            **{name: values[name] for name in ReplaySerializer.FILTERS if name in values},
        )
        return Response(ReplayedSerializer(result).data)


def detail_of(configuration: Configuration) -> dict[str, Any]:
    """Return the active rules of a project with the status of each inbound and outbound."""
    project = configuration.home_id
    reported = routing_status(project, timezone.now())
    counts = {count.outbound: count.by_state for count in outbound_counts(project)}
    track = None if configuration.active_id is None else track_of_configuration(configuration)
    rules = RuleSet(project="") if track is None else track.rules
    known = {outbound.name for outbound in rules.outbounds}
    return {
        **RoutingProjectSerializer(configuration).data,
        "server": _server(project, rules.server),
        "routers": _routers(reported),
        "inbounds": [
            {
                "place": place,
                "name": inbound.name,
                "disable": inbound.disable,
                "rule": inbound_shown(place, inbound),
                "standing": inbound_standing(reported.inbounds.get(inbound.name)),
            }
            for place, inbound in enumerate(rules.inbounds, 1)
        ],
        "outbounds": [
            {
                "place": place,
                "name": outbound.name,
                "disable": outbound.disable,
                "rule": outbound_shown(place, outbound),
                "standing": outbound_standing(reported.outbounds.get(outbound.name)),
                "counts": counts.get(outbound.name, {}),
            }
            for place, outbound in enumerate(rules.outbounds, 1)
        ],
        "unrouted": counts.get("", {}),
        "elsewhere": {
            name: state_counts
            for name, state_counts in counts.items()
            if name and name not in known
        },
    }


def _routers(reported: RoutingStatus) -> list[dict[str, Any]]:
    return [
        {"name": router.name, "rules_version": router.rules_version} for router in reported.routers
    ]


def _server(project: int, server: Server | None) -> dict[str, Any] | None:
    if server is None:
        return None
    now = timezone.now()
    allowed = settings.ROUTING_SERVERS
    return asdict(server_status(project=project, server=server, allowed=allowed, now=now))
