"""REST API for consumers in any language, on every kind of store: take, finish, return."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

import msgspec
from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.fields import VisibleRelatedField
from apps.access.api.idempotency import repeatable
from apps.access.errors import RoleRequired
from apps.access.services import has_role, has_role_somewhere
from apps.access.states import Role
from apps.projects.models import Project
from apps.requeststore.api.store_errors import person_label
from apps.requeststore.daemon.dead_letters import dead_letter_function
from apps.requeststore.daemon.request_taker import RequestTaker
from apps.requeststore.daemon.work import LeasedRequest
from apps.requeststore.engine.flags import MAX_FLAG, PROCESSED, TAKEN
from apps.requeststore.engine.limits import MAX_ID, MAX_RESULT_BYTES, MAX_TEXT, MAX_TS
from apps.requeststore.errors import BizDisabled
from apps.requeststore.queries.stories import moment
from apps.requeststore.services.rebalances import bound_biz
from apps.requeststore.services.store import BoundBiz, shared_request_store
from apps.requeststore.stores.base import EndCode, Finish, GiveBack, StoredRequest
from apps.runtime.services import shared_broker

MOST_TAKEN: Final = 1000
# Data size (bytes) of one response beyond which no further requests are leased.
MOST_BYTES: Final = 16 * 1024 * 1024
# Size of the first portion, before the average request size is known.
FIRST_PORTION: Final = 10
# Seconds to wait for the first entry: a queue that has just been opened delivers late.
FIRST_ENTRY_SECONDS: Final = 1.0

CODES: Final = ", ".join(code.value for code in EndCode)


class ConsumedBizSerializer(serializers.Serializer[Any]):
    """Project and biz of a consumer's call."""

    project = VisibleRelatedField(queryset=Project.objects.all())
    biz = serializers.CharField(max_length=32)


class TakeRequestsSerializer(ConsumedBizSerializer):
    """Body of `take`."""

    limit = serializers.IntegerField(min_value=1, max_value=MOST_TAKEN, default=100)


class RequestLeaseSerializer(serializers.Serializer[Any]):
    """Identifies the lease of one request; the values are those of the answer to `take`."""

    id = serializers.RegexField(r"^[0-9]{1,19}$")
    ts = serializers.IntegerField(min_value=0, max_value=MAX_TS)
    tries = serializers.IntegerField(min_value=1, max_value=2**31 - 1)

    def validate_id(self, value: str) -> int:
        """Return the ID as a number."""
        if not 0 < int(value) <= MAX_ID:
            raise serializers.ValidationError(_("An ID is a positive number of 63 bits."))
        return int(value)


class FinishedRequestSerializer(RequestLeaseSerializer):
    """End of one request."""

    flag = serializers.IntegerField(min_value=1, max_value=MAX_FLAG, default=PROCESSED)
    result = serializers.DictField(default=dict)
    text = serializers.CharField(max_length=MAX_TEXT, default="", allow_blank=True)

    def validate_result(self, value: dict[str, Any]) -> bytes:
        """Return the result as JSON bytes."""
        encoded = msgspec.json.encode(value) if value else b""
        if len(encoded) > MAX_RESULT_BYTES:
            text = _("A result has at most %d bytes.") % MAX_RESULT_BYTES
            raise serializers.ValidationError(text)
        return encoded


class FinishRequestsSerializer(ConsumedBizSerializer):
    """Body of `finish`."""

    requests = serializers.ListField(
        child=FinishedRequestSerializer(), min_length=1, max_length=MOST_TAKEN
    )


class ReturnedRequestSerializer(RequestLeaseSerializer):
    """Request to queue again."""

    priority = serializers.IntegerField(min_value=0, max_value=9, default=0)
    text = serializers.CharField(max_length=MAX_TEXT, default="", allow_blank=True)


class ReturnRequestsSerializer(ConsumedBizSerializer):
    """Body of `return`."""

    requests = serializers.ListField(
        child=ReturnedRequestSerializer(), min_length=1, max_length=MOST_TAKEN
    )


class TakenRequestSerializer(serializers.Serializer[Any]):
    """Leased request."""

    id = serializers.CharField()
    ts = serializers.IntegerField()
    tries = serializers.IntegerField(
        help_text=gettext_lazy("Fencing token of the lease; send it with `finish` and `return`.")
    )
    priority = serializers.IntegerField()
    deadline_at = serializers.DateTimeField(
        help_text=gettext_lazy("End of the lease; afterwards the request is queued again.")
    )
    url = serializers.CharField()
    rule = serializers.CharField()
    method = serializers.CharField()
    headers = serializers.DictField(child=serializers.CharField())
    params = serializers.DictField(child=serializers.CharField())
    body_base64 = serializers.CharField()
    meta = serializers.DictField()
    depth = serializers.IntegerField()


class TakenRequestsSerializer(serializers.Serializer[Any]):
    """Leased requests; empty while none waits."""

    project = serializers.IntegerField()
    biz = serializers.CharField()
    max_tries = serializers.IntegerField()
    requests = TakenRequestSerializer(many=True)


class EndedRequestSerializer(serializers.Serializer[Any]):
    """Outcome for one request."""

    id = serializers.CharField()
    code = serializers.CharField(help_text=CODES)


class EndedRequestsSerializer(serializers.Serializer[Any]):
    """Outcomes in the order of the call."""

    project = serializers.IntegerField()
    biz = serializers.CharField()
    results = EndedRequestSerializer(many=True)


