"""REST fields of a job with nested or write-only values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.jobs.engine.retry import ENDS, MAX_BACKOFF, MAX_DELAY_SECONDS, MAX_RETRIES
from apps.jobs.models import check_cookies
from apps.jobs.models.execution_rules import (
    MAX_LABELS,
    MAX_TAG_CHARACTERS,
    MAX_TAGS,
    MAX_VALUE_CHARACTERS,
    MAX_VARIABLES,
    MAX_WORDS,
    validate_environment,
)
from apps.jobs.models.validators import MAX_RULES


class FiniteField(serializers.FloatField):
    """A finite number."""

    default_error_messages = {"not_finite": _("Enter a finite number.")}

    def to_internal_value(self, data: Any) -> float:
        """Reject NaN and infinity, which Python's JSON parser accepts."""
        value = super().to_internal_value(data)
        if not math.isfinite(value):
            self.fail("not_finite")
        return value


@extend_schema_field(
    {
        "type": "array",
        "maxItems": MAX_RULES,
        "items": {
            "type": "object",
            "properties": {
                "start": {"type": "string"},
                "end": {"type": "string"},
                "pattern": {"type": "string", "description": "RE2"},
                "start_offset": {"type": "integer"},
                "end_offset": {"type": "integer"},
                "trim": {"type": "boolean"},
            },
            "additionalProperties": False,
        },
    }
)
class CutRulesField(serializers.JSONField):
    """A list of cut rules; the error of the model's validator names the invalid rule."""


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class CookiesField(serializers.JSONField):
    """Cookies by name, write-only; an empty object removes the stored cookies."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "write_only": True})

    def to_internal_value(self, data: Any) -> Any:
        """Return the object as JSON text, as the model stores it."""
        cookies = check_cookies(super().to_internal_value(data))
        return json.dumps(cookies) if cookies else ""


@extend_schema_field(
    {"type": "array", "maxItems": MAX_WORDS, "items": {"type": "string", "minLength": 1}}
)
class CommandField(serializers.JSONField):
    """A program and its arguments; the error of the model's validator names the invalid word."""


@extend_schema_field(
    {
        "type": "object",
        "maxProperties": MAX_VARIABLES,
        # OpenAPI 3.0 cannot describe a pattern of property names; the validator checks it.
        "additionalProperties": {"type": "string", "maxLength": MAX_VALUE_CHARACTERS},
    }
)
class EnvironmentField(serializers.JSONField):
    """Environment variables by name; the error of the model's validator names the variable."""


@extend_schema_field(
    {
        "type": "object",
        "maxProperties": MAX_VARIABLES,
        # OpenAPI 3.0 cannot describe a pattern of property names; the validator checks it.
        "additionalProperties": {
            "type": "string",
            "nullable": True,
            "maxLength": MAX_VALUE_CHARACTERS,
        },
    }
)
class SecretsField(serializers.JSONField):
    """Secrets by name, write-only; merged into the stored secrets, null removes a secret."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "write_only": True})

    def to_internal_value(self, data: Any) -> dict[str, str | None]:
        """Return the changes; error messages name the variable and never contain a value."""
        if not isinstance(data, Mapping):
            validate_environment(data)
        changes: dict[str, str | None] = {**data}
        super().to_internal_value(changes)
        validate_environment({name: text for name, text in changes.items() if text is not None})
        return changes


@extend_schema_field(
    {"type": "object", "maxProperties": MAX_LABELS, "additionalProperties": {"type": "string"}}
)
class LabelsField(serializers.JSONField):
    """Host labels by name."""


@extend_schema_field(
    {
        "type": "array",
        "maxItems": MAX_TAGS,
        "uniqueItems": True,
        "items": {"type": "string", "minLength": 1, "maxLength": MAX_TAG_CHARACTERS},
    }
)
class TagsField(serializers.JSONField):
    """A list of tags."""


@extend_schema_field(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "on": {"type": "string", "enum": list(ENDS)},
                "codes": {"type": "array", "items": {"type": "integer"}},
                "retries": {"type": "integer", "minimum": 1, "maximum": MAX_RETRIES},
                "delay_seconds": {"type": "number", "minimum": 0, "maximum": MAX_DELAY_SECONDS},
                "backoff": {"type": "number", "minimum": 1, "maximum": MAX_BACKOFF},
            },
            "required": ["on", "retries"],
        },
    }
)
class RetryRulesField(serializers.JSONField):
    """Retry rules; the first that matches a run's end applies."""
