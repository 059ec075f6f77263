"""Conversion of times: milliseconds internally, ISO 8601 in answers; both are accepted."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema_field
from rest_framework.exceptions import ValidationError
from rest_framework.fields import Field

from apps.seeds.engine.seeds import DEFAULT_SEGMENT, LAST_TIME, TIMELESS_DUE

Moment = int | str
_BAD: Final = gettext_lazy("Expected a time: ISO 8601, or milliseconds since 1970.")


def to_ms(value: object, place: str) -> int:
    """Return ``value`` in ms since 1970; a time without an offset is UTC.

    Raises:
        ValidationError: for the field ``place``.
    """
    ms = _ms(value)
    if ms is None or not 0 <= ms < LAST_TIME:
        raise ValidationError(
            {place: [_BAD if ms is None else _("The time must be between 1970 and 2100.")]}
        )
    return ms


def _ms(value: object) -> int | None:
    if isinstance(value, str):
        if value.isascii() and value.isdigit():
            return int(value) if len(value) <= 15 else None
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return math.floor(moment.timestamp() * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None


def iso(ms: int | None) -> str | None:
    """Return a time in ms as ISO 8601 in UTC, the format of all answers."""
    if ms is None:
        return None
    moment = datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def due(ms: int | None) -> str | None:
    """Return the due time of a seed; None for a seed without a time, which is due at once."""
    return None if ms is None or ms <= TIMELESS_DUE else iso(ms)


def beginning(segment: int) -> str | None:
    """Return the beginning of a segment; None for the default one."""
    return None if segment == DEFAULT_SEGMENT else iso(segment)


@extend_schema_field(
    {"oneOf": [{"type": "string", "format": "date-time"}, {"type": "integer", "format": "int64"}]}
)
class MillisecondsField(Field[int, Any, str, Any]):
    """Field that accepts ISO 8601 or ms since 1970, and holds ms."""

    default_error_messages = {"invalid": _BAD}

    def to_internal_value(self, data: Any) -> int:
        """Return ms since 1970. Raises ``ValidationError``."""
        ms = _ms(data)
        if ms is None or not 0 <= ms < LAST_TIME:
            self.fail("invalid")
        return ms

    def to_representation(self, value: Any) -> str:
        """Return the time as ISO 8601."""
        return iso(value) or ""
