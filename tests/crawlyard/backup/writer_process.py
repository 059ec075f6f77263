"""A process that writes into all embedded stores until it is killed, always in the same order.

``python -m tests.crawlyard.backup.writer_process FOLDER``; one line on stdout when it has begun.
Number n goes into the database (two tables, one transaction), then the stored requests, then the
seeds: a snapshot of one moment holds the same numbers in all, or one less in those further down.
"""

from __future__ import annotations

import sqlite3
import sys
from itertools import count
from pathlib import Path

from apps.requeststore.stores.sqlite import SqliteNode
from apps.seeds.stores.rocks import RocksStore
from tests.requeststore.stores import calls as requests
from tests.seeds.stores import calls as seeds

DATABASE = "crawlyard.sqlite3"
INSERTS = (
    "INSERT INTO runtime_processedmessage (consumer, message_id, at) VALUES ('t', ?, 0)",
    "INSERT INTO runtime_outboxmessage (message_id, exchange, key, body, headers, priority,"
    " persistent, mandatory, created_at, attempts, error)"
    " VALUES (?, '', 'q', x'', '{}', 0, 1, 1, 0, 0, '')",
)


def main(folder: Path) -> None:
    database = sqlite3.connect(folder / DATABASE, isolation_level=None, timeout=20)
    node = SqliteNode(folder / "requests")
    store = RocksStore(folder / "seeds", sync=False)
    for number in count(1):
        database.execute("BEGIN IMMEDIATE")
        for statement in INSERTS:
            database.execute(statement, [str(number)])
        database.execute("COMMIT")
        requests.store(node, number)
        seeds.add(store, *(f"{number}-{part}" for part in range(20)))
        seeds.finish(store, seeds.lease(store, 10))
        if number == 5:
            print("begun", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
