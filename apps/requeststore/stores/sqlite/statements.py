"""SQL for SQLite. ``{t}`` is the table of a shard, ``{d}`` that of the data.

The data has its own table: a change of a flag rewrites its row, with megabytes of overflow pages.
``seen`` keeps rows as they were before a change, to be read after it.
"""

# ruff: noqa: S608 - statements consist of constants of this file

from __future__ import annotations

from typing import Final

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS {t} (id INTEGER PRIMARY KEY, biz TEXT NOT NULL,"
    " ts INTEGER NOT NULL, flag INTEGER NOT NULL, priority INTEGER NOT NULL, owner TEXT NOT NULL,"
    " deadline INTEGER NOT NULL, tries INTEGER NOT NULL, queued_at INTEGER NOT NULL,"
    " finished_at INTEGER NOT NULL, moved_flag INTEGER NOT NULL DEFAULT 0, result BLOB NOT NULL,"
    " steps TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS {d} (id INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    # For count, page, expire and delete; SQLite appends the row ID itself.
    "CREATE INDEX IF NOT EXISTS {flags} ON {t} (flag, ts)",
    "CREATE INDEX IF NOT EXISTS {waiting} ON {t} (queued_at, ts) WHERE flag = 0",
    "CREATE INDEX IF NOT EXISTS {taken} ON {t} (deadline) WHERE flag = -1",
)

_STATE: Final = (
    "t.biz, t.ts, t.flag, t.priority, t.owner, t.deadline, t.tries, t.queued_at, t.finished_at,"
    " t.result, t.steps"
)
# Columns in the order of ``seen``.
SEEN: Final = _STATE.replace("t.", "s.")

SEE: Final = (
    f"INSERT INTO temp.seen SELECT t.id, 0, {_STATE}"
    " FROM temp.given AS g CROSS JOIN {t} AS t ON t.id = g.id"
)

# --- storing --------------------------------------------------------------------------------

