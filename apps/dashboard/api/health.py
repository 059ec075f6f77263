"""REST API of system health: state of each part, and affected work."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.base import ApiView
from apps.access.api.permissions import InsideScopes, SeesEverything
from apps.dashboard.backlog import backlog
from apps.dashboard.failures import FailureView, PartState, SystemPart, failure_view
from apps.dashboard.probes import probe


class FactSerializer(serializers.Serializer[Any]):
    """One figure of a part."""

    key = serializers.CharField(help_text="Name of the figure, the same in every language.")
    title = serializers.CharField(help_text="In the language of the request.")
    number = serializers.IntegerField(
        allow_null=True, help_text="null: unknown, as for queues of an unreachable broker."
    )


class PartSerializer(serializers.Serializer[Any]):
    """One server, or one kind of process. Texts are in the language of the request."""

    key = serializers.CharField()
    kind = serializers.ChoiceField(choices=["server", "process"])
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=[state.value for state in PartState])
    bad = serializers.BooleanField(
        help_text="Needs attention: the state is away, hangs or trouble."
    )
    since = serializers.DateTimeField(
        allow_null=True,
        help_text="Start of the state. Server: when this web process first saw it. Process: the "
        "last heartbeat of a silent one, or the start of the oldest. null: unknown.",
    )
    detail = serializers.CharField(help_text="Version, or the problem.")
    facts = FactSerializer(many=True)
    without_it = serializers.CharField(source="happens")
    lost = serializers.CharField()
    when_back = serializers.CharField(source="back")
    noticed = serializers.CharField()
    commands = serializers.ListField(child=serializers.CharField())
    runbook = serializers.CharField(help_text="Heading of the section in the runbook, or empty.")


class UnsentSerializer(serializers.Serializer[Any]):
    """Messages in the outbox, committed and not yet published."""

    messages = serializers.IntegerField()
    since = serializers.DateTimeField(
        allow_null=True, help_text="Time of the oldest message; null if there is none."
    )
    late = serializers.BooleanField(help_text="The oldest message is older than one minute.")


class PartsSerializer(serializers.Serializer[Any]):
    """All parts, in the order of the page."""

    at = serializers.DateTimeField()
    well = serializers.BooleanField(
        help_text="No part needs attention, and the outbox is not late."
    )
    bad = serializers.ListField(
        child=serializers.CharField(), help_text="Keys of the parts that need attention."
    )
    unsent = UnsentSerializer()
    dead_letters = serializers.IntegerField(help_text="Dead letters waiting for an operator.")
    results = PartSerializer(many=True)


class PartsView(ApiView):
    """State of every server and process."""

    permission_classes = (InsideScopes, SeesEverything)

    @extend_schema(operation_id="health_parts_retrieve", responses=PartsSerializer)
    def get(self, request: Request) -> Response:
        """Return within two seconds, even if servers hang. For users who see everything."""
        now = timezone.now()
        view = failure_view(self.person, now, probe(), backlog())
        facts = {
            "at": now,
            "well": not view.bad and not view.outbox_is_late,
            "bad": [part.key for part in view.bad],
            "unsent": {
                "messages": view.counts.outbox,
                "since": view.counts.outbox_since,
                "late": view.outbox_is_late,
            },
            "dead_letters": view.counts.dead_letters,
            "results": _results(view),
        }
        return Response(PartsSerializer(facts).data)


def _results(view: FailureView) -> list[dict[str, Any]]:
    kinds = (("server", view.servers), ("process", view.processes))
    return [_facts(part, kind) for kind, parts in kinds for part in parts]


def _facts(part: SystemPart, kind: str) -> dict[str, Any]:
    names = ("key", "title", "state", "since", "detail", "happens", "lost", "back", "noticed")
    return {name: getattr(part, name) for name in (*names, "commands", "runbook")} | {
        "kind": kind,
        "bad": part.state.is_bad,
        "facts": [fact._asdict() for fact in part.facts],
    }
