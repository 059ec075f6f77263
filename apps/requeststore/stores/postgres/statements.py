"""SQL for PostgreSQL. ``{t}`` is the table of a shard.

Arrays come as ``unnest`` sorted by ID: rows are found by primary key and locked in one order by
all callers. ``flag + 0`` prevents the planner from scanning all rows with the flag, which it
expects to be few while a new table has no statistics: 363 requests a second instead of 60,000.
"""

# ruff: noqa: S608 - statements consist of constants of this file

from __future__ import annotations

from typing import Final, LiteralString

from apps.requeststore.stores.story import LONG_STORY

# Comment that marks our tables, with the version of the schema.
MARK: Final = "crawlyard requests 1"

TABLE: Final[tuple[LiteralString, ...]] = (
    "CREATE TABLE {t} (id bigint PRIMARY KEY, ts bigint NOT NULL, deadline bigint NOT NULL"
    " DEFAULT 0, queued_at bigint NOT NULL DEFAULT 0, finished_at bigint NOT NULL DEFAULT 0,"
    " tries int NOT NULL DEFAULT 0, flag smallint NOT NULL DEFAULT 0, moved_flag smallint NOT NULL"
    " DEFAULT 0, priority smallint NOT NULL, biz text NOT NULL, owner text NOT NULL DEFAULT '',"
    " steps text NOT NULL, result bytea NOT NULL DEFAULT '', data bytea NOT NULL)"
    # Waiting and leased rows change often: vacuum early.
    " WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05,"
    " fillfactor = 50)",
    # Values from 2 kB are stored out of line: updates do not copy them; not compressed.
    "ALTER TABLE {t} ALTER COLUMN data SET STORAGE EXTERNAL",
    # For count, page, expire and delete.
    "CREATE INDEX ON {t} (flag, ts, id)",
    "CREATE INDEX ON {t} (queued_at, ts) WHERE flag = 0",
    "CREATE INDEX ON {t} (deadline) WHERE flag = -1",
)

_SHORT: Final[LiteralString] = (
    "t.id, t.biz, t.ts, t.flag, t.priority, t.owner, t.deadline, t.tries, t.queued_at,"
    " t.finished_at, t.result"
)
_WHOLE: Final[LiteralString] = _SHORT + ", t.steps, t.data"

# --- storing --------------------------------------------------------------------------------

INSERT: Final[LiteralString] = (
    "INSERT INTO {t} (id, biz, ts, priority, data, steps)"
    " SELECT e.*, %(step)s FROM unnest(%(ids)b::bigint[], %(bizzes)b::text[], %(times)b::bigint[],"
    " %(priorities)b::smallint[], %(datas)b::bytea[]) AS e"
    " ON CONFLICT (id) DO NOTHING RETURNING id"
)
RECEIVE: Final[LiteralString] = (
    "INSERT INTO {t} (id, biz, ts, flag, priority, owner, deadline, tries, queued_at, finished_at,"
    " result, steps, data) SELECT * FROM unnest(%b::bigint[], %b::text[], %b::bigint[],"
    " %b::smallint[], %b::smallint[], %b::text[], %b::bigint[], %b::int[], %b::bigint[],"
    " %b::bigint[], %b::bytea[], %b::text[], %b::bytea[]) AS e"
    " ON CONFLICT (id) DO NOTHING RETURNING id"
)

# --- changing -------------------------------------------------------------------------------