class ConsumerMixin:
    """Actions of consumers on the view set of requests. Role: operator."""

    @extend_schema(request=TakeRequestsSerializer, responses=TakenRequestsSerializer)
    @action(detail=False, methods=["post"])
    @repeatable
    def take(self, request: Request) -> Response:
        """Lease up to `limit` waiting requests of a biz until their deadline.

        A request that is neither finished nor returned by `deadline_at` is queued again. Headers
        and parameters are complete, secrets included. Fewer come where their data is large.
        """
        values = _checked(TakeRequestsSerializer, request)
        bound = _consumed(request, values)
        if not bound.settings.enabled:
            raise BizDisabled
        works = _take(bound, values["limit"], owner=person_label(self))
        answer = {
            "project": bound.project_id,
            "biz": bound.name,
            "max_tries": bound.settings.max_tries,
            "requests": [_shown(work) for work in works],
        }
        return Response(TakenRequestsSerializer(answer).data)

    @extend_schema(request=FinishRequestsSerializer, responses=EndedRequestsSerializer)
    @action(detail=False, methods=["post"])
    @repeatable
    def finish(self, request: Request) -> Response:
        """Give leased requests their final flags: 1 processed, the failed flag, or one of the biz.

        `done`; `repeated`: stored by an earlier call, and counted once; `late`: the lease has
        ended; `unknown`: there is no such request. A repeated call is harmless.
        """
        values = _checked(FinishRequestsSerializer, request)
        bound = _consumed(request, values)
        request_store = shared_request_store()
        ends = [
            (
                _leased(bound, value),
                Finish(value["id"], value["tries"], value["flag"], value["result"], value["text"]),
            )
            for value in values["requests"]
        ]
        codes = request_store.finish(bound, ends, owner=person_label(self), now=request_store.now())
        return _ended(bound, values["requests"], codes)

    @extend_schema(request=ReturnRequestsSerializer, responses=EndedRequestsSerializer)
    @action(detail=False, methods=["post"], url_path="return", url_name="return")
    @repeatable
    def give_back(self, request: Request) -> Response:
        """Return leased requests unfinished: they are new again and in the queue at once.

        The codes are those of `finish`. The tries stay: compare them with `max_tries`, and finish
        a request with the failed flag rather than return it without end.
        """
        values = _checked(ReturnRequestsSerializer, request)
        bound = _consumed(request, values)
        request_store = shared_request_store()
        backs = [
            (_leased(bound, value), GiveBack(value["id"], value["tries"], value["text"]))
            for value in values["requests"]
        ]
        codes = request_store.give_back(
            bound, backs, owner=person_label(self), now=request_store.now()
        )
        return _ended(bound, values["requests"], codes)


def _checked(kind: type[ConsumedBizSerializer], request: Request) -> dict[str, Any]:
    if not has_role_somewhere(request.user, Role.OPERATOR):
        raise RoleRequired
    serializer = kind(data=request.data, context={"request": request})
    serializer.is_valid(raise_exception=True)
    values: dict[str, Any] = serializer.validated_data
    return values


def _consumed(request: Request, values: dict[str, Any]) -> BoundBiz:
    project = values["project"]
    if not has_role(request.user, project.pk, Role.OPERATOR):
        raise RoleRequired
    return bound_biz(project.pk, values["biz"])


def _take(bound: BoundBiz, limit: int, *, owner: str) -> list[LeasedRequest]:
    """Lease in portions, so that large requests do not fill the memory. The leases are the
    store's; their queue entries are settled at once."""
    request_store, works, size = shared_request_store(), list[LeasedRequest](), 0
    redis_prefix = settings.REDIS_PREFIX if settings.REDIS_URL else ""
    dead_letter = dead_letter_function(bound, shared_broker(), redis_prefix)
    with closing(request_store.open_queue(bound)) as queue:
        taker = RequestTaker(bound, queue, request_store, owner, dead_letter)
        portion, wait = min(limit, FIRST_PORTION), FIRST_ENTRY_SECONDS
        while portion > 0:
            some = taker.take(portion, now=request_store.now(), expires=0.0, timeout=wait)
            if not some:
                break
            queue.settle([work.taken for work in some])
            works += some
            size += sum(len(work.request.data) for work in some)
            room = max(0, MOST_BYTES - size) * len(works) // max(1, size)
            portion, wait = min(limit - len(works), room), 0.0
    return works


def _shown(work: LeasedRequest) -> dict[str, Any]:
    entity, request = work.entity, work.request
    return {
        **msgspec.structs.asdict(entity),
        "body_base64": base64.b64encode(entity.body).decode(),
        "id": str(request.id),
        "ts": request.ts,
        "tries": request.tries,
        "priority": request.priority,
        "deadline_at": moment(request.deadline),
    }


def _leased(bound: BoundBiz, one: dict[str, Any]) -> StoredRequest:
    """Return the lease from the call as a request; the store verifies it."""
    return StoredRequest(
        id=one["id"],
        biz=bound.name,
        ts=one["ts"],
        flag=TAKEN,
        data=b"",
        priority=one.get("priority", 0),
        tries=one["tries"],
    )


def _ended(bound: BoundBiz, ends: Sequence[dict[str, Any]], codes: Sequence[EndCode]) -> Response:
    results = [
        {"id": str(end["id"]), "code": code.value} for end, code in zip(ends, codes, strict=True)
    ]
    answer = {"project": bound.project_id, "biz": bound.name, "results": results}
    return Response(EndedRequestsSerializer(answer).data)
