"""bench items: from four publishers through the broker into the Iceberg table, then questions.

The messages are made before, in nobody's time: what counts is the broker, the writer of datasets,
and its compaction, from the first message until all items of the ended run are in the table. The
peer is PostgreSQL's COPY of the same items by the same four processes, into a table of jsonb with a
GIN index and an index by run. Exports are compared with DuckDB's COPY of the dataset's files.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
from django.conf import settings

from crawlyard.units import manage
from tools.benches.items_publisher import Plan
from tools.benches.items_stores import check_servers, installation
from tools.benches.measuring import (
    BenchFailed,
    conditions,
    environment,
    helper,
    line_of,
    module,
    usage,
)
from tools.benches.own_postgres import own_server
from tools.benches.router_stores import own_database

ITEMS: Final = 1_000_000
PUBLISHERS: Final = 4
AIM: Final = 20_000
LIMITS: Final = {"ratio": 1.5, "items_per_second": AIM, "stored_share": 0.25, "export_ratio": 0.7}
_LOOK_SECONDS: Final = 0.25
# Without an item more; the last compaction of many items takes minutes on a busy machine.
_PATIENCE_SECONDS: Final = 900.0
_TABLE: Final = (
    "CREATE TABLE items (run bigint, boot text, seq bigint, url text, item jsonb,"
    " at timestamptz DEFAULT now())",
    "CREATE INDEX ON items (run)",
    "CREATE INDEX ON items USING gin (item)",
)

Process = subprocess.Popen[str]


def run(*, items: int = ITEMS, scale: int = 1, peer: bool, servers: bool) -> dict[str, Any]:
    """Store a tenth of the items, then all of them, each in an installation of its own.

    ``servers``: on PostgreSQL, RabbitMQ and S3.

    Raises:
        BenchFailed: an item was lost, or a server is missing.
    """
    before = conditions()
    if servers:
        check_servers()
    count = items * scale
    small = _measure(max(1, count // 10), servers=servers, peer=False)
    ours = _measure(count, servers=servers, peer=peer)
    copied = ours.pop("peer")
    exports = ours["exports"]
    found = {
        "ratio": round(ours["items_per_second"] / copied["items_per_second"], 2)
        if copied
        else None,
        "items_per_second": ours["items_per_second"],
        "stored_share": ours["stored_share"],
        # Of the format in which we are slower.
        "export_ratio": min(one["ratio"] for one in exports.values()),
    }
    used = [
        found["stored_share"] / LIMITS["stored_share"],
        *(
            LIMITS[name] / found[name]
            for name in ("ratio", "items_per_second", "export_ratio")
            if found[name]
        ),
    ]
    return {
        "bench": "items",
        "versions": {name: version(name) for name in ("pyarrow", "duckdb", "pyiceberg", "psycopg")},
        **before,
        "broker": "amqp" if servers else "sqlite",
        "database": "postgresql" if servers else "sqlite",
        "objects": "s3" if servers else "file",
        **found,
        "ours": ours,
        "peer": copied,
        "limit": LIMITS,
        "limit_ratio": round(max(used), 3),
        "growth": {
            "steps": [{name: one[name] for name in _STEP} for one in (small, ours)],
            "cpu_ratio": round(ours["cpu_us_per_item"] / small["cpu_us_per_item"], 2),
            "rss_ratio": round(ours["peak_rss_mb"] / small["peak_rss_mb"], 2),
        },
    }


_STEP: Final = (
    *("items", "seconds", "items_per_second", "cpu_us_per_item", "peak_rss_mb"),
    *("reader_peak_rss_mb", "query_ms"),
)


def _measure(items: int, *, servers: bool, peer: bool) -> dict[str, Any]:
    with installation(servers=servers) as own, ExitStack() as stack:
        clerk = stack.enter_context(helper(module("tools.benches.items_clerk"), own))
        ground = _answer(clerk)
        publishers = [
            stack.enter_context(helper(module("tools.benches.items_publisher"), own))
            for _ in range(PUBLISHERS)
        ]
        for publisher, plan in zip(publishers, _plans(ground, items), strict=True):
            _say(publisher, msgspec.json.encode(plan).decode())
        for publisher in publishers:
            _answer(publisher)
        with _writer(own) as writer:
            stored = _store(clerk, publishers, writer, items)
        found = {"items": items, **stored, **_ask(clerk, "query")}
        if found.pop("stored") != items:
            raise BenchFailed(f"{items} items, but {found}")
        found["stored_share"] = round(found["bytes"] / found["json_bytes"], 3)
        found["json_bytes_per_item"] = round(found["json_bytes"] / items)
        found["exports"] = _ask(clerk, "export")
        found["reader_peak_rss_mb"] = _peak_mb(clerk.pid)
        found["peer"] = _copy(publishers, items) if peer else None
        return found


def _plans(ground: Mapping[str, Any], items: int) -> Iterator[Plan]:
    first = 1
    for number in range(PUBLISHERS):
        count = items // PUBLISHERS + (number < items % PUBLISHERS)
        yield Plan(boot=f"boot{number}", first=first, count=count, **ground)
        first += count


def _store(
    clerk: Process, publishers: Sequence[Process], writer: _Writer, items: int
) -> dict[str, Any]:
    while not _ask(clerk, "look")["ready"]:
        writer.look()
    before = usage(writer.pid)
    began = time.monotonic()
    for publisher in publishers:
        _say(publisher, "go")
    sent = max(_answer(publisher)["seconds"] for publisher in publishers)
    _ask(clerk, "end")
    stored_at, stored = 0.0, -1
    quiet = time.monotonic()
    while not (found := _ask(clerk, "look"))["settled"] or found["stored"] < items:
        now = time.monotonic()
        if found["stored"] > stored:
            stored, quiet = found["stored"], now
        if stored >= items and not stored_at:
            stored_at = now
        if now - quiet > _PATIENCE_SECONDS:
            raise BenchFailed(f"{stored} of {items} items are stored\n{writer.lines()}")
        writer.look()
    seconds = time.monotonic() - began
    after = usage(writer.pid)
    if before is None or after is None:
        raise BenchFailed(f"the writer has ended\n{writer.lines()}")
    cpu = after.cpu_seconds - before.cpu_seconds
    return {
        "stored": found["stored"],
        "seconds": round(seconds, 2),
        "seconds_until_published": round(sent, 2),
        "seconds_until_stored": round((stored_at or time.monotonic()) - began, 2),
        "items_per_second": round(items / seconds),
        "cpu_us_per_item": round(1e6 * cpu / items, 1),
        "peak_rss_mb": _peak_mb(writer.pid),
    }


class _Writer:
    """The daemon that is measured."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid

    def look(self) -> None:
        """Let some time pass. Raises ``BenchFailed`` if it has ended."""
        time.sleep(_LOOK_SECONDS)
        if self._process.poll() is not None:
            raise BenchFailed(f"the writer has ended\n{self.lines()}")

    def lines(self) -> str:
        """Return the end of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])


@contextmanager
def _writer(own: Mapping[str, str]) -> Iterator[_Writer]:
    with tempfile.TemporaryDirectory(prefix="crawlyard-bench-") as folder:
        log = Path(folder, "writer.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                manage("run_dataset_writer"),
                env=environment() | dict(own),
                stdout=output,
                stderr=output,
            )
        try:
            yield _Writer(process, log)
        finally:
            process.terminate()
            process.wait()


def _peak_mb(pid: int) -> int:
    """Return the most memory that a living process has had at once."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1024)
    raise BenchFailed("this system does not say how much memory a process had")


