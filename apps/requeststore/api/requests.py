"""REST views of stored requests: submission, lists, history."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec
from django.http import Http404
from django.utils.translation import gettext as _
from drf_spectacular.helpers import forced_singular_serializer
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import status, viewsets
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.api.errors import BadRequest
from apps.access.api.idempotency import keep_for_repeat, kept_for_repeat, resumable
from apps.access.api.pagination import MAX_LIMIT, bad_cursor
from apps.access.errors import RoleRequired
from apps.access.services import has_role, has_role_somewhere
from apps.access.states import Role
from apps.requeststore.api.bodies import RequestsJSONParser
from apps.requeststore.api.consumers import ConsumerMixin
from apps.requeststore.api.serializers import (
    SUBMIT,
    RequestFilterSerializer,
    RequestPageSerializer,
    RequestsSubmitSerializer,
    RequestsSubmittedSerializer,
    RequestStorySerializer,
)
from apps.requeststore.api.store_errors import StoreErrorsMixin, person_label, seen_bizzes
from apps.requeststore.engine.limits import MAX_ID, MAX_TS
from apps.requeststore.engine.moments import ts_of
from apps.requeststore.queries.given_records import records_given
from apps.requeststore.queries.stories import moment, row_of, story_of
from apps.requeststore.services.intake import read_requests, submit
from apps.requeststore.services.rebalances import bound_biz
from apps.requeststore.services.request_pages import page_of, read_cursor
from apps.requeststore.services.store import shared_request_store

_FIELDS = ("project", "biz", "requests")
# Most shards read for one list; beyond, the call must specify a biz.
MOST_SHARDS: Final = 256


class RequestViewSet(ConsumerMixin, StoreErrorsMixin, ApiView, viewsets.ViewSet):
    """Download requests of all bizzes. Operators submit and consume, viewers look up."""

    parser_classes = (RequestsJSONParser,)
    lookup_value_regex = "[0-9]{1,19}"
    pagination_class: ClassVar[None] = None

    @extend_schema(
        request=SUBMIT,
        responses={201: RequestsSubmittedSerializer},
        examples=[
            OpenApiExample(
                "One page",
                value={"project": 1, "biz": "news", "requests": ["https://example.com/"]},
                request_only=True,
            ),
            OpenApiExample(
                "With a rule",
                value={
                    "project": 1,
                    "biz": "news",
                    "requests": [
                        {"url": "https://example.com/a", "rule": "article", "meta": {"x": 1}}
                    ],
                },
                request_only=True,
            ),
        ],
    )
    @resumable
    def create(self, request: Request) -> Response:
        """Submit 1 to 10,000 requests: all of them are stored, or none (422 says which are
        invalid).

        With an `Idempotency-Key` the IDs are reserved before anything is stored: a repeat after a
        crash or an outage completes the first call and stores nothing twice. The answer is sent
        once all are stored; if the queue is unreachable, the platform queues them later.
        """
        if not has_role_somewhere(request.user, Role.OPERATOR):
            raise RoleRequired
        body = request.data if isinstance(request.data, dict) else {}
        serializer = RequestsSubmitSerializer(data=body, context={"request": request})
        serializer.is_valid(raise_exception=True)
        if unknown := [str(name) for name in body if name not in _FIELDS]:
            raise ValidationError({name: [_("There is no such field.")] for name in unknown})
        values = body.get("requests")
        if not isinstance(values, list):
            raise ValidationError({"requests": [_("Submit a list of requests.")]})
        project = serializer.validated_data["project"]
        if not has_role(request.user, project.pk, Role.OPERATOR):
            raise RoleRequired
        bound = bound_biz(project.pk, serializer.validated_data["biz"])
        done = submit(
            bound,
            read_requests(bound, values),
            by=person_label(self),
            kept=kept_for_repeat(self),
            keep=lambda notes: keep_for_repeat(self, notes),
        )
        answer = {
            "project": bound.project_id,
            "biz": bound.name,
            "ts": done.ts,
            "stored_at": moment(done.ts),
            "count": len(done.ids),
            "ids": [str(number) for number in done.ids],
        }
        return Response(RequestsSubmittedSerializer(answer).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        parameters=[RequestFilterSerializer],
        responses=forced_singular_serializer(RequestPageSerializer),  # type: ignore[no-untyped-call]
    )
    def list(self, request: Request) -> Response:
        """List requests of a biz, or of all visible ones, newest first.

        Read from the stores at the time of the call, without the requests' data.
        """
        serializer = RequestFilterSerializer(
            data=request.query_params, context={"request": request}
        )
        serializer.is_valid(raise_exception=True)
        values = serializer.validated_data
        bizzes = seen_bizzes(request.user)
        if "project" in values:
            bizzes = [biz for biz in bizzes if biz.project_id == values["project"].pk]
        if values.get("biz"):
            bizzes = [biz for biz in bizzes if biz.name == values["biz"]]
            if not bizzes:
                raise Http404
        if sum(len(bound.places) for bound in bizzes) > MOST_SHARDS and len(bizzes) > 1:
            raise BadRequest(
                _("Specify `biz`: these request groups have too many shards for one list."),
                "name_a_biz",
            )
        try:
            cursor = read_cursor(values.get("after", ""))
        except ValueError:
            raise bad_cursor() from None
        request_store = shared_request_store()
        requests_page, after = page_of(
            request_store,
            bizzes,
            flag=values.get("flag"),
            since=ts_of(values.get("since"), 0),
            until=ts_of(values.get("until"), MAX_TS),
            after=cursor,
            limit=min(values["limit"], MAX_LIMIT),
        )
        now = request_store.now()
        rows = [
            row_of(
                request_found.request,
                request_found.bound.settings,
                project_id=request_found.bound.project_id,
                now=now,
            )
            for request_found in requests_page
        ]
        return Response(RequestPageSerializer({"results": rows, "next": after}).data)

    @extend_schema(responses=RequestStorySerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        """Return status and history of a request.

        404 when it does not exist, has been deleted, or is not visible to the caller.
        """
        bizzes = {(biz.project_id, biz.name) for biz in seen_bizzes(request.user)}
        number = int(pk)
        request_store = shared_request_store()
        request_found = request_store.find(number) if 0 < number <= MAX_ID and bizzes else None
        if (
            request_found is None
            or (request_found.bound.project_id, request_found.bound.name) not in bizzes
        ):
            raise Http404
        bound = request_found.bound
        story = story_of(
            request_found.request,
            bound.settings,
            project_id=bound.project_id,
            version=bound.version,
            place=request_found.place,
            whole=(whole := has_role(request.user, bound.project_id, Role.OPERATOR)),
            now=request_store.now(),
        )
        if whole:
            gave = records_given(request_found.request, bound.settings, project_id=bound.project_id)
            story["records"] = None if gave is None else msgspec.structs.asdict(gave)
        return Response(RequestStorySerializer(story).data)
