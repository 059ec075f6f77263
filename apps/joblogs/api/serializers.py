"""Log lines, and how they are asked for."""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from apps.joblogs.engine.lines import BIGGEST_SEQ, LEVELS
from apps.joblogs.models import LogLine
from apps.joblogs.queries import MAX_LINES

DEFAULT_LINES: Final = 200
SEARCH_CHARACTERS: Final = 200
_WAYS: Final = ("after", "before", "tail")


class LogLineSerializer(serializers.ModelSerializer[LogLine]):
    """A line. Within one ``boot`` (an execution) ``seq`` counts from 1."""

    class Meta:
        model = LogLine
        fields = ["id", "boot", "seq", "at", "level", "source", "text"]
        read_only_fields = fields


class LogPageSerializer(serializers.Serializer[Any]):
    """Lines in the order in which they were stored."""

    results = LogLineSerializer(many=True)
    next = serializers.IntegerField(
        allow_null=True, help_text="Send it as `after` for the lines behind; null when none wait."
    )
    previous = serializers.IntegerField(
        allow_null=True, help_text="Send it as `before` for the lines before; null when none are."
    )
    dropped = serializers.IntegerField(
        help_text="Lines of this log that were given up before they could be stored."
    )


class LogQuerySerializer(serializers.Serializer[Any]):
    """From the beginning, unless one of ``after``, ``before`` and ``tail`` says otherwise."""

    after = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=BIGGEST_SEQ,
        help_text="Lines that were stored after the one with this id: the last one you have.",
    )
    before = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=BIGGEST_SEQ,
        help_text="The lines right before the one with this id.",
    )
    tail = serializers.IntegerField(
        required=False, min_value=1, max_value=BIGGEST_SEQ, help_text="So many of the last lines."
    )
    limit = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=BIGGEST_SEQ,
        default=DEFAULT_LINES,
        help_text=f"Lines of a page; more than {MAX_LINES} is taken as {MAX_LINES}.",
    )
    level = serializers.MultipleChoiceField(
        required=False, choices=LEVELS, help_text="Only lines of these levels."
    )
    contains = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=SEARCH_CHARACTERS,
        trim_whitespace=False,
        help_text="Only lines with this text; upper and lower case are the same.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """One way through the log at a time."""
        if sum(name in attrs for name in _WAYS) > 1:
            raise serializers.ValidationError(
                _("Use one of after, before and tail."), code="several_ways"
            )
        return attrs
