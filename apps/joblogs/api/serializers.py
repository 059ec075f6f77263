"""Serializers of log lines and of the parameters to read them."""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext as _
from rest_framework import serializers

from apps.joblogs.engine.lines import BIGGEST_SEQ, LEVELS
from apps.joblogs.stores.base import MOST_LINES, BadQuery, Ref, StoredLine

DEFAULT_LINES: Final = 200
SEARCH_CHARACTERS: Final = 200
_WAYS: Final = ("after", "before", "around", "tail")


class RefField(serializers.CharField):
    """Place of a line in its log, such as ``2.1234``: number of the execution, and of the line in
    it.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": 40} | kwargs)

    def to_internal_value(self, data: Any) -> Any:
        """Return a ``Ref``. Raises ``ValidationError``."""
        text = super().to_internal_value(data)
        try:
            return Ref.parse(text)
        except BadQuery:
            message = _(
                "Not a valid place in a log. Expected: execution and line number, such as 2.1234."
            )
            raise serializers.ValidationError(message, code="bad_place") from None

    def to_representation(self, value: Any) -> str:
        """Return the place as text."""
        return str(value)


class LogLineSerializer(serializers.Serializer[StoredLine]):
    """A log line."""

    ref = RefField(help_text="Its place in the log; it never changes.")
    boot = serializers.IntegerField(
        source="ref.boot_number", help_text="Which execution of the run, from 1."
    )
    seq = serializers.IntegerField(source="ref.seq", help_text="Which line of it, from 1.")
    at = serializers.DateTimeField()
    level = serializers.CharField(help_text="Empty for a line that names none.")
    source = serializers.CharField()  # type: ignore[assignment]  # the name of a line's field
    text = serializers.CharField()
    fingerprint = serializers.CharField(help_text="Of an error, the same for all of its kind.")


class SpanSerializer(serializers.Serializer[Any]):
    """Range of line numbers that never arrived."""

    boot = serializers.IntegerField()
    first = serializers.IntegerField()
    last = serializers.IntegerField()


class LogPageSerializer(serializers.Serializer[Any]):
    """Lines in the order of their places."""

    results = LogLineSerializer(many=True)
    next = RefField(
        allow_null=True, help_text="Send it as `after` for the lines behind; null when none wait."
    )
    previous = RefField(
        allow_null=True, help_text="Send it as `before` for the lines before; null when none are."
    )
    dropped = serializers.IntegerField(
        help_text="Lines of this log that were given up before they could be stored."
    )
    forgotten = serializers.IntegerField(help_text="Lines that were deleted since, being too old.")
    missing = SpanSerializer(many=True, help_text="Lines that never came, at most 100 spans.")


class LevelField(serializers.MultipleChoiceField):
    """Set of levels."""

    def __init__(self, **kwargs: Any) -> None:
        given: dict[str, Any] = {"help_text": "Only lines of these levels.", "required": False}
        super().__init__(choices=LEVELS, **given | kwargs)

    def to_internal_value(self, data: Any) -> Any:
        """Return the levels as a sorted tuple."""
        return tuple(sorted(super().to_internal_value(data)))


class LogQuerySerializer(serializers.Serializer[Any]):
    """Part of a log: the first lines, unless ``after``, ``before``, ``around`` or ``tail`` is
    given.
    """

    after = RefField(
        required=False, help_text="The lines behind this place: that of the last one you have."
    )
    before = RefField(required=False, help_text="The lines right before this place.")
    around = RefField(required=False, help_text="This line, and those before and behind it.")
    tail = serializers.IntegerField(
        required=False, min_value=1, max_value=BIGGEST_SEQ, help_text="So many of the last lines."
    )
    limit = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=BIGGEST_SEQ,
        default=DEFAULT_LINES,
        help_text=f"Lines of a page; more than {MOST_LINES} is taken as {MOST_LINES}.",
    )
    level = LevelField()
    contains = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=SEARCH_CHARACTERS,
        trim_whitespace=False,
        help_text="Only lines with this text; upper and lower case are the same.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject combinations of ``after``, ``before``, ``around`` and ``tail``."""
        if sum(name in attrs for name in _WAYS) > 1:
            raise serializers.ValidationError(
                _("Use one of after, before, around and tail."), code="several_ways"
            )
        return attrs


class FirstErrorSerializer(serializers.Serializer[Any]):
    """Place of the first error."""

    line = LogLineSerializer(allow_null=True, help_text="Null when no line is an error.")
