"""Serializers of requests, bizzes and re-balances."""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext_lazy as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.access.api.fields import VisibleRelatedField
from apps.access.api.pagination import PageSerializer
from apps.projects.models import Project
from apps.requeststore.engine.biz import DestinationKind
from apps.requeststore.engine.flags import EXPIRED, MAX_FLAG, MOVING, TAKEN
from apps.requeststore.engine.limits import MAX_BATCH
from apps.requeststore.models import Rebalance, Reextraction
from apps.requeststore.queries.stories import LABELS, STEPS
from apps.requeststore.services.rebalance_plan import cursor_of
from apps.requeststore.states import RebalanceState, ReextractionState

_ENTITY: Final = {
    "type": "object",
    "required": ["url"],
    "additionalProperties": False,
    "properties": {
        "url": {"type": "string", "maxLength": 8000},
        "rule": {
            "description": "The name or number of an extraction rule of the biz.",
            "oneOf": [{"type": "string"}, {"type": "integer"}],
        },
        "method": {"type": "string", "default": "GET"},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "params": {"type": "object", "additionalProperties": {"type": "string"}},
        "body": {"type": "string"},
        "body_base64": {"type": "string", "description": "Instead of body, for bytes."},
        "meta": {
            "type": "object",
            "additionalProperties": True,
            "description": "The caller's own; it goes into each record.",
        },
    },
}
SUBMIT: Final = {
    "application/json": {
        "type": "object",
        "required": ["project", "biz", "requests"],
        "additionalProperties": False,
        "properties": {
            "project": {"type": "integer"},
            "biz": {"type": "string"},
            "requests": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_BATCH,
                "items": {"oneOf": [{"type": "string"}, _ENTITY]},
            },
        },
    }
}


class RequestsSubmitSerializer(serializers.Serializer[Any]):
    """Destination of submitted requests; ``services.intake`` validates the requests themselves."""

    project = VisibleRelatedField(queryset=Project.objects.all())
    biz = serializers.CharField(max_length=32)


class RequestsSubmittedSerializer(serializers.Serializer[Any]):
    """IDs in the order of the requests, as text: JavaScript loses digits beyond 2^53."""

    project = serializers.IntegerField()
    biz = serializers.CharField()
    ts = serializers.IntegerField(help_text=_("Time of storage, in Unix milliseconds."))
    stored_at = serializers.DateTimeField()
    count = serializers.IntegerField()
    ids = serializers.ListField(child=serializers.CharField())


class RequestRowSerializer(serializers.Serializer[Any]):
    """Request in a list."""

    id = serializers.CharField()
    project = serializers.IntegerField()
    biz = serializers.CharField()
    ts = serializers.IntegerField()
    stored_at = serializers.DateTimeField()
    flag = serializers.IntegerField()
    state = serializers.CharField(help_text=", ".join(LABELS))
    meaning = serializers.CharField(help_text=_("Meaning of a custom flag."))
    priority = serializers.IntegerField()
    tries = serializers.IntegerField()
    owner = serializers.CharField()
    deadline_at = serializers.DateTimeField(allow_null=True)
    queued_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    expires_at = serializers.DateTimeField()
    deleted_at = serializers.DateTimeField(help_text=_("Time of deletion."))
    result = serializers.JSONField(allow_null=True)


class ShardPlaceSerializer(serializers.Serializer[Any]):
    """Physical name of a shard."""

    node = serializers.CharField()
    database = serializers.CharField()
    collection = serializers.CharField()


class RequestStepSerializer(serializers.Serializer[Any]):
    """Step of a request's history."""

    at = serializers.DateTimeField()
    kind = serializers.CharField(help_text=", ".join(STEPS))
    by = serializers.CharField()
    text = serializers.CharField()


class GivenRecordsSerializer(serializers.Serializer[Any]):
    """Records extracted from a request's page, at most 50. `records` null: unreadable, see
    `problem`.
    """

    to = serializers.CharField(help_text=", ".join(kind.value for kind in DestinationKind))
    where = serializers.CharField()
    records = serializers.JSONField(allow_null=True)
    more = serializers.BooleanField()
    problem = serializers.CharField()


