"""Rare changes of the broker file: queues, exchanges, bindings, consumers, sessions.

Each function runs one transaction on the I/O thread's connection, or several short ones where one
would lock others out for long.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields

from yardkit.broker.base import DEAD_QUEUE, BrokerError, QueueDepth, QueueSpec, Unroutable

_BUSY_SECONDS = 30.0
_ROWS_PER_STEP = 5000


def when_free(attempt: Callable[[], object]) -> None:
    """Repeat ``attempt`` while others hold the write lock, for up to 30 s."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            attempt()
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
        else:
            return


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """Write transaction, rolled back on an exception."""
    when_free(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def touch_topology(connection: sqlite3.Connection) -> None:
    """Make every process reload queues, bindings and consumers."""
    connection.execute("UPDATE state SET topology = topology + 1")


def declare_queue(connection: sqlite3.Connection, spec: QueueSpec, now: float) -> None:
    """Create the queue, or check that the existing one is equal and renew its expiry."""
    values = tuple(getattr(spec, column.name) for column in fields(spec))
    columns = ", ".join(column.name for column in fields(spec))
    with writing(connection):
        row = connection.execute(
            f"SELECT {columns} FROM queue WHERE name = ?",  # noqa: S608  (names of our own class)
            (spec.name,),
        ).fetchone()
        if row is None:
            marks = ", ".join("?" * (len(values) + 1))
            connection.execute(
                f"INSERT INTO queue ({columns}, unused_since) VALUES ({marks})",  # noqa: S608
                (*values, now),
            )
            touch_topology(connection)
        elif tuple(row) != values:
            raise BrokerError(_difference(spec, row, values))
        elif spec.expires_seconds is not None:
            connection.execute("UPDATE queue SET unused_since = ? WHERE name = ?", (now, spec.name))


def _difference(spec: QueueSpec, row: tuple[object, ...], values: tuple[object, ...]) -> str:
    other = "; ".join(
        f"{column.name} is {there!r} there, {expected!r} here"
        for column, there, expected in zip(fields(spec), row, values, strict=True)
        if there != expected
    )
    return f"queue {spec.name!r} exists with other settings: {other}"


def declare_exchange(connection: sqlite3.Connection, name: str, kind: str) -> None:
    """Create the exchange, or check the kind of the existing one."""
    with writing(connection):
        row = connection.execute("SELECT kind FROM exchange WHERE name = ?", (name,)).fetchone()
        if row is None:
            connection.execute("INSERT INTO exchange VALUES (?, ?)", (name, kind))
            touch_topology(connection)
        elif row[0] != kind:
            raise BrokerError(f"exchange {name!r} exists with other settings: it is a {row[0]}")


def bind(connection: sqlite3.Connection, queue: str, exchange: str, key: str) -> None:
    """Bind a queue to an exchange; idempotent."""
    with writing(connection):
        row = connection.execute("SELECT kind FROM exchange WHERE name = ?", (exchange,)).fetchone()
        if row is None:
            raise BrokerError(f"there is no exchange {exchange!r}")
        queue_id = find_queue(connection, queue)
        cursor = connection.execute(
            "INSERT OR IGNORE INTO binding VALUES (?, ?, ?)",
            (exchange, "" if row[0] == "fanout" else key, queue_id),
        )
        if cursor.rowcount:
            touch_topology(connection)


def find_queue(connection: sqlite3.Connection, name: str) -> int:
    """Return the id of a queue. Raises ``Unroutable``."""
    row = connection.execute("SELECT id FROM queue WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise Unroutable([name])
    return int(row[0])


_UNUSED = (
    "SELECT name FROM queue WHERE unused_since + expires_seconds <= ?"
    " AND NOT EXISTS (SELECT 1 FROM consumer WHERE queue_id = queue.id)"
)


def drop_unused_queues(connection: sqlite3.Connection, now: float) -> None:
    """Delete queues past their time without consumers."""
    if connection.execute(_UNUSED, (now,)).fetchone() is None:
        return
    with writing(connection):
        for (name,) in connection.execute(_UNUSED, (now,)).fetchall():
            _drop(connection, name)


def drop_queue(connection: sqlite3.Connection, name: str) -> None:
    """Delete a queue; the sweep deletes its messages."""
    if name == DEAD_QUEUE:
        raise BrokerError(f"the queue {DEAD_QUEUE!r} cannot be deleted; purge it")
    with writing(connection):
        _drop(connection, name)


def _drop(connection: sqlite3.Connection, name: str) -> None:
    for (queue_id,) in connection.execute(
        "DELETE FROM queue WHERE name = ? RETURNING id", (name,)
    ).fetchall():
        connection.execute("DELETE FROM binding WHERE queue_id = ?", (queue_id,))
        connection.execute("INSERT OR IGNORE INTO garbage VALUES (?)", (queue_id,))
        touch_topology(connection)


def purge_some(connection: sqlite3.Connection, queue_id: int) -> int:
    """Delete up to 5,000 waiting messages; return the number."""
    with writing(connection):
        ids = "SELECT id FROM ready WHERE queue_id = ? ORDER BY rank, id LIMIT ?"
        chosen = (queue_id, _ROWS_PER_STEP)
        connection.execute(f"DELETE FROM message WHERE id IN ({ids})", chosen)  # noqa: S608
        return connection.execute(
            "DELETE FROM ready WHERE (queue_id, rank, id) IN"
            " (SELECT queue_id, rank, id FROM ready WHERE queue_id = ? ORDER BY rank, id LIMIT ?)",
            chosen,
        ).rowcount


def remove_garbage(connection: sqlite3.Connection) -> bool:
    """Delete some messages of deleted queues; True when there may be more."""
    row = connection.execute("SELECT queue_id FROM garbage LIMIT 1").fetchone()
    if row is None:
        return False
    if purge_some(connection, row[0]) < _ROWS_PER_STEP:
        with writing(connection):
            connection.execute("DELETE FROM garbage WHERE queue_id = ?", row)
    return True


def depth(connection: sqlite3.Connection, name: str, now: float) -> QueueDepth:
    """Count waiting and delivered messages and consumers."""
    queue_id = find_queue(connection, name)
    (ready,) = connection.execute(
        "SELECT count(*) FROM ready WHERE queue_id = ? AND (expires_at IS NULL OR expires_at > ?)",
        (queue_id, now),
    ).fetchone()
    (unacked,) = connection.execute(
        "SELECT count(*) FROM unacked WHERE queue_id = ?", (queue_id,)
    ).fetchone()
    (consumers,) = connection.execute(
        "SELECT count(*) FROM consumer WHERE queue_id = ?", (queue_id,)
    ).fetchone()
    return QueueDepth(ready, unacked, consumers)


def add_consumer(connection: sqlite3.Connection, session_id: int, queue: str) -> tuple[int, int]:
    """Register a consumer; return its id and the queue's. Raises ``Unroutable``."""
    with writing(connection):
        queue_id = find_queue(connection, queue)
        cursor = connection.execute(
            "INSERT INTO consumer (session_id, queue_id) VALUES (?, ?)", (session_id, queue_id)
        )
        touch_topology(connection)
    return cursor.lastrowid or 0, queue_id


def remove_consumers(
    connection: sqlite3.Connection, consumer_ids: list[int], now: float
) -> set[int]:
    """Remove consumers in the caller's transaction.

    Their unacknowledged messages are ready again. Returns the ids of their queues.
    """
    queue_ids: set[int] = set()
    for consumer_id in consumer_ids:
        parameters = (consumer_id,)
        connection.execute(
            "INSERT INTO ready SELECT queue_id, rank, id, expires_at, 1"
            " FROM unacked WHERE consumer_id = ?",
            parameters,
        )
        connection.execute(
            "INSERT OR IGNORE INTO garbage SELECT queue_id FROM unacked"
            " WHERE consumer_id = ? AND queue_id NOT IN (SELECT id FROM queue)",
            parameters,
        )
        connection.execute("DELETE FROM unacked WHERE consumer_id = ?", parameters)
        queue_ids.update(
            queue_id
            for (queue_id,) in connection.execute(
                "DELETE FROM consumer WHERE id = ? RETURNING queue_id", parameters
            ).fetchall()
        )
    connection.executemany(
        "UPDATE queue SET unused_since = ? WHERE id = ?", [(now, id_) for id_ in queue_ids]
    )
    if queue_ids:
        touch_topology(connection)
    return queue_ids


def remove_session(
    connection: sqlite3.Connection, session_id: int, now: float
) -> tuple[str, str, set[int]] | None:
    """Remove a dead session and requeue its unacknowledged messages.

    Returns its token, its address and the queues; None when another process did it.
    """
    with writing(connection):
        row = connection.execute(
            "DELETE FROM session WHERE id = ? RETURNING token, address", (session_id,)
        ).fetchone()
        if row is None:
            return None
        consumer_ids = [
            id_
            for (id_,) in connection.execute(
                "SELECT id FROM consumer WHERE session_id = ?", (session_id,)
            ).fetchall()
        ]
        queue_ids = remove_consumers(connection, consumer_ids, now)
    return row[0], row[1], queue_ids
