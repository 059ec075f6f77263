"""Serializers of routed items, and of submitting, cancelling and resubmitting them."""

from __future__ import annotations

import json
from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.access.api.fields import VisibleRelatedField
from apps.access.states import Role
from apps.projects.models import Project
from apps.routing.models import RoutedItem
from apps.routing.querysets import RESUBMITTABLE
from apps.routing.services import SubmissionStatus
from apps.routing.states import ItemState

MAX_NOTE = 500
# Dead letters per request that resubmits them.
MOST_RESUBMITTED = 200


class RoutedItemSerializer(serializers.ModelSerializer[RoutedItem]):
    """State of a routed item."""

    project = serializers.IntegerField(source="project_id", read_only=True)
    state = serializers.ChoiceField(choices=ItemState.choices, read_only=True)

    class Meta:
        model = RoutedItem
        fields = (
            "id",
            "project",
            "task_uuid",
            "state",
            "inbound",
            "outbound",
            "reason",
            "detail",
            "received_at",
            "changed_at",
            "ended_at",
            "due_at",
            "routed_count",
            "retry_times",
            "group_retry_times",
            "rules_version",
            "resubmit_of",
            "replaced_by",
        )
        read_only_fields = fields


class ItemStepSerializer(serializers.Serializer[Any]):
    """Step of an item's history."""

    at = serializers.DateTimeField()
    kind = serializers.CharField(help_text=_("received, matched, dispatched, result ..."))
    outbound = serializers.CharField()
    detail = serializers.CharField()


class RoutedItemDetailSerializer(RoutedItemSerializer):
    """Routed item with its content and history."""

    item = serializers.SerializerMethodField()
    raw = serializers.SerializerMethodField(
        help_text=_("Received content if it is not a JSON object; otherwise empty.")
    )
    story = ItemStepSerializer(many=True, read_only=True)

    class Meta(RoutedItemSerializer.Meta):
        fields = (*RoutedItemSerializer.Meta.fields, "item", "raw", "story")  # type: ignore[assignment]  # a longer tuple
        read_only_fields = fields  # type: ignore[assignment]  # a longer tuple

    @extend_schema_field(serializers.DictField(allow_null=True))
    def get_item(self, row: RoutedItem) -> dict[str, Any] | None:
        """The item as the rules see it; null for a malformed message."""
        return _object(row.item)

    def get_raw(self, row: RoutedItem) -> str:
        """The received text of a malformed message; otherwise empty."""
        return "" if _object(row.item) is not None else row.item


class FoundItemsSerializer(serializers.Serializer[Any]):
    """Items found by a search for a value."""

    results = RoutedItemSerializer(many=True)
    complete = serializers.BooleanField(
        help_text=_("false if there may be more matches; narrow the search to find them")
    )


class FindItemsSerializer(serializers.Serializer[Any]):
    """Value to search for, and where."""

    project = VisibleRelatedField(queryset=Project.objects.all(), required=False)
    value = serializers.CharField(
        required=False,
        max_length=2000,
        trim_whitespace=False,
        help_text=_("whole value as text, exact match: 7 finds 7 and '7'"),
    )
    key = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=256, help_text=_("any by default")
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require the project for a search."""
        if "value" in attrs and "project" not in attrs:
            raise serializers.ValidationError({"project": _("Give the project to search.")})
        return attrs


class ItemNoteSerializer(serializers.Serializer[Any]):
    """Note for the audit trail."""

    note = serializers.CharField(max_length=MAX_NOTE, allow_blank=True, default="")


class ResubmitSerializer(ItemNoteSerializer):
    """Resubmission of an item, unchanged or edited."""

    item = serializers.DictField(
        required=False, help_text=_("changed task to submit; unchanged by default")
    )


class BulkResubmitSerializer(ItemNoteSerializer):
    """Dead letters to submit again: those of ``ids``, or all that match, oldest first."""

    project = VisibleRelatedField(queryset=Project.objects.all(), at_least=Role.OPERATOR)
    ids = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**63 - 1),
        required=False,
        min_length=1,
        max_length=MOST_RESUBMITTED,
    )
    state = serializers.ListField(
        child=serializers.ChoiceField(choices=sorted(RESUBMITTABLE)),
        required=False,
        max_length=len(RESUBMITTABLE),
    )
    inbound = serializers.CharField(required=False, max_length=200)
    outbound = serializers.CharField(required=False, max_length=200)
    reason = serializers.CharField(required=False, max_length=40)
    limit = serializers.IntegerField(min_value=1, max_value=MOST_RESUBMITTED, default=100)


class ResubmittedSerializer(serializers.Serializer[Any]):
    """Item that was submitted again."""

    id = serializers.IntegerField()
    task_uuid = serializers.UUIDField(help_text=_("task_uuid of the new task"))


class NotResubmittedSerializer(serializers.Serializer[Any]):
    """Item that was refused, and the reason."""

    id = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField()


class BulkResubmittedSerializer(serializers.Serializer[Any]):
    """Result of resubmitting several items."""

    resubmitted = ResubmittedSerializer(many=True)
    refused = NotResubmittedSerializer(many=True)
    more = serializers.BooleanField(
        help_text=_("whether more dead letters match; repeat the request to submit them")
    )


class SubmittedItemSerializer(serializers.Serializer[Any]):
    """Result of submitting one item."""

    task_uuid = serializers.UUIDField(allow_null=True)
    fate = serializers.ChoiceField(choices=[status.value for status in SubmissionStatus])
    inbound = serializers.CharField()
    state = serializers.ChoiceField(choices=ItemState.choices, allow_null=True)
    reason = serializers.CharField(help_text=_("decision about a result"))
    text = serializers.CharField()


class SubmittedSerializer(serializers.Serializer[Any]):
    """Results of a submission, in the order of the submitted items."""

    project = serializers.CharField(help_text=_("slug of the project"))
    rules_version = serializers.IntegerField()
    items = SubmittedItemSerializer(many=True)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