class RequestStorySerializer(RequestRowSerializer):
    """Everything known about a request. Headers, params, body, meta and `records` (null until the
    request has ended) are for operators. Secret values are masked.
    """

    settings_version = serializers.IntegerField()
    place = ShardPlaceSerializer()
    id_made_at = serializers.DateTimeField(allow_null=True)
    id_worker = serializers.IntegerField(allow_null=True)
    data_bytes = serializers.IntegerField()
    data = serializers.DictField()  # type: ignore[assignment]  # a field, as REST names it
    steps = RequestStepSerializer(many=True)
    records = GivenRecordsSerializer(allow_null=True, required=False)


class RequestFilterSerializer(serializers.Serializer[Any]):
    """Filter of the list of requests."""

    project = VisibleRelatedField(queryset=Project.objects.all(), required=False)
    biz = serializers.CharField(required=False, max_length=32)
    flag = serializers.IntegerField(
        required=False,
        min_value=min(TAKEN, EXPIRED, MOVING),
        max_value=MAX_FLAG,
        help_text=_("0 new, 1 processed, 2 failed, -1 leased, -2 expired, or a custom flag."),
    )
    since = serializers.DateTimeField(required=False, help_text=_("Stored at this time or later."))
    until = serializers.DateTimeField(required=False, help_text=_("Stored before this time."))
    after = serializers.CharField(required=False, max_length=80)
    limit = serializers.IntegerField(required=False, min_value=1, default=50)


class RequestPageSerializer(serializers.Serializer[Any]):
    """Page of requests, newest first."""

    results = RequestRowSerializer(many=True)
    next = serializers.CharField(
        allow_null=True, help_text=_("Send it as `after` to get the next page; null on the last.")
    )


class RebalanceSerializer(serializers.ModelSerializer[Rebalance]):
    """Re-balance with its progress."""

    state = serializers.CharField(
        read_only=True, help_text=", ".join(state.value for state in RebalanceState)
    )
    total = serializers.SerializerMethodField(
        help_text=_("Requests in the shards to examine; null until counted.")
    )
    seen = serializers.SerializerMethodField()
    waiting_for = serializers.SerializerMethodField(
        help_text=_("Leased requests, which move once their leases end.")
    )
    expired = serializers.SerializerMethodField(
        help_text=_("Expired requests, which are not moved.")
    )

    class Meta:
        model = Rebalance
        fields = (
            *("id", "project", "biz", "state", "config_version", "total", "seen", "moved"),
            *("stayed", "waiting_for", "expired", "problem", "created_by", "created_at"),
            *("stepped_at", "ended_at"),
        )
        read_only_fields = fields

    @extend_schema_field({"type": "integer", "nullable": True})
    def get_total(self, row: Rebalance) -> int | None:
        """Return the number of requests to examine."""
        total = cursor_of(row).total
        return None if total < 0 else total

    @extend_schema_field(OpenApiTypes.INT)
    def get_seen(self, row: Rebalance) -> int:
        """Return the number of requests examined."""
        return cursor_of(row).seen

    @extend_schema_field(OpenApiTypes.INT)
    def get_waiting_for(self, row: Rebalance) -> int:
        """Return the number of leased requests that are moved once they are free."""
        return len(cursor_of(row).later)

    @extend_schema_field(OpenApiTypes.INT)
    def get_expired(self, row: Rebalance) -> int:
        """Return the number of requests that had expired."""
        return cursor_of(row).expired


class ReextractionSerializer(serializers.ModelSerializer[Reextraction]):
    """Re-extraction with its progress. seen = done + failed + not_kept."""

    state = serializers.CharField(
        read_only=True, help_text=", ".join(state.value for state in ReextractionState)
    )
    total = serializers.IntegerField(
        read_only=True, allow_null=True, help_text=_("Requests of the selection; null if unknown.")
    )
    seen = serializers.IntegerField(read_only=True)

    class Meta:
        model = Reextraction
        fields = (
            *("id", "project", "biz", "state", "config_version", "total", "seen", "done"),
            *("failed", "not_kept", "records", "reasons", "problem", "created_by"),
            *("created_at", "ended_at"),
        )
        read_only_fields = fields