QUEUED: Final[LiteralString] = (
    "WITH done AS (UPDATE {t} AS t SET queued_at = %(now)s, steps = t.steps || %(step)s"
    " FROM unnest(%(ids)b::bigint[]) AS e(id)"
    " WHERE t.id = e.id AND t.queued_at < %(now)s AND t.flag <> -3 RETURNING t.id, t.steps)"
    f" SELECT id, steps FROM done WHERE octet_length(steps) >= {LONG_STORY}"
)
TAKE: Final[LiteralString] = (
    "UPDATE {t} AS t SET flag = -1, owner = %(owner)s, deadline = %(deadline)s,"
    " tries = t.tries + 1, steps = t.steps || %(step)s"
    " FROM unnest(%(ids)b::bigint[], %(times)b::bigint[], %(bizzes)b::text[]) AS e(id, ts, biz)"
    " WHERE t.id = e.id AND t.ts = e.ts AND t.biz = e.biz AND t.ts > %(cutoff)s"
    " AND (t.flag = 0 OR (t.flag = -1 AND t.deadline <= %(now)s))"
    " RETURNING " + _WHOLE
)
_HIS: Final[LiteralString] = (
    " WHERE t.id = e.id AND t.flag + 0 = -1 AND t.owner = %(owner)s AND t.tries = e.tries"
    " RETURNING t.id"
)
FINISH: Final[LiteralString] = (
    "UPDATE {t} AS t SET flag = e.flag, deadline = 0, finished_at = %(now)s, result = e.result,"
    " steps = t.steps || e.step FROM unnest(%(ids)b::bigint[], %(tries)b::int[],"
    " %(steps)b::text[], %(flags)b::smallint[], %(results)b::bytea[])"
    " AS e(id, tries, step, flag, result)" + _HIS
)
GIVE_BACK: Final[LiteralString] = (
    "UPDATE {t} AS t SET flag = 0, deadline = 0, queued_at = 0, steps = t.steps || e.step"
    " FROM unnest(%(ids)b::bigint[], %(tries)b::int[], %(steps)b::text[]) AS e(id, tries, step)"
    + _HIS
)
REOPEN: Final[LiteralString] = (
    "UPDATE {t} AS t SET flag = 0, owner = '', deadline = 0, tries = 0, queued_at = 0,"
    " finished_at = 0, result = '', steps = t.steps || %(step)s"
    " FROM unnest(%(ids)b::bigint[]) AS e(id) WHERE t.id = e.id AND t.ts > %(cutoff)s"
    " AND t.flag + 0 = ANY(%(flags)b::smallint[]) RETURNING t.id, t.steps"
)
STATES: Final[LiteralString] = (
    "SELECT id, biz, ts, flag, owner, deadline, tries FROM {t} WHERE id = ANY(%(ids)b::bigint[])"
)
SHORTEN: Final[LiteralString] = (
    "UPDATE {t} AS t SET steps = e.steps FROM unnest(%(ids)b::bigint[], %(steps)b::text[])"
    " AS e(id, steps) WHERE t.id = e.id"
)

# --- sweeping -------------------------------------------------------------------------------

OVERDUE: Final[LiteralString] = (
    "WITH due AS (SELECT id, owner FROM {t} WHERE flag = -1 AND deadline <= %(now)s"
    " AND ts > %(cutoff)s ORDER BY deadline LIMIT %(limit)s FOR UPDATE SKIP LOCKED)"
    " UPDATE {t} AS t SET flag = 0, owner = '', deadline = 0, queued_at = 0,"
    " steps = t.steps || %(step)s FROM due WHERE t.id = due.id"
    " RETURNING t.id, t.biz, t.ts, t.flag, t.priority, due.owner, t.deadline, t.tries,"
    " t.queued_at, t.finished_at, t.result"
)
EXPIRE: Final[LiteralString] = (
    "WITH old AS (SELECT id FROM {t} WHERE flag = %(flag)s AND ts <= %(cutoff)s"
    " ORDER BY ts, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)"
    " UPDATE {t} AS t SET flag = -2, deadline = 0, finished_at = %(now)s,"
    " steps = t.steps || %(step)s FROM old WHERE t.id = old.id"
)
DELETE: Final[LiteralString] = (
    "WITH old AS (SELECT id FROM {t} WHERE flag = %(flag)s AND ts < %(before)s"
    " ORDER BY ts, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)"
    " DELETE FROM {t} AS t USING old WHERE t.id = old.id"
)

# --- moving ---------------------------------------------------------------------------------

START_MOVE: Final[LiteralString] = (
    "WITH moved AS (UPDATE {t} AS t SET flag = -3,"
    " moved_flag = CASE t.flag WHEN -3 THEN t.moved_flag ELSE t.flag END"
    " FROM unnest(%(ids)b::bigint[]) AS e(id) WHERE t.id = e.id AND t.flag <> -1"
    " RETURNING t.id, t.biz, t.ts, t.moved_flag, t.priority, t.owner, t.deadline, t.tries,"
    " t.queued_at, t.finished_at, t.result, t.steps, t.data) SELECT * FROM moved ORDER BY id"
)
UNDO_MOVE: Final[LiteralString] = (
    "UPDATE {t} AS t SET flag = t.moved_flag FROM unnest(%(ids)b::bigint[]) AS e(id)"
    " WHERE t.id = e.id AND t.flag + 0 = -3"
)
END_MOVE: Final[LiteralString] = (
    "DELETE FROM {t} AS t USING unnest(%(ids)b::bigint[]) AS e(id)"
    " WHERE t.id = e.id AND t.flag + 0 = -3"
)

