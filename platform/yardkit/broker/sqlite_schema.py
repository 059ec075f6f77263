"""Schema and opening of the broker's SQLite file.

Changes of a transaction are triggers: Python releases the interpreter lock at each statement and
may get it back only 5 ms later when another thread is busy. Ten statements between BEGIN and COMMIT
then hold the file's only write lock for 50 ms. Measured with four processes, one of them busy: 266
transactions a second, and 1,336 with one statement. So the I/O thread fills temporary tables, which
locks no process out, and runs one INSERT whose trigger does the rest.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from yardkit.broker.base import DEAD_QUEUE, BadBrokerURL, BrokerUnavailable
from yardkit.broker.sqlite_clock import current_boot, fresh_epoch

APPLICATION_ID = 0x43595244  # "CYRD": marks a file as a broker's
VERSION = 1
TOPOLOGY_CHANGED = "topology changed"

# SQLite's own wait for the write lock sleeps longer each time (1, 2, 5, ... 100 ms). Starting
# over after the first sleeps keeps the longest wait under load at a quarter of that.
_BUSY_MILLISECONDS = 10

# ready: waits for a consumer, in the order of delivery. unacked: handed out, by whom and in
# which claim. A message row never changes while it moves between the two, so bodies of any
# size are written once. rank is the negated priority.
_SCHEMA = """
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1), next_id INTEGER NOT NULL, topology INTEGER NOT NULL,
    boot TEXT NOT NULL, epoch REAL NOT NULL
);
CREATE TABLE queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, durable INTEGER NOT NULL,
    max_priority INTEGER NOT NULL, dead_letter INTEGER NOT NULL, expires_seconds REAL,
    message_ttl_seconds REAL, unused_since REAL NOT NULL
);
CREATE TABLE exchange (name TEXT PRIMARY KEY, kind TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE binding (
    exchange TEXT NOT NULL, key TEXT NOT NULL, queue_id INTEGER NOT NULL,
    PRIMARY KEY (exchange, key, queue_id)
) WITHOUT ROWID;
CREATE TABLE garbage (queue_id INTEGER PRIMARY KEY);
CREATE TABLE session (
    id INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL UNIQUE, pid INTEGER NOT NULL,
    name TEXT NOT NULL, address TEXT NOT NULL
);
CREATE TABLE consumer (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id INTEGER NOT NULL, queue_id INTEGER NOT NULL
);
CREATE TABLE message (id INTEGER PRIMARY KEY, envelope BLOB NOT NULL, body BLOB NOT NULL);
CREATE TABLE ready (
    queue_id INTEGER NOT NULL, rank INTEGER NOT NULL, id INTEGER NOT NULL, expires_at REAL,
    redelivered INTEGER NOT NULL, PRIMARY KEY (queue_id, rank, id)
) WITHOUT ROWID;
CREATE INDEX ready_expiry ON ready (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE unacked (
    consumer_id INTEGER NOT NULL, claim INTEGER NOT NULL, id INTEGER NOT NULL,
    queue_id INTEGER NOT NULL, rank INTEGER NOT NULL, expires_at REAL,
    redelivered INTEGER NOT NULL, PRIMARY KEY (consumer_id, claim, id)
) WITHOUT ROWID;
"""

# A claim takes its fair share where several consumers read one queue, so that the first one
# to wake does not carry off everything.
_WORK = f"""
CREATE TEMP TABLE publishing (
    n INTEGER PRIMARY KEY, queue_id INTEGER, rank INTEGER, expires_at REAL, envelope, body);
CREATE TEMP TABLE acking (consumer_id INTEGER, claim INTEGER, id INTEGER);
CREATE TEMP TABLE releasing (consumer_id INTEGER, claim INTEGER, id INTEGER);
CREATE TEMP TABLE burying (
    id INTEGER PRIMARY KEY, consumer_id INTEGER, claim INTEGER, envelope);
CREATE TEMP TABLE claiming (
    consumer_id INTEGER, claim INTEGER, queue_id INTEGER, credit INTEGER, sharers INTEGER,
    now REAL);
CREATE TEMP TABLE expiring (
    id INTEGER PRIMARY KEY, queue_id INTEGER, rank INTEGER, envelope);
CREATE TEMP VIEW claim AS SELECT * FROM claiming;
CREATE TEMP VIEW work AS SELECT 0 AS topology;
CREATE TEMP VIEW expire AS SELECT 0 AS now;

CREATE TEMP TRIGGER do_claim INSTEAD OF INSERT ON claim BEGIN
    INSERT INTO unacked
    SELECT NEW.consumer_id, NEW.claim, id, queue_id, rank, expires_at, redelivered
    FROM ready
    WHERE queue_id = NEW.queue_id AND (expires_at IS NULL OR expires_at > NEW.now)
    ORDER BY rank, id
    LIMIT CASE NEW.sharers WHEN 1 THEN NEW.credit ELSE min(NEW.credit, (
        SELECT (count(*) + NEW.sharers - 1) / NEW.sharers FROM (
            SELECT 1 FROM ready WHERE queue_id = NEW.queue_id LIMIT NEW.credit * NEW.sharers
        ))) END;
    DELETE FROM ready WHERE (queue_id, rank, id) IN (
        SELECT queue_id, rank, id FROM unacked
        WHERE consumer_id = NEW.consumer_id AND claim = NEW.claim);
END;

CREATE TEMP TRIGGER do_work INSTEAD OF INSERT ON work BEGIN
    SELECT RAISE(ABORT, '{TOPOLOGY_CHANGED}')
    WHERE (SELECT topology FROM state) IS NOT NEW.topology;

    DELETE FROM message WHERE id IN (
        SELECT id FROM acking CROSS JOIN unacked USING (consumer_id, claim, id));
    DELETE FROM unacked WHERE (consumer_id, claim, id) IN (
        SELECT consumer_id, claim, id FROM acking);

    INSERT INTO ready
    SELECT queue_id, rank, id, expires_at, 1
    FROM releasing CROSS JOIN unacked USING (consumer_id, claim, id);
    INSERT OR IGNORE INTO garbage
    SELECT queue_id FROM releasing CROSS JOIN unacked USING (consumer_id, claim, id)
    WHERE queue_id NOT IN (SELECT id FROM queue);
    DELETE FROM unacked WHERE (consumer_id, claim, id) IN (
        SELECT consumer_id, claim, id FROM releasing);

    INSERT INTO ready
    SELECT (SELECT id FROM queue WHERE name = '{DEAD_QUEUE}'), 0, id, NULL, 0
    FROM burying CROSS JOIN unacked USING (consumer_id, claim, id);
    UPDATE message SET envelope = (SELECT envelope FROM burying WHERE id = message.id)
    WHERE id IN (SELECT id FROM burying CROSS JOIN unacked USING (consumer_id, claim, id));
    DELETE FROM unacked WHERE (consumer_id, claim, id) IN (
        SELECT consumer_id, claim, id FROM burying);

    INSERT INTO message
    SELECT next_id + n, publishing.envelope, publishing.body FROM state, publishing;
    INSERT INTO ready
    SELECT queue_id, rank, next_id + n, expires_at, 0 FROM state, publishing;
    UPDATE state SET next_id = next_id + (SELECT count(*) FROM publishing)
    WHERE EXISTS (SELECT 1 FROM publishing);

    INSERT INTO claim SELECT * FROM claiming;

    DELETE FROM acking;
    DELETE FROM releasing;
    DELETE FROM burying;
    DELETE FROM publishing;
    DELETE FROM claiming;
END;

CREATE TEMP TRIGGER do_expire INSTEAD OF INSERT ON expire BEGIN
    DELETE FROM message WHERE id IN (
        SELECT id FROM expiring CROSS JOIN ready USING (queue_id, rank, id)
        WHERE envelope IS NULL);
    UPDATE message SET envelope = (SELECT envelope FROM expiring WHERE id = message.id)
    WHERE id IN (
        SELECT id FROM expiring CROSS JOIN ready USING (queue_id, rank, id)
        WHERE envelope IS NOT NULL);
    INSERT INTO ready
    SELECT (SELECT id FROM queue WHERE name = '{DEAD_QUEUE}'), 0, id, NULL, 0
    FROM expiring CROSS JOIN ready USING (queue_id, rank, id)
    WHERE envelope IS NOT NULL;
    DELETE FROM ready WHERE (queue_id, rank, id) IN (SELECT queue_id, rank, id FROM expiring);
    DELETE FROM expiring;
END;
"""  # noqa: S608  (two constants of this code)


def side_folder(file: Path) -> Path:
    """Return the folder of lock files and wake-up sockets."""
    return file.with_name(file.name + ".d")


def open_database(file: Path) -> sqlite3.Connection:
    """Open the file, creating it and its side folder; safe in several processes.

    Raises:
        BadBrokerURL: the file is no broker database.
        BrokerUnavailable: the folder or file cannot be written.
    """
    folder = side_folder(file)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (os.access(folder, os.W_OK) and (not file.exists() or os.access(file, os.W_OK))):
            raise PermissionError(13, "Permission denied")
        with _exclusive(folder / "schema.lock"):
            return _open_locked(file)
    except OSError as error:
        raise BrokerUnavailable(
            f"cannot write the broker file {file}: {error.strerror or error}"
        ) from error


@contextmanager
def _exclusive(lock_file: Path) -> Iterator[None]:
    descriptor = os.open(lock_file, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open_locked(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        file, isolation_level=None, check_same_thread=False, timeout=_BUSY_MILLISECONDS / 1000
    )
    try:
        _prepare(connection, file)
    except sqlite3.DatabaseError as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
            raise BadBrokerURL(f"{file} is no SQLite database") from error
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, file: Path) -> None:
    connection.execute("PRAGMA busy_timeout=10000")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if tables and application != APPLICATION_ID:
        raise BadBrokerURL(f"{file} is a SQLite database, but not a broker's")
    if version > VERSION:
        raise BrokerUnavailable(f"{file} was made by a newer version; upgrade this process")
    if not tables:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        # Debian's SQLite overwrites deleted rows with zeros unless this is set.
        "secure_delete=OFF",
        "temp_store=MEMORY",
        "cache_size=-16000",
        # Each checkpoint flushes to the disk twice: at 16 MB, not at SQLite's 4 MB.
        "wal_autocheckpoint=4000",
        f"journal_size_limit={32 * 1024 * 1024}",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchone()
    if not tables:
        _create(connection)
    _set_clock(connection)
    connection.executescript(_WORK)
    connection.execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")


def _create(connection: sqlite3.Connection) -> None:
    boot = current_boot()
    connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA}")
    epoch = fresh_epoch(boot)
    connection.execute("INSERT INTO state VALUES (1, 1, 1, ?, ?)", (boot, epoch))
    connection.execute(
        "INSERT INTO queue (name, durable, max_priority, dead_letter, unused_since)"
        " VALUES (?, 1, 0, 0, 0)",
        (DEAD_QUEUE,),
    )
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={VERSION}")
    connection.execute("COMMIT")


def _set_clock(connection: sqlite3.Connection) -> None:
    boot = current_boot()
    if connection.execute("SELECT boot FROM state").fetchone()[0] != boot:
        connection.execute("UPDATE state SET boot = ?, epoch = ?", (boot, fresh_epoch(boot)))