class SelectRequestsSerializer(serializers.Serializer[Any]):
    """Selection of ended requests: by `ids`, else by flag and period; all without any."""

    ids = serializers.ListField(
        child=serializers.RegexField(r"^[0-9]{1,19}$"),
        required=False,
        min_length=1,
        max_length=MAX_BATCH,
    )
    flag = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_FLAG, help_text=_("Final flag.")
    )
    since = serializers.DateTimeField(required=False)
    until = serializers.DateTimeField(required=False)


class BizEpochSerializer(serializers.Serializer[Any]):
    """Distribution of requests over nodes and splits from `since` (Unix ms) on."""

    since = serializers.IntegerField()
    splits = serializers.IntegerField()
    nodes = serializers.ListField(child=serializers.CharField())
    balance = serializers.CharField()


class RebalanceSourceSerializer(serializers.Serializer[Any]):
    """Shard that requests would leave."""

    place = serializers.SerializerMethodField()
    requests = serializers.IntegerField()
    would_move = serializers.IntegerField()
    is_exact = serializers.BooleanField()

    @extend_schema_field(ShardPlaceSerializer)
    def get_place(self, line: Any) -> dict[str, str]:
        """Return the place as one flat object."""
        return place_of(line.place)


class RebalancePreviewSerializer(serializers.Serializer[Any]):
    """Preview of a re-balance. `seconds` null: no speed is known yet."""

    epoch = BizEpochSerializer()
    before = BizEpochSerializer(allow_null=True)
    begins_later = serializers.BooleanField()
    requests = serializers.IntegerField()
    would_move = serializers.IntegerField()
    is_exact = serializers.BooleanField()
    seconds = serializers.FloatField(allow_null=True)
    lines = RebalanceSourceSerializer(many=True)


class BizSerializer(serializers.Serializer[Any]):
    """Biz with its settings, physical names and accounting."""

    id = serializers.CharField(help_text=_("Project ID and name, such as 7.news."))
    project = serializers.IntegerField()
    name = serializers.CharField()
    description = serializers.CharField()
    enabled = serializers.BooleanField()
    settings_version = serializers.IntegerField()
    queue = serializers.CharField(help_text=_("Name of the Redis list or the broker queue."))
    ttl_seconds = serializers.IntegerField()
    keep_seconds = serializers.IntegerField()
    take_seconds = serializers.IntegerField()
    max_waiting = serializers.IntegerField(
        help_text=_("Queue length from which new requests are refused with 429; 0 for no limit.")
    )
    epochs = BizEpochSerializer(many=True)
    places = ShardPlaceSerializer(many=True)
    books = serializers.DictField()


class BizPageSerializer(PageSerializer):
    """Bizzes, by project and name."""

    results = BizSerializer(many=True)


class ReopenRequestsSerializer(serializers.Serializer[Any]):
    """Selection of ended requests: by `ids`, else by flag and period."""

    ids = serializers.ListField(
        child=serializers.RegexField(r"^[0-9]{1,19}$"), required=False, max_length=MAX_BATCH
    )
    flag = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_FLAG, help_text=_("Flag of failed requests.")
    )
    since = serializers.DateTimeField(required=False)
    until = serializers.DateTimeField(required=False)
    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_BATCH, default=MAX_BATCH
    )


class ReopenedRequestsSerializer(serializers.Serializer[Any]):
    """Number of reopened requests; `more`: call again for the rest."""

    reopened = serializers.IntegerField()
    more = serializers.BooleanField()


def place_of(place: Any) -> dict[str, str]:
    """Return a place as one flat object."""
    shard = place.shard
    return {"node": place.node, "database": shard.database, "collection": shard.collection}
