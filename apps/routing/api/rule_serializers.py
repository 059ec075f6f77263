"""Serializers of a project's active rules, their status and the accounting of items."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from apps.configcenter.models import Configuration


class RoutingProjectSerializer(serializers.ModelSerializer[Configuration]):
    """Project with routing rules."""

    project = serializers.IntegerField(source="project_id", read_only=True)
    slug = serializers.CharField(source="project.slug", read_only=True)
    active = serializers.IntegerField(
        source="active.number",
        allow_null=True,
        default=None,
        read_only=True,
        help_text=_("number of the active version"),
    )

    class Meta:
        model = Configuration
        fields = ("project", "slug", "active", "newest", "changed_at")
        read_only_fields = fields


class _CountsSerializer(serializers.Serializer[Any]):
    counts = serializers.DictField(
        child=serializers.IntegerField(),
        help_text=_("number of tasks by state, including ended tasks"),
    )


class InboundStandingSerializer(serializers.Serializer[Any]):
    """Status of an inbound, as live routers report it; counted since they applied these rules."""

    problem = serializers.CharField()
    problem_at = serializers.DateTimeField(allow_null=True, help_text=_("start of the problem"))
    depth = serializers.IntegerField(
        allow_null=True, help_text=_("number of waiting messages; null if unknown")
    )
    taken = serializers.IntegerField()
    filtered = serializers.IntegerField()
    poison = serializers.IntegerField()
    late = serializers.IntegerField()
    warnings = serializers.ListField(child=serializers.CharField())


class OutboundStandingSerializer(serializers.Serializer[Any]):
    """Status of an outbound, as live routers report it; counted since they applied these rules."""

    problem = serializers.CharField()
    problem_at = serializers.DateTimeField(allow_null=True, help_text=_("start of the problem"))
    depth = serializers.IntegerField(
        allow_null=True, help_text=_("number of messages that wait for a consumer; null if unknown")
    )
    full = serializers.BooleanField(help_text=_("whether max_lag messages are waiting"))
    sent = serializers.IntegerField()
    refused = serializers.IntegerField()
    limit_degraded = serializers.CharField()
    selector_errors = serializers.IntegerField()


class InboundRowSerializer(serializers.Serializer[Any]):
    """Inbound with its rule and status."""

    place = serializers.IntegerField(help_text=_("from 1, in effective order"))
    name = serializers.CharField()
    disable = serializers.BooleanField()
    rule = serializers.DictField(
        help_text=_("with the same keys as in a file of rules; secrets are left out")
    )
    standing = InboundStandingSerializer(
        allow_null=True, help_text=_("null if no live router reports it")
    )


class OutboundRowSerializer(_CountsSerializer):
    """Outbound with its rule, status and number of items by state."""

    place = serializers.IntegerField(help_text=_("from 1, in effective order"))
    name = serializers.CharField()
    disable = serializers.BooleanField()
    rule = serializers.DictField(
        help_text=_("with the same keys as in a file of rules; secrets are left out")
    )
    standing = OutboundStandingSerializer(
        allow_null=True, help_text=_("null if no live router reports it")
    )


class RouterSerializer(serializers.Serializer[Any]):
    """Live router, and the version of the rules that it runs."""

    name = serializers.CharField()
    rules_version = serializers.IntegerField()


class ListenerSerializer(serializers.Serializer[Any]):
    """Web process, and whether it listens on the port that the rules ask for."""

    process = serializers.CharField()
    problem = serializers.CharField(
        help_text=_("why the process does not listen; empty if it does")
    )
    at = serializers.DateTimeField()


class RulesServerSerializer(serializers.Serializer[Any]):
    """HTTP server of a rule set (the seed's section `server`)."""

    address = serializers.CharField()
    problem = serializers.CharField(help_text=_("why this installation does not allow it"))
    processes = ListenerSerializer(many=True)


class BooksSerializer(serializers.Serializer[Any]):
    """Accounting of items: received = final + in flight + parked."""

    received = serializers.IntegerField()
    final = serializers.DictField(child=serializers.IntegerField())
    in_flight = serializers.DictField(child=serializers.IntegerField())
    parked = serializers.IntegerField()
    redelivered = serializers.IntegerField()
    late_results = serializers.IntegerField()
    forgotten = serializers.IntegerField()
    filtered = serializers.IntegerField()
    results = serializers.IntegerField()
    accounted = serializers.IntegerField(help_text=_("final + in flight + parked"))
    balanced = serializers.BooleanField()


class AuditedBooksSerializer(serializers.Serializer[Any]):
    """The counters, compared with a count of the items themselves."""

    books = BooksSerializer()
    rows = serializers.DictField(child=serializers.IntegerField())
    holds = serializers.BooleanField(
        help_text=_(
            "whether the counters agree with the stored tasks and all tasks are accounted for"
        )
    )


class ParkedSerializer(serializers.Serializer[Any]):
    """Number of items that wait for an outbound, and the reason."""

    outbound = serializers.CharField()
    parked = serializers.IntegerField()
    full = serializers.BooleanField()
    problem = serializers.CharField()
    problem_at = serializers.DateTimeField(allow_null=True, help_text=_("start of the problem"))


class RoutingProjectDetailSerializer(RoutingProjectSerializer):
    """The active rules of a project in order of evaluation, with their status."""

    server = RulesServerSerializer(allow_null=True)
    routers = RouterSerializer(many=True)
    inbounds = InboundRowSerializer(many=True)
    outbounds = OutboundRowSerializer(many=True)
    unrouted = serializers.DictField(
        child=serializers.IntegerField(),
        help_text=_("number of tasks that never reached an outbound, by state"),
    )
    elsewhere = serializers.DictField(
        child=serializers.DictField(child=serializers.IntegerField()),
        help_text=_("number of tasks of outbounds that are not in these rules, by outbound name"),
    )

    class Meta(RoutingProjectSerializer.Meta):
        fields = (  # type: ignore[assignment]  # a longer tuple
            *RoutingProjectSerializer.Meta.fields,
            "server",
            "routers",
            "inbounds",
            "outbounds",
            "unrouted",
            "elsewhere",
        )
        read_only_fields = fields  # type: ignore[assignment]  # a longer tuple
