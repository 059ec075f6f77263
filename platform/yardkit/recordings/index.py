"""Index of recorded fetches by request, in a temporary database on disk: flat memory."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from typing import Final, NamedTuple

from yardkit.recordings.base import digest, fetch_key

_SCHEMA: Final = """
CREATE TABLE responses (
    seq INTEGER PRIMARY KEY, url TEXT, method TEXT, body TEXT,
    file INTEGER, position INTEGER, size INTEGER, id TEXT, concurrent TEXT, payload TEXT
);
CREATE TABLE requests (id TEXT, concurrent TEXT, method TEXT, body TEXT);
CREATE TABLE fetches (
    seq INTEGER PRIMARY KEY, request BLOB, file INTEGER, position INTEGER, size INTEGER
);
CREATE TABLE payloads (digest TEXT, file INTEGER, position INTEGER, size INTEGER);
"""
# Request and response records name each other in either direction.
_JOIN: Final = """
CREATE INDEX by_id ON requests (id);
CREATE INDEX by_concurrent ON requests (concurrent);
INSERT INTO fetches
SELECT r.seq, request_key(coalesce(a.method, b.method, r.method), r.url,
                          coalesce(a.body, b.body, r.body)), r.file, r.position, r.size
FROM responses r
LEFT JOIN requests a ON r.id != '' AND a.concurrent = r.id
LEFT JOIN requests b ON r.concurrent != '' AND b.id = r.concurrent
GROUP BY r.seq;
DELETE FROM fetches WHERE request IS NULL;
CREATE INDEX by_request ON fetches (request, seq);
INSERT INTO payloads SELECT payload, file, position, size FROM responses WHERE payload != '';
CREATE INDEX by_digest ON payloads (digest);
DROP TABLE responses;
DROP TABLE requests;
"""


class Place(NamedTuple):
    """Where a recorded response is: number of the file, offset and size in bytes."""

    file: int
    position: int
    size: int = 0


class FetchIndex:
    """Places of recorded responses. Add all of them, then ``finish``, then look up."""

    def __init__(self) -> None:
        # SQLite's name of a private database in a temporary file.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.executescript(_SCHEMA)
        self._database.create_function("request_key", 3, _key, deterministic=True)
        self._database.execute("BEGIN")
        self._lock = threading.Lock()

    def add_response(
        self,
        url: str,
        place: Place,
        *,
        method: str = "GET",
        body: bytes = b"",
        record_id: str = "",
        concurrent_to: str = "",
        payload: str = "",
    ) -> None:
        """Add a response. ``payload``: digest by which later records refer to its body."""
        values = (url, method, digest(body), *place, record_id, concurrent_to, payload)
        self._database.execute(
            "INSERT INTO responses (url, method, body, file, position, size, id, concurrent,"
            " payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )

    def add_request(self, record_id: str, concurrent_to: str, method: str, body: bytes) -> None:
        """Add a request that is not a plain GET, which is what responses without one answer."""
        self._database.execute(
            "INSERT INTO requests VALUES (?, ?, ?, ?)",
            (record_id, concurrent_to, method, digest(body)),
        )

    def finish(self) -> None:
        """Match responses with their requests."""
        self._database.execute("COMMIT")
        self._database.executescript(_JOIN)

    def find(self, method: str, url: str, body: bytes, nth: int) -> tuple[Place, bool] | None:
        """Return (place of the ``nth`` response from 0, whether it is the last one).

        Raises ``ValueError`` for an invalid URL.
        """
        rows = self._rows(
            "SELECT file, position, size FROM fetches WHERE request = ? ORDER BY seq"
            " LIMIT 2 OFFSET ?",
            fetch_key(method, url, digest(body)),
            nth,
        )
        return (Place(*rows[0]), len(rows) == 1) if rows else None

    def find_payload(self, payload: str) -> Place | None:
        """Return the place of the response with this payload digest."""
        rows = self._rows("SELECT file, position, size FROM payloads WHERE digest = ?", payload)
        return Place(*rows[0]) if rows else None

    def close(self) -> None:
        """Delete the temporary file."""
        with self._lock:
            self._database.close()

    def _rows(self, query: str, *values: object) -> list[tuple[int, int, int]]:
        with self._lock:
            return self._database.execute(query, values).fetchall()


def _key(method: str, url: str, body: str) -> bytes | None:
    """Return the key of a request; None for an invalid URL, which nobody can ask for."""
    with contextlib.suppress(ValueError):
        return fetch_key(method, url, body)
    return None
