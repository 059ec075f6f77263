"""Keyset pagination: constant cost, no row twice or missing while rows are inserted.

``?limit=50&after=<cursor>`` returns ``{"results": [...], "next": "<cursor>"

 null}``.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, Q, QuerySet
from django.utils.translation import gettext as _
from rest_framework import serializers
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.access.api.errors import BadRequest

T = TypeVar("T")

MAX_CURSOR_LENGTH: Final = 2_000
DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200
_AFTER: Final = "The `next` of the page before."
_LIMIT: Final = "Rows in a page; more than the maximum is taken as the maximum."
_NEXT: Final = "Send it as `after` to get the next page; null on the last."


class PageQuerySerializer(serializers.Serializer[Any]):
    """Query parameters of lists paginated by ``page_in``, for the schema."""

    after = serializers.CharField(required=False, help_text=_AFTER)
    limit = serializers.IntegerField(
        required=False, min_value=1, default=DEFAULT_LIMIT, help_text=_LIMIT
    )


class PageSerializer(serializers.Serializer[Any]):
    """Base of page serializers; a subclass adds ``results``."""

    next = serializers.CharField(allow_null=True, help_text=_NEXT)


class KeysetPagination(BasePagination):
    """Pagination by the values of the last row.

    The view declares ``ordering``, default ``("-id",)``. Its fields must not be nullable, nor cross
    a relation; the id is added as a tie-breaker.
    """

    limit_param = "limit"
    after_param = "after"

    _next: str | None = None

    def paginate_queryset(
        self, queryset: Any, request: Request, view: APIView | None = None
    ) -> list[Any]:
        """Return the rows of the requested page. Raises ``BadRequest``."""
        ordering = _with_id(getattr(view, "ordering", None) or ("-id",))
        limit = limit_in(request, self.limit_param)
        rows: QuerySet[Model] = queryset.order_by(*ordering)
        cursor = request.query_params.get(self.after_param)
        if cursor:
            rows = rows.filter(_behind(queryset.model, ordering, cursor))
        page = list(rows[: limit + 1])
        if len(page) > limit:
            del page[limit:]
            self._next = _cursor(page[-1], ordering)
        return page

    def get_paginated_response(self, data: Any) -> Response:
        """Return ``{results, next}``."""
        return Response({"results": data, "next": self._next})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """OpenAPI schema of the response."""
        return {
            "type": "object",
            "required": ["results", "next"],
            "properties": {
                "results": schema,
                "next": {"type": "string", "nullable": True, "description": _NEXT},
            },
        }

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        """OpenAPI schema of the query parameters."""
        return [
            {
                "name": self.after_param,
                "in": "query",
                "required": False,
                "description": _AFTER,
                "schema": {"type": "string"},
            },
            {
                "name": self.limit_param,
                "in": "query",
                "required": False,
                "description": _LIMIT,
                "schema": {"type": "integer", "minimum": 1, "default": DEFAULT_LIMIT},
            },
        ]


def limit_in(request: Request, name: str = "limit") -> int:
    """Return the page size. Raises ``BadRequest``."""
    value = request.query_params.get(name)
    if value is None or value == "":
        return DEFAULT_LIMIT
    if not (value.isascii() and value.isdigit()) or len(value) > 9 or int(value) < 1:
        raise BadRequest(_("limit must be a whole number of at least 1."), code="bad_limit")
    return min(int(value), MAX_LIMIT)


def page_in(
    request: Request, rows: Iterable[T], *, key: Callable[[T], tuple[int | str, ...]]
) -> tuple[list[T], str | None]:
    """Paginate rows that are not in a table, ordered by ``key``; return them and the next cursor.

    Keys are unique and have numbers and texts in the same positions. Raises ``BadRequest``.
    """
    named = sorted(((key(row), row) for row in rows), key=lambda pair: pair[0])
    if cursor := request.query_params.get("after"):
        behind = tuple(_unpacked(cursor))
        kinds = tuple(map(type, behind))
        if named and kinds != tuple(map(type, named[0][0])):
            raise bad_cursor()
        named = [pair for pair in named if pair[0] > behind]
    limit = limit_in(request)
    page = named[:limit]
    more = len(named) > limit
    return [row for _key, row in page], _packed(page[-1][0]) if more else None


def _with_id(ordering: Sequence[str]) -> tuple[str, ...]:
    names = [field_name.lstrip("-") for field_name in ordering]
    if "id" in names or "pk" in names:
        return tuple(ordering)
    # Same direction as the rest, so that the database can walk an index.
    return (*ordering, "-id" if ordering[-1].startswith("-") else "id")


def _cursor(row: Model, ordering: Sequence[str]) -> str:
    values = [getattr(row, name.lstrip("-")) for name in ordering]
    if None in values:
        raise ImproperlyConfigured(f"keyset ordering {ordering} meets a null")
    return _packed([list(ordering), values])


def _packed(value: Sequence[Any]) -> str:
    packed = json.dumps(value, cls=ExactEncoder, separators=(",", ":"))
    return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")


def _unpacked(cursor: str) -> list[Any]:
    if len(cursor) > MAX_CURSOR_LENGTH or not cursor.isascii():
        raise bad_cursor()
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        value = json.loads(packed)
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise bad_cursor() from error
    if not isinstance(value, list):
        raise bad_cursor()
    return value


def bad_cursor() -> BadRequest:
    """Return the error of an invalid ``after``."""
    return BadRequest(_("after is not a cursor of this list."), code="bad_cursor")


class ExactEncoder(DjangoJSONEncoder):
    """Encodes times with microseconds, which Django truncates: rows would repeat."""

    def default(self, o: Any) -> Any:
        """Encode times as ISO 8601."""
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
        # Redundant, but lets the database use an index.
        name = ordering[0]
        condition &= Q(
            **{f"{name.lstrip('-')}__{'lte' if name.startswith('-') else 'gte'}": values[0]}
        )
    return condition


def _values(model: type[Model], ordering: Sequence[str], cursor: str) -> list[Any]:
    refusal = bad_cursor()
    unpacked = _unpacked(cursor)
    if len(unpacked) != 2:
        raise refusal
    order, raw = unpacked
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
