"""REST actions: add, lease, finish, look up and grab seeds."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.idempotency import repeatable
from apps.seeds.api.bodies import checked, read_as
from apps.seeds.api.call_serializers import (
    LOOK_UP_REQUEST,
    MAX_LOOK_UPS,
    SEEDS_REQUEST,
    AddedSerializer,
    ExtendedSerializer,
    ExtendSerializer,
    FinishedSerializer,
    FinishesSerializer,
    GivenBackSerializer,
    GrabbedSerializer,
    GrabSerializer,
    HeldLeaseSerializer,
    LeasedSerializer,
    LeaseSerializer,
    LookUpSerializer,
    LookUpsSerializer,
    OwnerField,
)
from apps.seeds.api.look_up import looked_up, looked_up_one
from apps.seeds.api.moments import iso
from apps.seeds.api.service_calls import asker, owner_of, waiting
from apps.seeds.api.shapes import (
    FinishesBody,
    SeedBody,
    check_number,
    finishes_of,
    seeds_of,
    shown_answers,
    shown_finish,
    shown_lease,
    tally,
)
from yardkit.protocol import Seed, SeedGrabbed
from yardkit.seeds import SeedServiceAway

_URL = "https://example.com/"


class SeedCallsMixin:
    """Actions of spiders and rules, for the view set of frontiers."""

    @extend_schema(
        request=SEEDS_REQUEST,
        responses=AddedSerializer,
        examples=[
            OpenApiExample("One", value=_URL, request_only=True),
            OpenApiExample(
                "Several",
                value=[_URL, {"data": f"{_URL}news", "active_at": "2026-11-22T08:00:00+08:00"}],
                request_only=True,
            ),
        ],
    )
    @action(detail=True, methods=["post"])
    @repeatable
    def add(self: Any, request: Request, pk: str | None = None) -> Response:
        """Add one seed, or a list of at most 10,000; each has its own result.

        A repeated call changes nothing: its seeds are answered with `duplicate`.
        """
        frontier = self.get_object()
        answers = asker(frontier).add(seeds_of(request.data))
        return Response({**tally(answers), "answers": shown_answers(answers)})

    @extend_schema(request=LeaseSerializer, responses=LeasedSerializer)
    @action(detail=True, methods=["post"])
    @repeatable
    def lease(self: Any, request: Request, pk: str | None = None) -> Response:
        """Lease due seeds. Seeds not finished in time are leased to another caller.

        An empty answer means that nothing is due. 409 `frozen` while the seeds are being moved.
        """
        frontier = self.get_object()
        values = checked(LeaseSerializer, request.data)
        owner = owner_of(request, values["owner"])
        client = asker(frontier, owner)
        wait_seconds = values["wait_seconds"]
        if not wait_seconds:
            lease = client.lease(values["limit"], seconds=values["seconds"])
        else:
            with waiting():
                lease = client.lease(
                    values["limit"], seconds=values["seconds"], wait_seconds=wait_seconds
                )
        return Response(shown_lease(lease, owner))

    @extend_schema(request=FinishesSerializer, responses=FinishedSerializer)
    @action(detail=True, methods=["post"])
    @repeatable
    def finish(self: Any, request: Request, pk: str | None = None) -> Response:
        """Report the outcome of leased seeds, and add discovered ones; each has its own result.

        A repeated call changes nothing: it is answered with `repeated`.
        """
        frontier = self.get_object()
        body = read_as(FinishesBody, request.data)
        finishes, found_seeds = finishes_of(body)
        owner = owner_of(request, OwnerField().run_validation(body.owner))
        done = asker(frontier, owner).finish(finishes, found_seeds)
        return Response(
            {
                "answers": [shown_finish(answer) for answer in done.answers],
                "added": shown_answers(done.added),
            }
        )

    @extend_schema(request=ExtendSerializer, responses=ExtendedSerializer)
    @action(detail=True, methods=["post"])
    @repeatable
    def extend(self: Any, request: Request, pk: str | None = None) -> Response:
        """Extend a lease. 409 `wrong_lease` if it has ended or belongs to another caller."""
        frontier = self.get_object()
        values = checked(ExtendSerializer, request.data)
        client = asker(frontier, owner_of(request, values["owner"]))
        deadline = client.extend(values["generation"], seconds=values["seconds"])
        return Response({"deadline": iso(deadline)})

    @extend_schema(request=HeldLeaseSerializer, responses=GivenBackSerializer)
    @action(detail=True, methods=["post"], url_path="give-back")
    @repeatable
    def give_back(self: Any, request: Request, pk: str | None = None) -> Response:
        """Return the unfinished seeds of a lease to pending, without counting a try."""
        frontier = self.get_object()
        values = checked(HeldLeaseSerializer, request.data)
        client = asker(frontier, owner_of(request, values["owner"]))
        return Response({"count": client.give_back(values["generation"])})

    @extend_schema(
        methods=["get"], parameters=[LookUpSerializer], responses=LookUpsSerializer, filters=False
    )
    @extend_schema(
        methods=["post"],
        operation_id="frontiers_look_up_many",
        request=LOOK_UP_REQUEST,
        responses=LookUpsSerializer,
    )
    @action(detail=True, methods=["get", "post"], url_path="look-up", pagination_class=None)
    def look_up(self: Any, request: Request, pk: str | None = None) -> Response:
        """Return whether a seed would be new and, if not, since when it is known and its state.

        By `data` (and `active_at`) as it would be added, or by `segment` and `key`. By POST also a
        list of at most 100.
        """
        frontier = self.get_object()
        if request.method == "GET":
            seeds: Any = [request.query_params.dict()] if request.query_params else []
        else:
            seeds = request.data if isinstance(request.data, list) else [request.data]
            seeds = [question for question in seeds if question != {}]
        check_number(seeds, "non_field_errors", MAX_LOOK_UPS)
        return Response({"results": looked_up(frontier, seeds)})

    @extend_schema(
        request=GrabSerializer, responses={200: GrabbedSerializer, 202: GrabbedSerializer}
    )
    @action(detail=True, methods=["post"])
    @repeatable
    def grab(self: Any, request: Request, pk: str | None = None) -> Response:
        """Crawl a seed now and wait for the result.

        202 when there is no result in time: the seed is still crawled, and `look_up` (also
        `Location`) shows its state. 409 `seed_known` when it was crawled before, unless `again`;
        `seed_in_use` when it is pending or leased.
        """
        frontier = self.get_object()
        values = checked(GrabSerializer, request.data)
        body = SeedBody(values["data"], None, values.get("max_retry"), values.get("ext"), True)
        seed = body.seed("")
        # Validate like the service does, so that the key is known even if the service is down.
        resolved = frontier.rules().resolve(seed)
        with waiting():
            grabbed = asker(frontier).grab(
                seed, timeout=values["timeout_seconds"], again=values["again"]
            )
        where = urlencode({"segment": resolved.segment, "key": resolved.key})
        address = request.build_absolute_uri(f"{request.path.rsplit('/grab', 1)[0]}/look-up")
        answer = {
            "segment": resolved.segment,
            "key": resolved.key,
            **_outcome(frontier, seed, grabbed),
            "look_up": f"{address}?{where}",
        }
        if grabbed is not None:
            return Response(answer)
        headers = {"Location": answer["look_up"]}
        return Response(answer, status=status.HTTP_202_ACCEPTED, headers=headers)


def _outcome(frontier: Any, seed: Seed, grabbed: SeedGrabbed | None) -> dict[str, Any]:
    if grabbed is not None:
        return {"state": grabbed.state.name.lower(), "ended": True, "result": grabbed.result}
    known = looked_up_one(frontier, seed)["known"]
    if known is None:
        # No service took the call from the queue: the seed is not added, and will not be.
        raise SeedServiceAway("the seed service has not taken the call")
    ended = known["state"] in ("succeeded", "failed", "ignored")
    return {"state": known["state"], "ended": ended, "result": None}
