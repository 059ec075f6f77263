"""The two statements that the hot path stands on, as fast as each database takes them.

Without the model: making its objects and looking at each of their fields would take several
times as long as the database does. All other writes of the ledger go through the ORM.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from django.db import connection

from apps.routing.models import RoutedItem

_encode: Final = msgspec.json.Encoder().encode
# A project and a task_uuid.
Name = tuple[int, uuid.UUID]

_TABLE: Final = RoutedItem._meta.db_table


class Inserted(NamedTuple):
    """What differs between the new items of a batch; the rest is the same for all of them."""

    project_id: int
    task_uuid: uuid.UUID
    identity: uuid.UUID | None
    inbound: str
    outbound: str
    rules_version: int
    item: str
    steps: str
    step_count: int
    resubmit_of: uuid.UUID | None


class Changed(NamedTuple):
    """How an item stood when it was read, and how it shall stand."""

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
    # None keeps what is there.
    item: str | None
    steps: str
    # Whether ``steps`` are all that there shall be, or are added.
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


def insert_items(rows: Sequence[Inserted], same: Mapping[str, Any]) -> dict[Name, int]:
    """Insert these, with ``same`` for each; of what is there already, nothing.

    Returns the ids of those that are new, by project and task_uuid.
    """
    names = ", ".join([*Inserted._fields, *same])
    once = "ON CONFLICT DO NOTHING"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            constants = ", ".join(["%s"] * len(same))
            cursor.execute(
                f"INSERT INTO {_TABLE} ({names}) SELECT new.*, {constants} "  # noqa: S608 - names of our own
                f"FROM json_to_recordset(%s::json) AS new({_typed(Inserted._fields)}) {once} "
                "RETURNING project_id, task_uuid, id",
                [*same.values(), _as_json(Inserted._fields, rows)],
            )
            return {(project, name): pk for project, name, pk in cursor.fetchall()}
        places = ", ".join(["%s"] * (len(Inserted._fields) + len(same)))
        constant = tuple(map(_adapted, same.values()))
        cursor.executemany(
            f"INSERT INTO {_TABLE} ({names}) VALUES ({places}) {once}",  # noqa: S608 - names of our own
            [(*map(_adapted, row), *constant) for row in rows],
        )
        if cursor.rowcount == 0:
            return {}
    # Nobody else can have brought these names before this transaction.
    made = RoutedItem.objects.filter(
        task_uuid__in=[row.task_uuid for row in rows], generation=1, received_at=same["received_at"]
    )
    found = made.values_list("project_id", "task_uuid", "id")
    return {(project, name): pk for project, name, pk in found}


def update_items(rows: Sequence[Changed], *, now: datetime) -> set[int]:
    """Move items like this, each only if it still stands as it was read.

    Returns the ids of those that were moved. No id may be there twice.
    """
    if connection.vendor == "postgresql":
        return _update_joined(rows, now)
    return _update_each(rows, now)


def _update_joined(rows: Sequence[Changed], now: datetime) -> set[int]:
    values = ", ".join(f"{name} = m.{name}" for name in _SET)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {_TABLE} AS i SET {values}, "  # noqa: S608 - names of our own
            "generation = i.generation + 1, attempts = 0, changed_at = %s, "
            "item = COALESCE(m.item, i.item), "
            "steps = CASE WHEN m.whole THEN m.steps ELSE i.steps || m.steps END, "
            "step_count = m.step_count + CASE WHEN m.whole THEN 0 ELSE i.step_count END "
            f"FROM json_to_recordset(%s::json) AS m({_typed(Changed._fields)}) "
            "WHERE i.id = m.id AND i.generation = m.from_generation "
            "AND i.state = m.from_state AND i.outbound = m.from_outbound RETURNING i.id",
            [now, _as_json(Changed._fields, rows)],
        )
        return {pk for (pk,) in cursor.fetchall()}


def _update_each(rows: Sequence[Changed], now: datetime) -> set[int]:
    """Where one writer at a time holds the lock, it can look first and write then."""
    standing = {
        pk: tuple(guard)
        for pk, *guard in RoutedItem.objects.filter(pk__in=[row.id for row in rows]).values_list(
            "id", "generation", "state", "outbound"
        )
    }
    still = [row for row in rows if standing.get(row.id) == row[1:4]]
    first = Changed._fields.index(_SET[0])
    values = ", ".join(f"{name} = %s" for name in _SET)
    with connection.cursor() as cursor:
        cursor.executemany(
            f"UPDATE {_TABLE} SET {values}, generation = generation + 1, attempts = 0, "  # noqa: S608 - names of our own
            "changed_at = %s, item = COALESCE(%s, item), "
            "steps = CASE WHEN %s THEN %s ELSE steps || %s END, "
            "step_count = %s + CASE WHEN %s THEN 0 ELSE step_count END WHERE id = %s",
            [
                (
                    *map(_adapted, row[first : first + len(_SET)]),
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


def _typed(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {_KINDS.get(name, 'text')}" for name in names)


def _as_json(names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> str:
    """All rows as one parameter: the driver would quote each text of an array by itself."""
    return _encode([dict(zip(names, row, strict=True)) for row in rows]).decode()


def _adapted(value: Any) -> Any:
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return value.hex if isinstance(value, uuid.UUID) else value
