"""Bulk SQL statements for receiving and moving items, written for speed.

They bypass the ORM, because building model instances and validating each field takes several times
as long as the database itself. All other writes of the ledger go through the ORM.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import psycopg
from django.db import connection
from msgspec.structs import asdict, astuple
from psycopg.types.json import Json

from apps.routing.models import CounterChange, RoutedItem, ValuePage

_encode: Final = msgspec.json.Encoder().encode
# Project id and task_uuid.
ItemKey = tuple[int, uuid.UUID]

_TABLE: Final = RoutedItem._meta.db_table
_COUNTER_CHANGES: Final = CounterChange._meta.db_table
_PAGES: Final = ValuePage._meta.db_table


class NewItemRow(msgspec.Struct, frozen=True, gc=False):
    """Column values of a new item that differ between the items of one batch."""

    project_id: int
    task_uuid: uuid.UUID
    # UUID as 32 hex digits.
    identity: str | None
    inbound: str
    outbound: str
    rules_version: int
    item: str
    steps: str
    step_count: int
    resubmit_of: uuid.UUID | None


class CounterChangeRow(msgspec.Struct, frozen=True, gc=False):
    """New row of ``CounterChange``: one change of a counter."""

    project_id: int
    inbound: str
    outbound: str
    what: str
    amount: int


class ValuePageRow(msgspec.Struct, frozen=True, gc=False):
    """New row of ``ValuePage``: the fingerprints of the values of some items."""

    project_id: int
    at: datetime
    items: bytes
    item_count: int
    fingerprints: bytes


class ItemUpdate(msgspec.Struct, frozen=True, gc=False):
    """Expected values of an item (``from_*``), and the values to write when they still hold."""

    id: int
    from_generation: int
    from_state: str
    from_outbound: str
    state: str
    outbound: str
    due_at: datetime | None
    ended_at: datetime | None
    routed_count: int
    retry_times: int
    group_retry_times: int
    rules_version: int
    reason: str
    detail: str
    # None keeps the stored item.
    item: str | None
    steps: str
    # True: ``steps`` replace the stored ones. False: they are appended.
    whole: bool
    step_count: int


_KINDS: Final = {
    "id": "bigint",
    "project_id": "bigint",
    "rules_version": "bigint",
    "task_uuid": "uuid",
    "identity": "uuid",
    "resubmit_of": "uuid",
    "due_at": "timestamptz",
    "ended_at": "timestamptz",
    "whole": "boolean",
    "from_generation": "integer",
    "routed_count": "integer",
    "retry_times": "integer",
    "group_retry_times": "integer",
    "step_count": "integer",
    "amount": "bigint",
}
_SET: Final = (
    "state",
    "outbound",
    "due_at",
    "ended_at",
    "routed_count",
    "retry_times",
    "group_retry_times",
    "rules_version",
    "reason",
    "detail",
)


def insert_items(rows: Sequence[NewItemRow], same: Mapping[str, Any]) -> dict[ItemKey, int]:
    """Insert items, each with the column values of ``same``; skip those that already exist.

    Returns the ids of the inserted items by project and task_uuid.
    """
    names = ", ".join([*NewItemRow.__struct_fields__, *same])
    once = "ON CONFLICT DO NOTHING"
    if connection.vendor == "postgresql":
        constants = ", ".join(["%s"] * len(same))
        made = _by_driver(
            f"INSERT INTO {_TABLE} ({names}) SELECT new.*, {constants} "  # noqa: S608 - names of our own
            f"FROM json_to_recordset(%s) AS new({_typed(NewItemRow.__struct_fields__)}) {once} "
            "RETURNING project_id, task_uuid, id",
            [*same.values(), Json(rows, _encode)],
        )
        return {(project, name): pk for project, name, pk in made}
    places = ", ".join(["%s"] * (len(NewItemRow.__struct_fields__) + len(same)))
    constant = tuple(map(_adapted, same.values()))
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {_TABLE} ({names}) VALUES ({places}) {once}",  # noqa: S608 - names of our own
            [(*map(_adapted, astuple(row)), *constant) for row in rows],
        )
        if cursor.rowcount == 0:
            return {}
    # SQLite has one writer at a time, so rows with these values were inserted just now.
    new = RoutedItem.objects.filter(
        task_uuid__in=[row.task_uuid for row in rows], generation=1, received_at=same["received_at"]
    )
    rows_now = new.values_list("project_id", "task_uuid", "id")
    return {(project, name): pk for project, name, pk in rows_now}


def update_items(rows: Sequence[ItemUpdate], *, now: datetime) -> set[int]:
    """Update items, each only if its generation, state and outbound are still the expected ones.

    Returns the ids of the updated items. An id must occur only once.
    """
    if connection.vendor == "postgresql":
        return _update_joined(rows, now)
    return _update_each(rows, now)


def _update_joined(rows: Sequence[ItemUpdate], now: datetime) -> set[int]:
    values = ", ".join(f"{name} = m.{name}" for name in _SET)
    moved = _by_driver(
        f"UPDATE {_TABLE} AS i SET {values}, "  # noqa: S608 - names of our own
        "generation = i.generation + 1, attempts = 0, changed_at = %s, "
        "item = COALESCE(m.item, i.item), "
        "steps = CASE WHEN m.whole THEN m.steps ELSE i.steps || m.steps END, "
        "step_count = m.step_count + CASE WHEN m.whole THEN 0 ELSE i.step_count END "
        f"FROM json_to_recordset(%s) AS m({_typed(ItemUpdate.__struct_fields__)}) "
        "WHERE i.id = m.id AND i.generation = m.from_generation "
        "AND i.state = m.from_state AND i.outbound = m.from_outbound RETURNING i.id",
        [now, Json(rows, _encode)],
    )
    return {pk for (pk,) in moved}


def _update_each(rows: Sequence[ItemUpdate], now: datetime) -> set[int]:
    """Compare first and update then: safe on SQLite, where one writer at a time holds the lock."""
    standing = {
        pk: tuple(guard)
        for pk, *guard in RoutedItem.objects.filter(pk__in=[row.id for row in rows]).values_list(
            "id", "generation", "state", "outbound"
        )
    }
    still = [
        row
        for row in rows
        if standing.get(row.id) == (row.from_generation, row.from_state, row.from_outbound)
    ]
    values = ", ".join(f"{name} = %s" for name in _SET)
    with connection.cursor() as cursor:
        cursor.executemany(
            f"UPDATE {_TABLE} SET {values}, generation = generation + 1, attempts = 0, "  # noqa: S608 - names of our own
            "changed_at = %s, item = COALESCE(%s, item), "
            "steps = CASE WHEN %s THEN %s ELSE steps || %s END, "
            "step_count = %s + CASE WHEN %s THEN 0 ELSE step_count END WHERE id = %s",
            [
                (
                    *(_adapted(getattr(row, name)) for name in _SET),
                    _adapted(now),
                    row.item,
                    row.whole,
                    row.steps,
                    row.steps,
                    row.step_count,
                    row.whole,
                    row.id,
                )
                for row in still
            ],
        )
    return {row.id for row in still}


def insert_counter_changes(rows: Sequence[CounterChangeRow]) -> None:
    """Insert changes of counters."""
    if connection.vendor == "postgresql":
        names = CounterChangeRow.__struct_fields__
        _by_driver(
            f"INSERT INTO {_COUNTER_CHANGES} ({', '.join(names)}) "  # noqa: S608 - names of our own
            f"SELECT * FROM json_to_recordset(%s) AS new({_typed(names)})",
            [Json(rows, _encode)],
        )
    else:
        CounterChange.objects.bulk_create(CounterChange(**asdict(row)) for row in rows)


def insert_page(page: ValuePageRow) -> None:
    if connection.vendor == "postgresql":
        _by_driver(
            f"INSERT INTO {_PAGES} ({', '.join(ValuePageRow.__struct_fields__)}) "  # noqa: S608 - names of our own
            "VALUES (%s, %s, %s, %s, %s)",
            astuple(page),
        )
    else:
        ValuePage.objects.create(**asdict(page))


def _by_driver(statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Run a statement with a psycopg cursor in the open transaction; return its rows.

    psycopg sends the values separately, in binary. Django's cursor interpolates them on the client:
    half a megabyte of JSON would be escaped there and parsed again by the server.
    """
    with (
        connection.wrap_database_errors,
        psycopg.Cursor[tuple[Any, ...]](connection.connection) as cursor,
    ):
        cursor.execute(statement, values, binary=True)
        return cursor.fetchall() if cursor.description else []


def _typed(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {_KINDS.get(name, 'text')}" for name in names)


def _adapted(value: Any) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return value.hex if isinstance(value, uuid.UUID) else value
