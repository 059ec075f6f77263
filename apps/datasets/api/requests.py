"""Requests of runs over REST."""

from __future__ import annotations

from typing import Any, Final

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.api.idempotency import idempotent
from apps.access.services import require_role
from apps.access.states import Role
from apps.datasets.api.serializers import ItemQuerySerializer
from apps.datasets.api.views import FORMAT, ItemsBaseView, answered, visible_run
from apps.datasets.engine.filters import FilterOp, ItemFilter
from apps.datasets.engine.item_types import Item, ItemQuery
from apps.datasets.queries.requests import (
    data_of_requests,
    failure_groups,
    open_requests,
    request_accounting,
    shown_request,
)
from apps.datasets.services.request_retries import retry_requests
from apps.queuestats.queries import run_totals

# Most requests that are chosen one by one.
MOST_CHOSEN: Final = 1000


class RunRequestSerializer(serializers.Serializer[Any]):
    """An ended request."""

    identity = serializers.CharField(help_text="Run, incarnation and number of the row.")
    at = serializers.DateTimeField(help_text="When its end was sent, within a second.")
    id = serializers.IntegerField(help_text="Number in (run, incarnation); 0: not downloaded.")
    parent = serializers.IntegerField(  # type: ignore[assignment]  # name of the field
        required=False, help_text="Number of the request whose page it was made from."
    )
    url = serializers.CharField()
    host = serializers.CharField()
    method = serializers.CharField()
    outcome = serializers.CharField(help_text="success, failed or refused (robots.txt).")
    status = serializers.IntegerField(help_text="0: no answer of the site.")
    attempts = serializers.IntegerField()
    elapsed_ms = serializers.IntegerField(help_text="Download time of the last attempt.")
    bytes = serializers.IntegerField()
    depth = serializers.IntegerField()
    items = serializers.IntegerField()
    agent = serializers.CharField(required=False)
    callback = serializers.CharField(required=False)
    kind = serializers.CharField(
        required=False, help_text="Of a failure: that of the download, http, callback, ..."
    )
    error = serializers.CharField(required=False)
    group = serializers.CharField(required=False, help_text="Same for failures with one cause.")
    traceback = serializers.CharField(required=False)
    saved = serializers.BooleanField(required=False, help_text="Whether it can be made again.")
    not_saved = serializers.CharField(required=False, help_text="Why it cannot.")


class RunRequestPageSerializer(serializers.Serializer[Any]):
    """A page of requests. ``next`` is the cursor of the following page, null at the end."""

    results = RunRequestSerializer(many=True)
    next = serializers.CharField(allow_null=True)
    last = serializers.CharField(allow_null=True)


class RequestAccountingSerializer(serializers.Serializer[Any]):
    """ended = stored + in_flight + lost."""

    ended = serializers.IntegerField()
    stored = serializers.IntegerField()
    in_flight = serializers.IntegerField()
    lost = serializers.IntegerField(help_text="The process was killed before it had sent them.")
    deleted = serializers.IntegerField()
    filtered = serializers.IntegerField(help_text="Duplicates that the scheduler has dropped.")


class FailureGroupSerializer(serializers.Serializer[Any]):
    """Failures with one cause; error, traceback and address of one of them."""

    group = serializers.CharField()
    count = serializers.IntegerField()
    kind = serializers.CharField()
    error = serializers.CharField()
    traceback = serializers.CharField()
    url = serializers.CharField()


class RequestQuerySerializer(ItemQuerySerializer):
    """Which requests, in which order and form."""

    def get_fields(self) -> dict[str, Any]:
        """Leave out what is for items with keys."""
        found = super().get_fields()
        del found["latest"]
        return found


class RequestSelectionSerializer(serializers.Serializer[Any]):
    """Which failed requests to make again: all without any of these."""

    filter = serializers.ListField(
        child=serializers.CharField(max_length=1000), required=False, max_length=20
    )
    text = serializers.CharField(required=False, max_length=500)
    group = serializers.CharField(required=False, max_length=1000)
    requests = serializers.ListField(
        child=serializers.CharField(max_length=100),
        required=False,
        max_length=MOST_CHOSEN,
        help_text="`identity` of each.",
    )

    validate_filter = ItemQuerySerializer.validate_filter


class RetriedRequestsSerializer(serializers.Serializer[Any]):
    """The new run, the number of its requests, and of the others by the reason."""

    run = serializers.IntegerField()
    requests = serializers.IntegerField()
    left_out = serializers.DictField(child=serializers.IntegerField())


class RunRequestsView(ItemsBaseView):
    """Ended requests of a run."""

    @extend_schema(
        operation_id="runs_requests",
        summary="Requests of a run",
        parameters=[RequestQuerySerializer, FORMAT],
        responses={200: RunRequestPageSerializer, (200, "text/csv"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, run: int) -> Any:
        """Return a page of requests; in other formats than json, or with `download`, all."""
        reader = open_requests(visible_run(request, run))
        return self.read(request, reader, f"requests-{run}", every_field=False)

    def shown(self, item: Item, fields: Any) -> dict[str, Any]:
        """Return a request, flat."""
        data = shown_request(item.data)
        if fields:
            data = {name: data[name] for name in fields if name in data}
        return {"identity": item.id, "at": item.at, **data}


class RunRequestAccountingView(ApiView):
    """Accounting of a run's requests."""

    @extend_schema(
        operation_id="runs_requests_accounting",
        summary="Accounting of a run's ended requests",
        responses=RequestAccountingSerializer,
    )
    def get(self, request: Request, run: int) -> Response:
        """Return how many requests have ended, and what became of their rows."""
        found = visible_run(request, run)
        totals = run_totals([found.owner])[found.owner]
        return Response(request_accounting(found, data_of_requests(found), totals).as_dict())


class RunFailureGroupsView(ApiView):
    """Groups of a run's failures."""

    @extend_schema(
        operation_id="runs_requests_failures",
        summary="Groups of a run's failed requests",
        responses=FailureGroupSerializer(many=True),
    )
    def get(self, request: Request, run: int) -> Response:
        """Return at most 100 groups, the largest first."""
        with answered(), open_requests(visible_run(request, run)) as reader:
            groups = failure_groups(reader)
        return Response(FailureGroupSerializer(groups, many=True).data)


class RunRequestsRetryView(ApiView):
    """Failed requests of a run, again."""

    @extend_schema(
        operation_id="runs_requests_retry",
        summary="Make failed requests of a run again",
        request=RequestSelectionSerializer,
        responses={201: RetriedRequestsSerializer},
    )
    @idempotent
    def post(self, request: Request, run: int) -> Response:
        """Start a run of just these requests; its items join the same dataset."""
        found = visible_run(request, run)
        require_role(self.person, found.job.project_id, Role.OPERATOR)
        body = RequestSelectionSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        values = body.validated_data
        with answered():
            retried = retry_requests(
                run=found,
                actor=self.person,
                now=timezone.now(),
                query=selection(values),
                ids=values.get("requests"),
            )
        shown = {"run": retried.run.pk, "requests": retried.requests, "left_out": retried.left_out}
        return Response(shown, status=status.HTTP_201_CREATED)


def selection(values: dict[str, Any]) -> ItemQuery:
    """Return the query of a selection."""
    filters = tuple(values.get("filter", ()))
    if values.get("group"):
        filters = (*filters, ItemFilter("group", FilterOp.EQUALS, values["group"]))
    return ItemQuery(filters=filters, text=values.get("text", ""))
