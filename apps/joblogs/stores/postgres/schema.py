"""Tables. Those of a day are dropped as a whole; no partitioning, so no parent table is locked.

``lane`` is a number for (project, job): the newest lines of a job and a level are the end of an
index. ``words`` are those of the text separated by spaces (``engine.words``): an index finds lines
by them, and a phrase is a substring of them.
"""

from __future__ import annotations

from typing import Final

from apps.joblogs.stores.days.session import table

SCHEMA: Final = "crawlyard_logs"
# Advisory locks: creation of the schema, of a day, and of an execution's number.
SETUP_LOCK: Final = 0x43594C47
# Line numbers that a process reserves at once.
NUMBERS: Final = 4096

TABLES: Final = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE SEQUENCE IF NOT EXISTS numbers;
CREATE TABLE IF NOT EXISTS lanes (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project bigint NOT NULL, job bigint NOT NULL, UNIQUE (project, job)
);
CREATE TABLE IF NOT EXISTS executions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, stream text NOT NULL, boot text NOT NULL,
    boot_number integer NOT NULL, project bigint NOT NULL, job bigint NOT NULL,
    lane integer NOT NULL, dropped bigint NOT NULL, spans bytea NOT NULL, fresh text NOT NULL,
    first_at bigint, last_at bigint, created_at bigint NOT NULL, updated_at bigint NOT NULL,
    UNIQUE (stream, boot)
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS executions_of_job ON executions (project, job);
CREATE TABLE IF NOT EXISTS holdings (
    execution bigint NOT NULL, day integer NOT NULL, level smallint NOT NULL,
    lines bigint NOT NULL, bytes bigint NOT NULL, first_at bigint NOT NULL,
    PRIMARY KEY (execution, day, level)
) WITH (fillfactor = 50);
CREATE INDEX IF NOT EXISTS holdings_of_day ON holdings (day);
CREATE TABLE IF NOT EXISTS days (day integer PRIMARY KEY);
"""
WORDS: Final = "array_to_tsvector(string_to_array(l.words, ' '))"
_OF_DAY: Final = f"""
CREATE TABLE lines_{{0}} (
    id bigint PRIMARY KEY, execution bigint NOT NULL, seq bigint NOT NULL, lane integer NOT NULL,
    level smallint NOT NULL, source text NOT NULL, text text NOT NULL, fingerprint text NOT NULL,
    words text NOT NULL
);
CREATE INDEX lines_{{0}}_placed ON lines_{{0}} (execution, seq);
CREATE INDEX lines_{{0}}_loud ON lines_{{0}} (execution, seq) WHERE level >= 3;
CREATE INDEX lines_{{0}}_laned ON lines_{{0}} (lane, level, id);
CREATE INDEX lines_{{0}}_alike ON lines_{{0}} (fingerprint, id) INCLUDE (execution)
    WHERE fingerprint <> '';
CREATE INDEX lines_{{0}}_words ON lines_{{0}} USING gin (({WORDS.replace("l.", "")}))
    WITH (gin_pending_list_limit = 8192);
"""


def of_day(day: int) -> str:
    """Return the statements that create the tables of a day."""
    return _OF_DAY.format(table(day))
