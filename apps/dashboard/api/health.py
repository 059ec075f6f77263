"""What is up, since when, and what hangs on what is not: the failure page over REST."""

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
    """How many of what hang on a part now."""

    key = serializers.CharField(help_text="Its name, the same in every language.")
    title = serializers.CharField(help_text="In the language of the call.")
    number = serializers.IntegerField(
        allow_null=True, help_text="null: nobody can say, as with queues of a broker that is away."
    )


class PartSerializer(serializers.Serializer[Any]):
    """One server, or the processes of one kind. Texts are in the language of the call."""

    key = serializers.CharField()
    kind = serializers.ChoiceField(choices=["server", "process"])
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=[each.value for each in PartState])
    bad = serializers.BooleanField(help_text="away, hangs or trouble: a person should look.")
    since = serializers.DateTimeField(
        allow_null=True,
        help_text="Since when it is so. Of a server: when this web process first found it so. Of "
        "processes: the last heartbeat of a silent one, or the start of the oldest. null: unknown.",
    )
    detail = serializers.CharField(help_text="Its version, or what is wrong.")
    facts = FactSerializer(many=True)
    without_it = serializers.CharField(source="happens")
    lost = serializers.CharField()
    when_back = serializers.CharField(source="back")
    noticed = serializers.CharField()
    commands = serializers.ListField(child=serializers.CharField())
    runbook = serializers.CharField(help_text="The heading of its section there, or empty.")


class UnsentSerializer(serializers.Serializer[Any]):
    """Messages that are written and not yet handed to the broker."""

    messages = serializers.IntegerField()
    since = serializers.DateTimeField(
        allow_null=True, help_text="When the oldest was written; null: there is none."
    )
    late = serializers.BooleanField(help_text="The oldest has waited for over a minute.")


class PartsSerializer(serializers.Serializer[Any]):
    """Every part, in the order of the page."""

    at = serializers.DateTimeField()
    well = serializers.BooleanField(help_text="Nothing is bad, and nothing is late to be sent.")
    bad = serializers.ListField(child=serializers.CharField(), help_text="Keys of the bad parts.")
    unsent = UnsentSerializer()
    dead_letters = serializers.IntegerField(help_text="Wait for the decision of a person.")
    results = PartSerializer(many=True)


class PartsView(ApiView):
    """How every server and process is, and what hangs on it."""

    permission_classes = (InsideScopes, SeesEverything)

    @extend_schema(operation_id="health_parts_retrieve", responses=PartsSerializer)
    def get(self, request: Request) -> Response:
        """Within two seconds, also while servers hang. For those who see everything."""
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