STAGE: Final = "INSERT INTO temp.given (n, id, biz, ts, priority, data) VALUES (?, ?, ?, ?, ?, ?)"
SEE_IDS: Final = (
    "INSERT INTO temp.seen (id) SELECT t.id FROM temp.given AS g CROSS JOIN {t} AS t ON t.id = g.id"
)
_UNSEEN: Final = " FROM temp.given AS g WHERE g.id NOT IN (SELECT id FROM temp.seen) ORDER BY g.id"
INSERT: Final = (
    "INSERT INTO {t} SELECT g.id, g.biz, g.ts, 0, g.priority, '', 0, 0, 0, 0, 0, x'', ?" + _UNSEEN
)
INSERT_DATA: Final = "INSERT INTO {d} SELECT g.id, g.data" + _UNSEEN
IS_NEW: Final = (
    "SELECT g.n, g.id NOT IN (SELECT id FROM temp.seen) FROM temp.given AS g ORDER BY g.n"
)
STAGE_WHOLE: Final = (
    "INSERT INTO temp.given (n, id, biz, ts, flag, priority, owner, deadline, tries, queued_at,"
    " finished_at, result, step, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
RECEIVE: Final = (
    "INSERT INTO {t} SELECT g.id, g.biz, g.ts, g.flag, g.priority, g.owner, g.deadline, g.tries,"
    " g.queued_at, g.finished_at, 0, g.result, g.step" + _UNSEEN
)

# --- changing -------------------------------------------------------------------------------

STAGE_ID: Final = "INSERT INTO temp.given (n, id) VALUES (?, ?)"
STAGE_ENTRY: Final = "INSERT INTO temp.given (n, id, biz, ts) VALUES (?, ?, ?, ?)"
STAGE_END: Final = (
    "INSERT INTO temp.given (n, id, tries, flag, result, step) VALUES (?, ?, ?, ?, ?, ?)"
)
QUEUED: Final = (
    "UPDATE {t} SET queued_at = :now, steps = steps || :step"
    " WHERE id IN (SELECT id FROM temp.given) AND queued_at < :now AND flag <> -3"
)
MARK_FREE: Final = (
    "UPDATE temp.seen SET mine = 1 FROM temp.given AS g"
    " WHERE g.id = seen.id AND g.biz = seen.biz AND g.ts = seen.ts AND seen.ts > :cutoff"
    " AND (seen.flag = 0 OR (seen.flag = -1 AND seen.deadline <= :now))"
)
TAKE: Final = (
    "UPDATE {t} SET flag = -1, owner = :owner, deadline = :deadline, tries = tries + 1,"
    " steps = steps || :step WHERE id IN (SELECT id FROM temp.seen WHERE mine)"
)
TAKEN: Final = (
    f"SELECT s.id, s.mine, {SEEN}, CASE WHEN s.mine THEN d.data END"
    " FROM temp.seen AS s LEFT JOIN {d} AS d ON d.id = s.id"
)
MARK_OWN: Final = (
    "UPDATE temp.seen SET mine = 1 FROM temp.given AS g"
    " WHERE g.id = seen.id AND seen.flag = -1 AND seen.owner = :owner AND seen.tries = g.tries"
)
_OWN: Final = (
    " FROM temp.given AS g WHERE t.id = g.id AND t.id IN (SELECT id FROM temp.seen WHERE mine)"
)
FINISH: Final = (
    "UPDATE {t} AS t SET flag = g.flag, deadline = 0, finished_at = :now, result = g.result,"
    " steps = t.steps || g.step" + _OWN
)
GIVE_BACK: Final = (
    "UPDATE {t} AS t SET flag = 0, deadline = 0, queued_at = 0, steps = t.steps || g.step" + _OWN
)
MARK_ENDED: Final = (
    "UPDATE temp.seen SET mine = 1"
    " WHERE ts > :cutoff AND flag IN (SELECT value FROM json_each(:flags))"
)
REOPEN: Final = (
    "UPDATE {t} SET flag = 0, owner = '', deadline = 0, tries = 0, queued_at = 0, finished_at = 0,"
    " result = x'', steps = steps || :step WHERE id IN (SELECT id FROM temp.seen WHERE mine)"
)
STATES: Final = (
    "SELECT s.id, s.mine, s.biz, s.ts, s.flag, s.owner, s.deadline, s.tries FROM temp.seen AS s"
)
LONG: Final = (
    "SELECT id, steps FROM {t} WHERE id IN (SELECT id FROM temp.given) AND length(steps) >= ?"
)
SHORTEN: Final = "UPDATE {t} SET steps = ? WHERE id = ?"

# --- sweeping -------------------------------------------------------------------------------

SEE_OVERDUE: Final = (
    f"INSERT INTO temp.seen SELECT t.id, 1, {_STATE} FROM {{t}} AS t INDEXED BY {{taken}}"
    " WHERE t.flag = -1 AND t.deadline <= :now AND t.ts > :cutoff ORDER BY t.deadline LIMIT :limit"
)
OVERDUE: Final = (
    "UPDATE {t} SET flag = 0, owner = '', deadline = 0, queued_at = 0,"
    " steps = steps || :step WHERE id IN (SELECT id FROM temp.seen)"
)
SEE_EXPIRED: Final = (
    "INSERT INTO temp.seen (id) SELECT id FROM {t} INDEXED BY {flags}"
    " WHERE flag = :flag AND ts <= :cutoff ORDER BY ts LIMIT :limit"
)
EXPIRE: Final = (
    "UPDATE {t} SET flag = -2, deadline = 0, finished_at = :now, steps = steps || :step"
    " WHERE id IN (SELECT id FROM temp.seen)"
)
SEE_OLD: Final = (
    "INSERT INTO temp.seen (id) SELECT id FROM {t} INDEXED BY {flags}"
    " WHERE flag = :flag AND ts < :before ORDER BY ts LIMIT :limit"
)
DELETE: Final = "DELETE FROM {t} WHERE id IN (SELECT id FROM temp.seen)"
DELETE_DATA: Final = "DELETE FROM {d} WHERE id IN (SELECT id FROM temp.seen)"

# --- moving ---------------------------------------------------------------------------------

SEE_MOVING: Final = (
    "INSERT INTO temp.seen (id) SELECT t.id FROM temp.given AS g CROSS JOIN {t} AS t"
    " ON t.id = g.id AND t.flag <> -1"
)
MOVE: Final = (
    "UPDATE {t} SET moved_flag = flag, flag = -3"
    " WHERE id IN (SELECT id FROM temp.seen) AND flag <> -3"
)
MOVED: Final = (
    f"SELECT t.id, 1, {_STATE.replace('t.flag', 't.moved_flag')}, d.data FROM temp.seen AS s"
    " CROSS JOIN {t} AS t ON t.id = s.id CROSS JOIN {d} AS d ON d.id = t.id ORDER BY t.id"
)
SEE_MOVED: Final = (
    "INSERT INTO temp.seen (id) SELECT t.id FROM temp.given AS g CROSS JOIN {t} AS t"
    " ON t.id = g.id AND t.flag = -3"
)
UNDO_MOVE: Final = (
    "UPDATE {t} SET flag = moved_flag WHERE id IN (SELECT id FROM temp.given) AND flag = -3"
)

# --- reading --------------------------------------------------------------------------------

FIND: Final = (
    f"SELECT t.id, 1, {_STATE}, d.data FROM {{t}} AS t JOIN {{d}} AS d ON d.id = t.id"
    " WHERE t.id = ?"
)
FLAGS: Final = "SELECT min(flag) FROM {t} INDEXED BY {flags} WHERE flag > ?"
PAGE: Final = (
    f"SELECT t.id, 1, {_STATE} FROM {{t}} AS t INDEXED BY {{flags}} WHERE t.flag = :flag"
    " AND t.ts >= :since AND t.ts < :until AND (t.ts, t.id) < (:after_ts, :after_id)"
    " AND t.biz = :biz ORDER BY t.ts DESC, t.id DESC LIMIT :limit"
)
ORPHANS: Final = (
    "SELECT id, biz, ts FROM {t} INDEXED BY {waiting} WHERE flag = 0 AND queued_at = 0"
    " AND ts > :cutoff AND ts <= :before ORDER BY ts LIMIT :limit"
)
FORGOTTEN: Final = (
    "SELECT id, biz, ts FROM {t} INDEXED BY {waiting} WHERE flag = 0 AND queued_at > 0"
    " AND queued_at <= :before AND ts > :cutoff ORDER BY queued_at LIMIT :limit"
)
COUNT: Final = (
    "SELECT count(*) FROM {t} INDEXED BY {flags}"
    " WHERE flag = :flag AND ts >= :since AND ts < :until"
)
OLDEST: Final = "SELECT min(ts) FROM {t} INDEXED BY {flags} WHERE flag = ?"
SIZE: Final = "SELECT count(*) FROM {t}"
SAMPLE: Final = "SELECT length(data) FROM {d} ORDER BY id DESC LIMIT 200"
SHARDS: Final = (
    "SELECT substr(name, 1, length(name) - 5) FROM sqlite_schema WHERE type = 'table'"
    " AND name LIKE '%$data' ORDER BY name"
)
DROP: Final = ("DROP TABLE IF EXISTS {t}", "DROP TABLE IF EXISTS {d}")
