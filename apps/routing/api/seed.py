"""HTTP endpoints of the seed taskHUB.

``POST /task/``, ``POST /inbound/<name>/check_task/`` and ``GET /outbound/<prefix>``, also below
``/projects/<slug>/``. All of them with and without the trailing slash.
"""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.authentication import TokenAuthentication
from apps.access.api.base import ApiView
from apps.access.api.errors import RETRY_AFTER_SECONDS, error_body
from apps.access.api.idempotency import idempotent
from apps.access.api.network import InsideScopesOrNetwork, NetworkAuthentication, PerCallerThrottle
from apps.access.states import Role
from apps.routing.api.bodies import RawJSONParser, items_of, raw_body, refusal
from apps.routing.api.callers import ProjectRules, ruled_project
from apps.routing.api.explanations import explained
from apps.routing.api.status_data import outbound_shown
from apps.routing.engine.track import Track
from apps.routing.errors import FailuresUnwritable, InvalidItems
from apps.routing.services import submit_items


def submitted(project: int, slug: str, track: Track, request: Request) -> Response:
    """Submit the items of the body; the response is sent after they are stored in the ledger.

    Answers 422 for invalid items, and with Retry-After if the failure file cannot be written.
    """
    try:
        items = items_of(request)
        outcomes = submit_items(
            project=project, slug=slug, track=track, items=items, now=timezone.now()
        )
    except InvalidItems as error:
        return refusal(error)
    except FailuresUnwritable as error:
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        return Response(error_body(error.code, error), status=error.status, headers=headers)
    answer = {
        "project": slug,
        "rules_version": track.version,
        "items": [
            {
                "task_uuid": outcome.task_uuid or None,
                "fate": outcome.fate.value,
                "inbound": outcome.inbound,
                "state": outcome.state or None,
                "reason": outcome.reason,
                "text": outcome.text,
            }
            for outcome in outcomes
        ],
    }
    return Response(answer)


@extend_schema(exclude=True)
class SeedView(ApiView):
    """Base of the seed's three endpoints: authentication by token, session or network."""

    authentication_classes = (TokenAuthentication, SessionAuthentication, NetworkAuthentication)
    permission_classes = (InsideScopesOrNetwork,)
    throttle_classes = (PerCallerThrottle,)
    parser_classes = (RawJSONParser,)
    least_role = Role.VIEWER

    def ruled(self, request: Request, slug: str | None) -> ProjectRules:
        """Return the project of the request with its active rules."""
        return ruled_project(request, self.least_role, slug)


class TaskView(SeedView):
    """``POST /task/``: submit items."""

    least_role = Role.OPERATOR

    @idempotent
    def post(self, request: Request, slug: str | None = None) -> Response:
        """Submit one item or a list; all items are accepted, or none."""
        ruled = self.ruled(request, slug)
        return submitted(ruled.project, ruled.slug, ruled.track, request)


class CheckTaskView(SeedView):
    """``POST /inbound/<name>/check_task/``: explain an item without storing it."""

    only_reads = True

    def post(self, request: Request, name: str, slug: str | None = None) -> Response:
        """Explain what the rules would do with the item, and why. Nothing is stored."""
        ruled = self.ruled(request, slug)
        return explained(ruled.project, ruled.track, raw_body(request), name)


class OutboundsView(SeedView):
    """``GET /outbound/<prefix>``: list outbounds by the beginning of their names."""

    def get(self, request: Request, slug: str | None = None, prefix: str = "") -> Response:
        """List outbounds whose name begins with ``prefix``, in order of evaluation."""
        ruled = self.ruled(request, slug)
        outbounds: list[dict[str, Any]] = [
            outbound_shown(number, outbound)
            for number, outbound in enumerate(ruled.track.rules.outbounds, 1)
            if outbound.name.startswith(prefix)
        ]
        answer = {
            "project": ruled.slug,
            "rules_version": ruled.track.version,
            "outbounds": outbounds,
        }
        return Response(answer)