# --- reading --------------------------------------------------------------------------------

FIND: Final[LiteralString] = (
    "SELECT " + _WHOLE + " FROM {t} AS t WHERE t.id = ANY(%(ids)b::bigint[])"
)
# The existing flags, each by one index seek.
_FLAGS: Final[LiteralString] = (
    "WITH RECURSIVE f(flag) AS ((SELECT flag FROM {t} ORDER BY flag LIMIT 1) UNION ALL"
    " SELECT (SELECT t.flag FROM {t} AS t WHERE t.flag > f.flag ORDER BY t.flag LIMIT 1)"
    " FROM f WHERE f.flag IS NOT NULL) "
)
FLAGS: Final[LiteralString] = _FLAGS + "SELECT flag FROM f WHERE flag IS NOT NULL"
_OF_FLAG: Final[LiteralString] = (
    "SELECT " + _SHORT + " FROM {t} AS t WHERE t.flag = f.flag AND t.ts >= %(since)s"
    " AND t.ts < %(until)s AND (t.ts, t.id) < (%(after_ts)s, %(after_id)s) AND t.biz = %(biz)s"
    " ORDER BY t.ts DESC, t.id DESC LIMIT %(limit)s"
)
PAGE: Final[LiteralString] = (
    _FLAGS + "SELECT t.* FROM f CROSS JOIN LATERAL (" + _OF_FLAG + ") AS t"
    " ORDER BY t.ts DESC, t.id DESC LIMIT %(limit)s"
)
PAGE_OF_FLAG: Final[LiteralString] = _OF_FLAG.replace("f.flag", "%(flag)s")
ORPHANS: Final[LiteralString] = (
    "SELECT id, biz, ts FROM {t} WHERE flag = 0 AND queued_at = 0 AND ts > %(cutoff)s"
    " AND ts <= %(before)s ORDER BY ts LIMIT %(limit)s"
)
FORGOTTEN: Final[LiteralString] = (
    "SELECT id, biz, ts FROM {t} WHERE flag = 0 AND queued_at > 0 AND queued_at <= %(before)s"
    " AND ts > %(cutoff)s ORDER BY queued_at LIMIT %(limit)s"
)
COUNT: Final[LiteralString] = (
    _FLAGS + "SELECT f.flag, c.number FROM f CROSS JOIN LATERAL (SELECT count(*) AS number"
    " FROM {t} AS t WHERE t.flag = f.flag AND t.ts >= %(since)s AND t.ts < %(until)s) AS c"
    " WHERE c.number > 0"
)
OLDEST: Final[LiteralString] = "SELECT ts FROM {t} WHERE flag = %(flag)s ORDER BY ts LIMIT 1"
SIZE: Final[LiteralString] = "SELECT count(*), pg_total_relation_size({name}::regclass) FROM {t}"

# --- the node -------------------------------------------------------------------------------

IS_THERE: Final[LiteralString] = (
    "SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %s AND c.relname = %s)"
)
SHARDS: Final[LiteralString] = (
    "SELECT n.nspname, c.relname FROM pg_namespace AS n JOIN pg_class AS c"
    " ON c.relnamespace = n.oid AND c.relkind = 'r'"
    " WHERE starts_with(n.nspname, %(prefix)s) AND obj_description(c.oid, 'pg_class') = %(mark)s"
    " ORDER BY n.nspname, c.relname"
)
HEALTH: Final[LiteralString] = (
    "SELECT current_setting('server_version'), pg_database_size(current_database()),"
    " (SELECT numbackends FROM pg_stat_database WHERE datname = current_database())"
)
MEMBERS: Final[LiteralString] = (
    "SELECT coalesce(nullif(application_name, ''), client_addr::text, 'standby'),"
    " coalesce(state, '') FROM pg_stat_replication ORDER BY 1"
)
# The text contains no values: they are sent as parameters.
SLOW: Final[LiteralString] = (
    "SELECT extract(epoch FROM clock_timestamp() - query_start)::float8, left(query, 200)"
    " FROM pg_stat_activity WHERE datname = current_database() AND application_name = %(name)s"
    " AND state = 'active' AND pid <> pg_backend_pid()"
    " AND query_start < clock_timestamp() - interval '1 second' ORDER BY 1 DESC LIMIT 10"
)
