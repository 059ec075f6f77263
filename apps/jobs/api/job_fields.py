"""Fields of a job in REST whose shape a plain field cannot tell."""

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
    """A number, neither infinite nor none."""

    default_error_messages = {"not_finite": _("A finite number is needed.")}

    def to_internal_value(self, data: Any) -> float:
        """A finite number; JSON can write others."""
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
    """A list of cut rules; the model's validator says which one is wrong."""


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class CookiesField(serializers.JSONField):
    """Names and values, taken and never given back; an empty object removes those stored."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "write_only": True})

    def to_internal_value(self, data: Any) -> Any:
        """The object as JSON text, as the model stores it."""
        cookies = check_cookies(super().to_internal_value(data))
        return json.dumps(cookies) if cookies else ""


@extend_schema_field(
    {"type": "array", "maxItems": MAX_WORDS, "items": {"type": "string", "minLength": 1}}
)
class CommandField(serializers.JSONField):
    """A program and its arguments; the model's validator says which word is wrong."""


@extend_schema_field(
    {
        "type": "object",
        "maxProperties": MAX_VARIABLES,
        # OpenAPI 3.0 has no word for what names must be like; the validator says it.
        "additionalProperties": {"type": "string", "maxLength": MAX_VALUE_CHARACTERS},
    }
)
class EnvironmentField(serializers.JSONField):
    """Names and texts; the model's validator says which one is wrong."""


@extend_schema_field(
    {
        "type": "object",
        "maxProperties": MAX_VARIABLES,
        # OpenAPI 3.0 has no word for what names must be like; the validator says it.
        "additionalProperties": {
            "type": "string",
            "nullable": True,
            "maxLength": MAX_VALUE_CHARACTERS,
        },
    }
)
class SecretsField(serializers.JSONField):
    """Names and texts, taken and never given back; laid over what is stored, null removes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "write_only": True})

    def to_internal_value(self, data: Any) -> dict[str, str | None]:
        """The changes; a refusal names the variable and never shows a value."""
        if not isinstance(data, Mapping):
            validate_environment(data)
        changes: dict[str, str | None] = {**data}
        super().to_internal_value(changes)
        validate_environment({name: text for name, text in changes.items() if text is not None})
        return changes


@extend_schema_field(
    {
        "type": "object",
        "maxProperties": MAX_LABELS,
        "additionalProperties": {"type": "string"},
    }
)
class LabelsField(serializers.JSONField):
    """Names and values of labels."""


@extend_schema_field(
    {
        "type": "array",
        "maxItems": MAX_TAGS,
        "uniqueItems": True,
        "items": {"type": "string", "minLength": 1, "maxLength": MAX_TAG_CHARACTERS},
    }
)
class TagsField(serializers.JSONField):
    """Short words."""


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
    """Rules, of which the first that fits a run's end repeats it."""
