"""REST preview and change of segments, time zone or keys."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.access.api.idempotency import repeatable
from apps.seeds import services
from apps.seeds.api.bodies import checked
from apps.seeds.api.moments import beginning
from apps.seeds.api.serializers import OperationSerializer
from apps.seeds.services.granularity import MAX_WAIT_SECONDS, MovePreview, SegmentPreview

_NAMES = ("segments", "time_zone", "keys", "ignored_parameters")


class RulesSerializer(serializers.Serializer[Any]):
    """New rules for segments and keys; omitted fields stay unchanged."""

    segments = serializers.CharField(required=False, max_length=100)
    time_zone = serializers.CharField(required=False, max_length=50)
    keys = serializers.CharField(required=False, max_length=100)
    ignored_parameters = serializers.ListField(
        child=serializers.CharField(max_length=100), required=False, max_length=100
    )


class ChangeSerializer(RulesSerializer):
    """New rules, and how long to wait for leased seeds."""

    wait_seconds = serializers.FloatField(
        default=0.0, min_value=0.0, max_value=float(MAX_WAIT_SECONDS)
    )


class GroupingSerializer(serializers.Serializer[Any]):
    """All rules that determine a seed's segment and key."""

    segments = serializers.CharField()
    time_zone = serializers.CharField()
    keys = serializers.CharField()
    ignored_parameters = serializers.ListField(child=serializers.CharField(), allow_null=True)


class BetweenSerializer(serializers.Serializer[Any]):
    """Range of a number that is estimated from a sample."""

    at_least = serializers.IntegerField()
    at_most = serializers.IntegerField()


class MoveTargetSerializer(serializers.Serializer[Any]):
    """Number of seeds that go from one segment to another."""

    segment = serializers.IntegerField()
    begins_at = serializers.DateTimeField(allow_null=True)
    seeds = serializers.IntegerField()


class MoveSegmentSerializer(serializers.Serializer[Any]):
    """Current segment and the new segments of its seeds."""

    segment = serializers.IntegerField()
    begins_at = serializers.DateTimeField(allow_null=True)
    pending = serializers.IntegerField()
    leased = serializers.IntegerField()
    ended = serializers.IntegerField()
    looked_at = serializers.IntegerField()
    targets = MoveTargetSerializer(many=True)


class MovePreviewSerializer(serializers.Serializer[Any]):
    """Preview of other rules."""

    changes = serializers.BooleanField()
    total = serializers.IntegerField()
    leased = serializers.IntegerField()
    looked_at = serializers.IntegerField()
    exact = serializers.BooleanField(
        help_text=_("Whether all seeds were examined, and not only a sample.")
    )
    meeting = BetweenSerializer(help_text=_("Seeds removed because their new key is taken."))
    new_again = BetweenSerializer(
        help_text=_("Seeds that would count as new if the seeds were not moved.")
    )
    kept = BetweenSerializer(
        help_text=_("Seeds that keep their old key because the new rules reject them.")
    )
    segments = MoveSegmentSerializer(many=True)


class GranularityAnswerSerializer(serializers.Serializer[Any]):
    """Current rules, and a preview of other rules if requested."""

    rules = GroupingSerializer()
    preview = MovePreviewSerializer(allow_null=True)


class GranularityMixin:
    """Granularity actions, for the view set of frontiers."""

    @extend_schema(
        parameters=[RulesSerializer], responses=GranularityAnswerSerializer, filters=False
    )
    @action(detail=True, methods=["get"], pagination_class=None)
    def granularity(self: Any, request: Request, pk: str | None = None) -> Response:
        """Show the rules for segments and keys, and preview others without applying them.

        Exact up to 200,000 seeds; of a larger frontier, a sample of this size is examined.
        """
        frontier = self.get_object()
        changes: dict[str, Any] = {
            name: request.query_params[name] for name in _NAMES if name in request.query_params
        }
        if "ignored_parameters" in changes:
            changes["ignored_parameters"] = request.query_params.getlist("ignored_parameters")
        if not changes:
            rules = {name: getattr(frontier, name) for name in _NAMES}
            return Response({"rules": rules, "preview": None})
        preview = services.preview_granularity(frontier, **checked(RulesSerializer, changes))
        rules = {name: getattr(preview.grouping, name) for name in _NAMES}
        return Response({"rules": rules, "preview": _shown(preview)})

    @extend_schema(request=ChangeSerializer, responses={202: OperationSerializer}, filters=False)
    @granularity.mapping.post
    @repeatable
    def change_granularity(self: Any, request: Request, pk: str | None = None) -> Response:
        """Move all seeds to their place by other rules, which take effect at the end of the move.

        Meanwhile no seed is added or leased. 409 `seeds_leased` unless `wait_seconds` allows to
        wait for them; 422 `bad_grouping`.
        """
        frontier = self.get_object()
        values = checked(ChangeSerializer, request.data)
        operation = services.change_granularity(frontier, actor=self.person, **values)
        return Response(OperationSerializer(operation).data, status=status.HTTP_202_ACCEPTED)


def _shown(preview: MovePreview) -> dict[str, Any]:
    return {
        "changes": preview.changes,
        "total": preview.total,
        "leased": preview.leased,
        "looked_at": preview.looked_at,
        "exact": preview.exact,
        **{
            name: {
                "at_least": getattr(preview, f"{name}_at_least"),
                "at_most": getattr(preview, f"{name}_at_most"),
            }
            for name in ("meeting", "new_again", "kept")
        },
        "segments": [_segment(segment) for segment in preview.segments],
    }


def _segment(preview: SegmentPreview) -> dict[str, Any]:
    return {
        "segment": preview.segment,
        "begins_at": beginning(preview.segment),
        "pending": preview.pending,
        "leased": preview.leased,
        "ended": preview.ended,
        "looked_at": preview.looked_at,
        "targets": [
            {"segment": segment, "begins_at": beginning(segment), "seeds": seeds}
            for segment, seeds in preview.targets.items()
        ],
    }
