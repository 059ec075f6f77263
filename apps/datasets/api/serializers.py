"""Serializers of datasets, items and queries."""

from __future__ import annotations

from typing import Any, Final

from rest_framework import serializers

from apps.datasets.engine.errors import BadItemQuery
from apps.datasets.engine.exports import FORMATS
from apps.datasets.engine.filters import FilterOp, ItemFilter, read_filter
from apps.datasets.engine.item_types import MOST_ITEMS, ItemQuery
from apps.datasets.models import Dataset, DatasetRun
from apps.datasets.texts import shown_checks, text_of

MOST_FILTERS: Final = 20


class DatasetSerializer(serializers.ModelSerializer[Dataset]):
    """Items of one job, request group or source over all runs, and the settings about them."""

    key_fields = serializers.ListField(
        child=serializers.CharField(max_length=200), required=False, max_length=10
    )
    item_schema = serializers.DictField(required=False)
    checks = serializers.ListField(child=serializers.DictField(), required=False)

    class Meta:
        model = Dataset
        fields = [
            "id",
            "project",
            "name",
            "origin",
            "origin_id",
            "origin_name",
            "created_at",
            "columns",
            "items",
            "bytes",
            "raw_bytes",
            "key_fields",
            "item_schema",
            "checks",
            "keep_days",
            "keep_runs",
            "keep_bytes",
        ]
        read_only_fields = fields[:11]


class CheckedField(serializers.JSONField):
    """Outcomes of checks, each with its text in the language of the request."""

    def to_representation(self, value: Any) -> Any:
        """Return check, ok and text of each."""
        return shown_checks(value)


class DatasetRunSerializer(serializers.ModelSerializer[DatasetRun]):
    """Data of one run: what is stored, what is not and why, comparison and checks."""

    run = serializers.IntegerField(source="run_number")
    checked = CheckedField(read_only=True)

    class Meta:
        model = DatasetRun
        fields = [
            "dataset",
            "run",
            "stored",
            "rejected",
            "flagged",
            "reasons",
            "bytes",
            "raw_bytes",
            "fields",
            "first_at",
            "last_at",
            "settled_at",
            "compared",
            "checked",
            "pinned",
            "deleted_at",
            "deleted_items",
        ]
        read_only_fields = fields


class ItemQuerySerializer(serializers.Serializer[Any]):
    """Which items, in which order and form."""

    fields_ = serializers.CharField(
        required=False, max_length=4000, help_text="`fields`: names separated by commas."
    )
    filter = serializers.ListField(
        child=serializers.CharField(max_length=1000),
        required=False,
        max_length=MOST_FILTERS,
        help_text=(
            "`field:op:value`; several must all hold. Operators: "
            + ", ".join(op.value for op in FilterOp)
            + "."
        ),
    )
    text = serializers.CharField(
        required=False, max_length=500, help_text="Contained in any text of the item."
    )
    sort = serializers.CharField(
        required=False, max_length=201, help_text="A field; `-field` for descending order."
    )
    latest = serializers.BooleanField(
        default=False, help_text="Only the last item of each key over all runs."
    )
    newest = serializers.BooleanField(
        default=False, help_text="The items stored last, in the order of storing."
    )
    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=MOST_ITEMS, help_text="Items of a page of JSON."
    )
    cursor = serializers.CharField(
        required=False, max_length=500, help_text="`next` or `last` of the page before."
    )

    def get_fields(self) -> dict[str, Any]:
        """Name the parameter ``fields``, which a serializer has for itself."""
        found = super().get_fields()
        found["fields"] = found.pop("fields_")
        return found

    def validate_filter(self, values: list[str]) -> list[ItemFilter]:
        """Return the filters."""
        try:
            return [read_filter(text) for text in values]
        except BadItemQuery as error:
            raise serializers.ValidationError(text_of(error)) from error


def query_of(values: dict[str, Any]) -> ItemQuery:
    """Return the query of validated parameters."""
    return ItemQuery(
        filters=tuple(values.get("filter", ())),
        text=values.get("text", ""),
        sort=values.get("sort", ""),
        latest=values["latest"],
        newest=values["newest"],
        limit=values.get("limit", 50),
        after=values.get("cursor", ""),
    )


