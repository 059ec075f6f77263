"""Serializers of the endpoints ``explain`` and ``replay``."""

from __future__ import annotations

from typing import Any, ClassVar

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from apps.routing.queries.replays import MOST_ITEMS, RouteDifference, RouteKind
from apps.routing.states import ItemState


class RulesAskedSerializer(serializers.Serializer[Any]):
    """Choice of rules: a saved version or an unsaved draft."""

    version = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=2**31 - 1,
        help_text=_("number of a saved version; by default the active one"),
    )
    draft = serializers.DictField(
        required=False, help_text=_("unsaved rules to use instead of a version")
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject a request with both a version and a draft."""
        if "version" in attrs and "draft" in attrs:
            raise serializers.ValidationError(_("Give either version or draft, not both."))
        return attrs


class ExplainSerializer(RulesAskedSerializer):
    """Item to explain, and the rules to explain it by."""

    item = serializers.DictField(required=False, help_text=_("task to explain; empty by default"))
    text = serializers.CharField(
        required=False,
        allow_blank=True,
        trim_whitespace=False,
        help_text=_("received message to use instead of item"),
    )
    inbound = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=200,
        default="",
        help_text=_(
            "inbound at which the task arrives; without one the task is not converted or filtered"
        ),
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject a request with both an item and a text."""
        if "item" in attrs and "text" in attrs:
            raise serializers.ValidationError(_("Give either item or text, not both."))
        return super().validate(attrs)


class ExplanationSerializer(serializers.Serializer[Any]):
    """What the rules would do with the item, and why."""

    version = serializers.IntegerField(help_text=_("0 for an unsaved draft"))
    outcome = serializers.CharField(help_text=_("dispatch, hold, end, ignore, filtered, refused"))
    text = serializers.CharField()
    received = serializers.DictField(allow_null=True)
    refused = serializers.DictField(allow_null=True)
    inbound = serializers.DictField(allow_null=True)
    steps = serializers.ListField(child=serializers.DictField())
    converted = serializers.DictField(allow_null=True)
    known = serializers.DictField(allow_null=True)
    result = serializers.DictField(allow_null=True)
    decision = serializers.DictField(allow_null=True)
    outbounds = serializers.ListField(child=serializers.DictField())
    message = serializers.DictField(allow_null=True)


class ReplaySerializer(RulesAskedSerializer):
    """Items to replay, and the two versions of the rules to compare."""

    FILTERS: ClassVar = ("state", "inbound", "outbound", "since", "until")

    base = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=2**31 - 1,
        help_text=_("number of the version to compare with; by default the active one"),
    )
    limit = serializers.IntegerField(
        min_value=1, max_value=MOST_ITEMS, default=200, help_text=_("number of recent tasks")
    )
    state = serializers.ChoiceField(choices=ItemState.choices, required=False)
    inbound = serializers.CharField(required=False, max_length=200)
    outbound = serializers.CharField(required=False, max_length=200)
    since = serializers.DateTimeField(required=False)
    until = serializers.DateTimeField(required=False)


class ReplayChoiceSerializer(serializers.Serializer[Any]):
    """Route of an item by one version of the rules."""

    fate = serializers.ChoiceField(choices=[kind.value for kind in RouteKind])
    outbound = serializers.CharField()


class ReplayGroupSerializer(serializers.Serializer[Any]):
    """Number of items with the same pair of routes before and after."""

    before = ReplayChoiceSerializer()
    after = ReplayChoiceSerializer()
    difference = serializers.ChoiceField(
        choices=[difference.value for difference in RouteDifference]
    )
    count = serializers.IntegerField()


class ReplayRowSerializer(serializers.Serializer[Any]):
    """Item whose route differs between the two versions."""

    task_uuid = serializers.UUIDField()
    received_at = serializers.DateTimeField()
    inbound = serializers.CharField()
    state = serializers.ChoiceField(choices=ItemState.choices)
    before = ReplayChoiceSerializer()
    after = ReplayChoiceSerializer()
    difference = serializers.ChoiceField(
        choices=[difference.value for difference in RouteDifference]
    )


class ReplayedSerializer(serializers.Serializer[Any]):
    """Differences between the routes of the two versions."""

    base = serializers.IntegerField(help_text=_("0 for an unsaved draft"))
    draft = serializers.IntegerField(help_text=_("0 for an unsaved draft"))
    items = serializers.IntegerField(help_text=_("number of replayed tasks"))
    unreadable = serializers.IntegerField()
    groups = ReplayGroupSerializer(many=True)
    rows = ReplayRowSerializer(
        many=True, help_text=_("tasks that are routed differently, most important first")
    )
    converters_differ = serializers.ListField(
        child=serializers.CharField(),
        help_text=_(
            "inbounds whose converters differ between the versions; converters are not run again"
        ),
    )
    stopped = serializers.BooleanField(help_text=_("whether the replay was stopped early"))
    seconds = serializers.FloatField()
