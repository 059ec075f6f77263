"""Paths of the original service, also below ``/projects/<slug>/``.

``GET /status``, ``GET /tasks``, ``POST /crawl/start``, ``POST /crawl/stop``, ``GET /consume`` and
``GET /queue/size``; with and without a slash at the end. For a token, a login, or from a network of
``COMPAT_ANONYMOUS_FROM``; ``/consume`` not for a login.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.authentication import SessionAuthentication
from rest_framework.parsers import FormParser, MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.authentication import TokenAuthentication
from apps.access.api.base import ApiView
from apps.access.api.network import InsideScopesOrNetwork, NetworkAuthentication, PerCallerThrottle
from apps.access.api.parsers import StrictJSONParser
from apps.access.models import User
from apps.access.states import Role
from apps.sources.api.callers import SourceProject, sourced_project
from apps.sources.api.shown import named_by, source_shown
from apps.sources.queries import statuses
from apps.sources.services import start, stop
from apps.sources.services.commands import SourceCommand
from apps.sources.services.consumption import MAX_RECORDS, consume
from apps.sources.services.queues import QueueSize, queue_of_project, queue_size
from apps.sources.states import BUSY

COUNT: Final = 10


class ConsumeSerializer(serializers.Serializer[Any]):
    """``?count=&queue=``"""

    count = serializers.IntegerField(min_value=1, max_value=MAX_RECORDS, default=COUNT)
    queue = serializers.CharField(max_length=200, required=False, default="")


@extend_schema(exclude=True)
class SeedView(ApiView):
    """Base of the seed-compatible views."""

    authentication_classes: Sequence[Any] = (
        TokenAuthentication,
        SessionAuthentication,
        NetworkAuthentication,
    )
    permission_classes = (InsideScopesOrNetwork,)
    throttle_classes = (PerCallerThrottle,)
    # No path has a request body; forms are parsed only to reject their fields.
    parser_classes = (StrictJSONParser, FormParser, MultiPartParser)
    # Whether GET changes data.
    changes_by_get = False
    least_role = Role.VIEWER

    def sourced(self, request: Request, slug: str | None) -> SourceProject:
        """Return the project of the call."""
        return sourced_project(request, self.least_role, slug)

    def asked(self, request: Request) -> dict[str, Any]:
        """Return the caller for the audit trail, and the source names; None: all sources.

        Raises ``ValidationError`` for unknown parameters, which would otherwise start all sources.
        """
        unknown = set(request.query_params) - {"source"}
        if request.data:
            unknown |= set(request.data) if isinstance(request.data, dict) else {"body"}
        if unknown:
            text = _("Unknown parameter. Name sources in the URL: ?source=NAME&source=NAME.")
            raise serializers.ValidationError({str(name): [text] for name in sorted(unknown)})
        names = request.query_params.getlist("source")
        person = request.user if isinstance(request.user, User) else None
        return {
            "names": names or None,
            "actor": person,
            "actor_label": "" if person is not None else "seed API",
            "now": timezone.now(),
        }


class StatusView(SeedView):
    """``GET /status``"""

    def get(self, request: Request, slug: str | None = None) -> Response:
        """Return every source with its progress, and whether any is active."""
        sourced = self.sourced(request, slug)
        rows = statuses(sourced.project)
        busy = [row.name for row in rows if row.state and row.state.activity in BUSY]
        answer = {
            "project": sourced.slug,
            "running": bool(busy),
            "running_sources": busy,
            "sources": [source_shown(row) for row in rows],
        }
        return Response(answer)


class TasksView(SeedView):
    """``GET /tasks``"""

    def get(self, request: Request, slug: str | None = None) -> Response:
        """Return the configured sources with their main settings."""
        sourced = self.sourced(request, slug)
        tasks = [
            {
                "name": status.name,
                "kind": status.settings.kind.value,
                "task_id": status.settings.task_id,
                "enabled": status.settings.enabled,
                "auto_start": status.settings.auto_start,
                "cron": status.settings.cron,
                "queue": status.settings.queue,
                "filter_days": status.settings.filter_days,
                "last_start_offset": status.state.marker if status.state is not None else None,
            }
            for status in statuses(sourced.project)
            if status.settings is not None
        ]
        return Response({"project": sourced.slug, "tasks": tasks})


class CrawlStartView(SeedView):
    """``POST /crawl/start?source=``"""

    least_role = Role.OPERATOR

    def post(self, request: Request, slug: str | None = None) -> Response:
        """Start one source, or every enabled one."""
        sourced = self.sourced(request, slug)
        with named_by("source"):
            outcomes = start(project_id=sourced.project, **self.asked(request))
        return _command_response(sourced, outcomes)


class CrawlStopView(SeedView):
    """``POST /crawl/stop?source=``"""

    least_role = Role.OPERATOR

    def post(self, request: Request, slug: str | None = None) -> Response:
        """Stop one source, or all, after the current batch."""
        sourced = self.sourced(request, slug)
        with named_by("source"):
            outcomes = stop(project_id=sourced.project, **self.asked(request))
        return _command_response(sourced, outcomes)


class ConsumeView(SeedView):
    """``GET /consume?count=&queue=``

    Not available with a session: a browser sends its cookie with any link, so a foreign page could
    make a user remove records.
    """

    authentication_classes = (TokenAuthentication, NetworkAuthentication)
    least_role = Role.OPERATOR
    changes_by_get = True

    def get(self, request: Request, slug: str | None = None) -> Response:
        """Return the oldest records and remove them from the queue.

        Callers that must not lose any use a lease: ``/api/v1/sources/projects/ID/lease``.
        """
        sourced = self.sourced(request, slug)
        query = _query(request)
        queue = queue_of_project(project_id=sourced.project, name=query["queue"])
        records = consume(queue=queue, count=query["count"], now=timezone.now())
        answer = {
            "queue": queue.name,
            "count": len(records),
            "data": [record.shown().get("record") for record in records],
        }
        return Response(answer, headers={"Cache-Control": "no-store"})


class QueueSizeView(SeedView):
    """``GET /queue/size?queue=``"""

    def get(self, request: Request, slug: str | None = None) -> Response:
        """Return the number of waiting records, and how many of them have not expired."""
        sourced = self.sourced(request, slug)
        queue = queue_of_project(project_id=sourced.project, name=_query(request)["queue"])
        return Response(size_shown(queue_size(queue=queue, now=timezone.now())))


def size_shown(size: QueueSize) -> dict[str, Any]:
    """``size`` counts records that have not expired; ``expired`` ones wait behind them."""
    return {
        "queue": size.queue,
        "size": size.live,
        "waiting": size.waiting,
        "expired": size.expired,
        "leased": size.leased,
        "returned": size.returned,
    }


def _query(request: Request) -> dict[str, Any]:
    query = ConsumeSerializer(data=request.query_params)
    query.is_valid(raise_exception=True)
    return dict(query.validated_data)


def _command_response(sourced: SourceProject, found: list[SourceCommand]) -> Response:
    results = [{"name": outcome.name, "became": outcome.became.value} for outcome in found]
    return Response({"project": sourced.slug, "sources": results})