def fields_of(values: dict[str, Any]) -> list[str]:
    """Return the chosen fields; [] for all."""
    return [name for name in values.get("fields", "").split(",") if name]


class ItemSerializer(serializers.Serializer[Any]):
    """An item with its identity."""

    id = serializers.CharField(help_text="Run, incarnation and number.")
    run = serializers.IntegerField()
    seq = serializers.IntegerField()
    at = serializers.DateTimeField(help_text="When the spider sent it.")
    url = serializers.CharField(help_text="The page on which it was found.")
    flags = serializers.CharField(help_text="Why checks have flagged it.")
    item = serializers.DictField()


class ItemPageSerializer(serializers.Serializer[Any]):
    """A page of items. ``next`` is the cursor of the following page, null at the end."""

    results = ItemSerializer(many=True)
    next = serializers.CharField(allow_null=True)
    last = serializers.CharField(
        allow_null=True, help_text="Cursor of items that are stored later; null in a sorted list."
    )


class PinSerializer(serializers.Serializer[Any]):
    """Whether the retention keeps the data of a run."""

    pinned = serializers.BooleanField()


class AccountingSerializer(serializers.Serializer[Any]):
    """yielded = stored + rejected + dropped + in_flight."""

    yielded = serializers.IntegerField()
    stored = serializers.IntegerField()
    rejected = serializers.IntegerField()
    dropped = serializers.IntegerField()
    in_flight = serializers.IntegerField()
    flagged = serializers.IntegerField()
    deleted = serializers.IntegerField()
    reasons = serializers.DictField(child=serializers.IntegerField())


class FieldQuerySerializer(serializers.Serializer[Any]):
    """Which field."""

    field = serializers.CharField(max_length=200)


class FieldSummarySerializer(serializers.Serializer[Any]):
    """What is known of a field at once."""

    field = serializers.CharField()
    count = serializers.IntegerField()
    share = serializers.FloatField(help_text="Items with a value, 0 to 1.")
    types = serializers.ListField(child=serializers.CharField())
    low = serializers.CharField()
    high = serializers.CharField()


class FieldValuesSerializer(serializers.Serializer[Any]):
    """Values of one field: distinct ones, the most frequent ones, a histogram of numbers."""

    count = serializers.IntegerField()
    distinct = serializers.IntegerField(help_text="Approximate.")
    low = serializers.CharField(allow_null=True)
    high = serializers.CharField(allow_null=True)
    mean = serializers.FloatField(allow_null=True)
    top = serializers.ListField(child=serializers.ListField())
    bins = serializers.ListField(child=serializers.ListField())


class CompareQuerySerializer(serializers.Serializer[Any]):
    """Which run to compare with, and which part of the result."""

    with_ = serializers.IntegerField(
        required=False, min_value=1, help_text="`with`: the earlier run; the previous by default."
    )
    kind = serializers.ChoiceField(
        choices=("added", "removed", "changed", "equal"), default="changed"
    )
    limit = serializers.IntegerField(default=50, min_value=1, max_value=MOST_ITEMS)
    cursor = serializers.CharField(required=False, max_length=20)

    def get_fields(self) -> dict[str, Any]:
        """Name the parameter ``with``, a word of Python."""
        found = super().get_fields()
        found["with"] = found.pop("with_")
        return found


class ComparedItemSerializer(serializers.Serializer[Any]):
    """An item in two runs; null where a run does not have it."""

    key = serializers.ListField(child=serializers.CharField())
    fields_ = serializers.ListField(child=serializers.CharField(), source="fields")
    old = serializers.DictField(allow_null=True)
    new = serializers.DictField(allow_null=True)


class ComparisonSerializer(serializers.Serializer[Any]):
    """Numbers of items by what became of them, and a page of one kind."""

    old = serializers.IntegerField(help_text="The earlier run.")
    new = serializers.IntegerField()
    added = serializers.IntegerField()
    removed = serializers.IntegerField()
    changed = serializers.IntegerField()
    equal = serializers.IntegerField()
    without_key = serializers.IntegerField()
    duplicates = serializers.IntegerField()
    kind = serializers.CharField()
    results = ComparedItemSerializer(many=True)
    next = serializers.CharField(allow_null=True)


FORMAT_NAMES: Final = tuple(FORMATS)
