"""Keyset pages: each page costs the same, and nothing is seen twice or missed while rows come.

``?limit=50&after=<cursor>`` answers ``{"results": [...], "next": "<cursor>" | null}``.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, Q, QuerySet
from django.utils.translation import gettext as _
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.access.api.errors import BadRequest

MAX_CURSOR_LENGTH: Final = 2_000


class KeysetPagination(BasePagination):
    """Pages by the values of the last row. The view declares ``ordering``, default ``("-id",)``.

    Fields of the ordering must not be nullable, nor cross a relation; the id is added to break
    ties.
    """

    default_limit = 50
    max_limit = 200
    limit_param = "limit"
    after_param = "after"

    _next: str | None = None

    def paginate_queryset(
        self, queryset: Any, request: Request, view: APIView | None = None
    ) -> list[Any]:
        """The rows of the page that the request asks for. Raises ``BadRequest``."""
        ordering = _with_id(getattr(view, "ordering", None) or ("-id",))
        limit = self._limit(request)
        rows: QuerySet[Model] = queryset.order_by(*ordering)
        cursor = request.query_params.get(self.after_param)
        if cursor:
            rows = rows.filter(_behind(queryset.model, ordering, cursor))
        found = list(rows[: limit + 1])
        if len(found) > limit:
            del found[limit:]
            self._next = _cursor(found[-1], ordering)
        return found

    def get_paginated_response(self, data: Any) -> Response:
        """``{results, next}``."""
        return Response({"results": data, "next": self._next})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The same for OpenAPI."""
        return {
            "type": "object",
            "required": ["results", "next"],
            "properties": {
                "results": schema,
                "next": {
                    "type": "string",
                    "nullable": True,
                    "description": "Send it as `after` to get the next page; null on the last.",
                },
            },
        }

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        """The two query parameters for OpenAPI."""
        return [
            {
                "name": self.after_param,
                "in": "query",
                "required": False,
                "description": "The `next` of the page before.",
                "schema": {"type": "string"},
            },
            {
                "name": self.limit_param,
                "in": "query",
                "required": False,
                "description": "Rows in a page; more than the maximum is taken as the maximum.",
                "schema": {
                    "type": "integer",
                    "minimum": 1,
                    "default": self.default_limit,
                },
            },
        ]

    def _limit(self, request: Request) -> int:
        asked = request.query_params.get(self.limit_param)
        if asked is None or asked == "":
            return self.default_limit
        if not (asked.isascii() and asked.isdigit()) or len(asked) > 9 or int(asked) < 1:
            raise BadRequest(_("limit must be a whole number of at least 1."), code="bad_limit")
        return min(int(asked), self.max_limit)


def _with_id(ordering: Sequence[str]) -> tuple[str, ...]:
    names = [each.lstrip("-") for each in ordering]
    if "id" in names or "pk" in names:
        return tuple(ordering)
    # The same direction as the rest, so that an index can be walked one way.
    return (*ordering, "-id" if ordering[-1].startswith("-") else "id")


def _cursor(row: Model, ordering: Sequence[str]) -> str:
    values = [getattr(row, name.lstrip("-")) for name in ordering]
    if None in values:
        raise ImproperlyConfigured(f"keyset ordering {ordering} meets a null")
    packed = json.dumps([list(ordering), values], cls=ExactEncoder, separators=(",", ":"))
    return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")


class ExactEncoder(DjangoJSONEncoder):
    """Times with all their microseconds: Django cuts them, and rows would repeat."""

    def default(self, o: Any) -> Any:
        """ISO 8601 for whatever has it."""
        return o.isoformat() if hasattr(o, "isoformat") else super().default(o)


def _behind(model: type[Model], ordering: Sequence[str], cursor: str) -> Q:
    values = _values(model, ordering, cursor)
    condition = Q()
    equal = Q()
    for name, value in zip(ordering, values, strict=True):
        field = name.lstrip("-")
        past = Q(**{f"{field}__{'lt' if name.startswith('-') else 'gt'}": value})
        condition |= equal & past
        equal &= Q(**{field: value})
    if len(ordering) > 1:
        # Implied by the rest, but it lets a database use the index for the whole.
        name = ordering[0]
        condition &= Q(
            **{f"{name.lstrip('-')}__{'lte' if name.startswith('-') else 'gte'}": values[0]}
        )
    return condition


def _values(model: type[Model], ordering: Sequence[str], cursor: str) -> list[Any]:
    refusal = BadRequest(_("after is not a cursor of this list."), code="bad_cursor")
    if len(cursor) > MAX_CURSOR_LENGTH or not cursor.isascii():
        raise refusal
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        order, raw = json.loads(packed)
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise refusal from error
    if order != list(ordering) or not isinstance(raw, list) or len(raw) != len(ordering):
        raise refusal
    values = []
    for name, value in zip(ordering, raw, strict=True):
        if value is None or isinstance(value, list | dict | bool | float):
            raise refusal
        bare = name.lstrip("-")
        field = model._meta.pk if bare == "pk" else model._meta.get_field(bare)
        try:
            values.append(field.to_python(value))  # type: ignore[union-attr]
        except (ValidationError, ValueError, TypeError, OverflowError) as error:
            raise refusal from error
    return values