# --- the peer -------------------------------------------------------------------------------------


def _copy(publishers: Sequence[Process], items: int) -> dict[str, Any] | None:
    """Have the same processes copy the same items, each in one transaction."""
    with _database() as url:
        if url is None:
            return None
        with psycopg.connect(url) as connection:
            for statement in _TABLE:
                connection.execute(statement)
        for publisher in publishers:
            _say(publisher, "rows")
        for publisher in publishers:
            _answer(publisher)
        began = time.monotonic()
        for publisher in publishers:
            _say(publisher, f"copy {url}")
        for publisher in publishers:
            _answer(publisher)
        seconds = time.monotonic() - began
        with psycopg.connect(url) as connection:
            row = connection.execute(
                "SELECT count(*), pg_total_relation_size('items') FROM items"
            ).fetchone()
        if row is None or row[0] != items:
            raise BenchFailed(f"PostgreSQL has {row} of {items} items")
        return {
            "items": items,
            "seconds": round(seconds, 2),
            "items_per_second": round(items / seconds),
            "bytes": row[1],
        }


@contextmanager
def _database() -> Iterator[str | None]:
    if settings.DATABASE_URL.startswith(("postgres://", "postgresql://")):
        with own_database(f"crawlyard_bench_{os.getpid()}_peer") as url:
            yield url
    else:
        with own_server() as url:
            yield url


# --- processes ------------------------------------------------------------------------------------


def _ask(process: Process, line: str) -> dict[str, Any]:
    _say(process, line)
    return _answer(process)


def _say(process: Process, line: str) -> None:
    assert process.stdin is not None  # noqa: S101 - helper() asks for a pipe
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _answer(process: Process) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line_of(process))
    return found
