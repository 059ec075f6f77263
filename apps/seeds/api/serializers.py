"""Serializers of frontiers, segments and operations."""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from apps.access.api.fields import VisibleRelatedField
from apps.access.states import Role
from apps.projects.models import Project
from apps.seeds.api.moments import MillisecondsField
from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.keys import key_resolver
from apps.seeds.engine.segments import segment_resolver, time_zone
from apps.seeds.models import Frontier, Operation
from apps.seeds.states import OperationKind

_RULES: Final = ("time_zone", "segments", "keys", "ignored_parameters")


class FrontierSerializer(serializers.ModelSerializer[Frontier]):
    """Frontier: project, rules and limits.

    ``time_zone``, ``segments``, ``keys`` and ``ignored_parameters`` determine a seed's segment and
    key: they are set at creation, and changed by ``granularity``.
    """

    project = VisibleRelatedField(queryset=Project.objects.all(), at_least=Role.EDITOR)
    ignored_parameters = serializers.ListField(
        child=serializers.CharField(max_length=100),
        required=False,
        allow_null=True,
        max_length=100,
        help_text=_("For canonical keys; null: the JSONP defaults."),
    )

    class Meta:
        model = Frontier
        fields = [
            "id",
            "project",
            "name",
            "description",
            "time_zone",
            "segments",
            "keys",
            "ignored_parameters",
            "max_retry",
            "lease_seconds",
            "expected_seeds",
            "false_positive_rate",
            "is_paused",
            "is_frozen",
            "created_at",
            "updated_at",
        ]
        read_only_fields = ["is_frozen", "created_at", "updated_at"]
        # Disabled here: the service reports a duplicate name as an error of the field ``name``.
        validators: list[Any] = []

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Validate fields together, with stored values for those not given."""
        frontier = self.instance if isinstance(self.instance, Frontier) else Frontier()
        errors = {}
        if frontier.pk and attrs.get("project", frontier.project) != frontier.project:
            errors["project"] = gettext("A URL queue stays in its project.")
        merged = {name: attrs.get(name, getattr(frontier, name)) for name in _RULES}
        try:
            segment_resolver(merged["segments"], time_zone(merged["time_zone"]))
        except InvalidFrontierSetting as error:
            errors["segments"] = str(error)
        try:
            key_resolver(merged["keys"], merged["ignored_parameters"])
        except InvalidFrontierSetting as error:
            errors["keys"] = str(error)
        if not errors and self._is_taken(attrs, frontier):
            errors["name"] = gettext("This project already has a URL queue with this name.")
        if errors:
            raise serializers.ValidationError(errors)
        return attrs

    def _is_taken(self, attrs: dict[str, Any], frontier: Frontier) -> bool:
        project = attrs.get("project") or frontier.project
        name = attrs.get("name", frontier.name)
        return Frontier.objects.filter(project=project, name=name).exclude(pk=frontier.pk).exists()


# --- statistics -----------------------------------------------------------------------------------


class SeedCountsSerializer(serializers.Serializer[Any]):
    """Counters: `added` is `pending + leased + succeeded + failed + ignored + forgotten`."""

    added = serializers.IntegerField()
    duplicates = serializers.IntegerField()
    pending = serializers.IntegerField()
    leased = serializers.IntegerField()
    succeeded = serializers.IntegerField()
    failed = serializers.IntegerField()
    ignored = serializers.IntegerField()
    forgotten = serializers.IntegerField()
    retried = serializers.IntegerField()
    expired = serializers.IntegerField()
    late = serializers.IntegerField()


class SeedFilterSerializer(serializers.Serializer[Any]):
    """Bloom filter of a segment."""

    expected = serializers.IntegerField(
        help_text=_("Number of seeds that the filter was sized for.")
    )
    bytes = serializers.IntegerField()
    fill = serializers.FloatField(help_text=_("Share of set bits, 0 to 1."))
    false_positive_rate = serializers.FloatField(
        help_text=_("Estimated share of new seeds for which the store is queried needlessly.")
    )


class SegmentSerializer(serializers.Serializer[Any]):
    """Segment with its counts and Bloom filter."""

    segment = serializers.IntegerField(
        help_text=_("Beginning of the segment in ms since 1970; 0: the default segment.")
    )
    begins_at = serializers.DateTimeField(allow_null=True)
    books = SeedCountsSerializer()
    balances = serializers.BooleanField(
        help_text=_("Whether the counts by state add up to the seeds added.")
    )
    size_bytes = serializers.IntegerField()
    filter = SeedFilterSerializer(allow_null=True)
    reported_at = serializers.DateTimeField()


class StatsSerializer(serializers.Serializer[Any]):
    """Counts of a frontier and its segments."""

    live = serializers.BooleanField(
        help_text=_("Whether the figures are current, and not from the last report.")
    )
    totals = SeedCountsSerializer(help_text=_("Sums over all segments."))
    balances = serializers.BooleanField()
    segments_in_all = serializers.IntegerField()
    results = SegmentSerializer(many=True, help_text=_("The default segment first, then by time."))
    next = serializers.CharField(
        allow_null=True, help_text=_("Cursor for `after`; null on the last page.")
    )


class StatsQuerySerializer(serializers.Serializer[Any]):
    """Parameters of the statistics."""

    live = serializers.BooleanField(
        default=False, help_text=_("Query the service instead of using its latest report.")
    )
    after = serializers.IntegerField(
        required=False,
        min_value=-1,
        max_value=2**63 - 1,
        help_text=_("`next` of the previous page."),
    )
    limit = serializers.IntegerField(default=200, min_value=1, max_value=1000)


# --- managing -------------------------------------------------------------------------------------


class ReopenFailedSerializer(serializers.Serializer[Any]):
    """Segment whose failed seeds are reopened, and the segment that they are added to."""

    segment = MillisecondsField(default=0)
    target = MillisecondsField(
        required=False,
        allow_null=True,
        default=None,
        help_text=_("Target segment; the current one if omitted."),
    )


class DropSegmentSerializer(serializers.Serializer[Any]):
    """Segment to delete."""

    segment = MillisecondsField()
    leased_too = serializers.BooleanField(
        default=False, help_text=_("Drop the segment even if some of its seeds are leased.")
    )


class WipeSerializer(serializers.Serializer[Any]):
    """Confirmation of a wipe by the frontier's name."""

    confirm = serializers.CharField(help_text=_("Name of the URL queue, as confirmation."))
    leased_too = serializers.BooleanField(
        default=False, help_text=_("Wipe the URL queue even if some seeds are leased.")
    )


class OperationSerializer(serializers.ModelSerializer[Operation]):
    """Progress and result of an operation on many seeds."""

    project = serializers.IntegerField(source="frontier.project_id", read_only=True)
    kind = serializers.ChoiceField(choices=OperationKind.choices, read_only=True)

    class Meta:
        model = Operation
        fields = [
            "id",
            "project",
            "frontier",
            "kind",
            "arguments",
            "state",
            "done",
            "total",
            "result",
            "error",
            "requested_by",
            "created_at",
            "started_at",
            "beat_at",
            "ended_at",
        ]
        read_only_fields = fields
