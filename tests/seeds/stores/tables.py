"""The tables of a store on PostgreSQL, looked at from outside."""

from __future__ import annotations

from typing import Final

import psycopg

# As they were before the queue was a table of its own.
_VERSION_ONE: Final = """
CREATE TABLE seeds (
    frontier bigint NOT NULL,
    segment bigint NOT NULL,
    hash bytea NOT NULL,
    state smallint NOT NULL,
    retry smallint NOT NULL,
    max_retry smallint NOT NULL,
    generation bigint NOT NULL,
    added_at bigint NOT NULL,
    changed_at bigint NOT NULL,
    due bigint NOT NULL,
    turn bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (hash, frontier, segment)
) PARTITION BY RANGE (frontier, segment);
CREATE INDEX seeds_pending ON seeds (due, turn) WHERE state IN (0, 3);
CREATE INDEX seeds_leased ON seeds (generation) WHERE state = 4;
DO $$
DECLARE place record;
BEGIN
    FOR place IN SELECT DISTINCT frontier, segment, format('seeds_%s_%s', frontier, segment) AS name
        FROM books
    LOOP
        EXECUTE format('CREATE TABLE %I (LIKE seeds INCLUDING ALL) WITH (fillfactor = 70)',
            place.name);
        EXECUTE format('ALTER TABLE seeds ATTACH PARTITION %I FOR VALUES FROM (%s, %s) TO (%s, %s)',
            place.name, place.frontier, place.segment, place.frontier, place.segment + 1);
    END LOOP;
END $$;
INSERT INTO seeds SELECT * FROM known;
DROP TABLE known, queue;
ALTER TABLE grants DROP COLUMN segments, DROP COLUMN hashes;
UPDATE store SET version = 1;
"""
_NOT_AS_QUEUED: Final = """
SELECT count(*) FROM known k FULL JOIN queue q USING (frontier, segment, due, turn, hash)
WHERE (k.state IN (0, 3)) IS DISTINCT FROM (q.tableoid IS NOT NULL)
"""
_IN_NO_LEASE: Final = """
SELECT count(*) FROM known k WHERE k.state = 4 AND NOT EXISTS (
    SELECT FROM grants g, unnest(g.segments, g.hashes) AS p (segment, hashes)
    WHERE g.generation = k.generation AND g.frontier = k.frontier AND p.segment = k.segment
        AND position(k.hash IN p.hashes) % 16 = 1
)
"""


def make_older(url: str) -> None:
    """The seeds of a store as version 1 had kept them."""
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = crawlyard_seeds")
        connection.execute(_VERSION_ONE)


def check_queue(url: str) -> None:
    """What waits, and nothing else, stands in the queue, what is leased in its lease."""
    with psycopg.connect(url) as connection:
        connection.execute("SET search_path = crawlyard_seeds")
        for query in (_NOT_AS_QUEUED, _IN_NO_LEASE):
            assert connection.execute(query).fetchone() == (0,), query
