"""What is PostgreSQL's own: processes at once, plans, a server that goes away."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from apps.requeststore.engine.errors import BadSetting, RequestStoreUnavailable
from apps.requeststore.stores.base import Finish, GiveBack, QueueEntry
from apps.requeststore.stores.postgres import PostgresNode, statements
from apps.requeststore.stores.postgres.table import text_of
from tests.requeststore.stores.calls import (
    CUTOFF,
    DEADLINE,
    NOW,
    PREFIX,
    SHARD,
    codes,
    finish,
    flags,
    new,
    one,
    store,
    take,
)
from tests.requeststore.stores.conftest import Opened

pytestmark = pytest.mark.services

TABLE = f"{SHARD.database}.{SHARD.collection}"


@contextmanager
def administrator(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def at_once(number: int, work: Callable[[int], object]) -> list[Any]:
    """``work`` in so many threads, begun together; the first error is raised."""
    barrier = threading.Barrier(number)

    def one_of_them(place: int) -> object:
        barrier.wait()
        return work(place)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(one_of_them, range(number)))


def test_who_stores_the_same_at_once_stores_each_once(open_postgres: Opened) -> None:
    nodes = [open_postgres() for _ in range(4)]
    new_ones: Counter[int] = Counter()
    lock = threading.Lock()

    def work(number: int) -> None:
        ids = list(range(600))[:: -1 if number % 2 else 1]
        for start in range(0, 600, 100):
            some = ids[start : start + 100]
            answers = store(nodes[number], *some)
            with lock:
                new_ones.update(id_ for id_, is_new in zip(some, answers, strict=True) if is_new)

    at_once(4, work)
    assert new_ones == Counter(range(600))


@pytest.mark.covers("S4.20")
def test_nobody_shares_a_request_and_nobody_waits_for_ever(open_postgres: Opened) -> None:
    """Everybody changes the same rows in an order of his own, while a sweep goes over them."""
    nodes = [open_postgres() for _ in range(5)]
    store(nodes[0], *range(800))
    finished: Counter[int] = Counter()
    lock = threading.Lock()

    def fetch(number: int) -> None:
        owner = f"w{number}"
        ids = list(range(800))[number * 150 :] + list(range(number * 150))
        for turn in range(12):
            some = ids[turn::12][:: -1 if number % 2 else 1]
            takes = take(nodes[number], *some, owner=owner, now=NOW, deadline=DEADLINE)
            mine = [each.request for each in takes if each.request]
            back = [GiveBack(each.id, each.tries) for each in mine[::5]]
            nodes[number].give_back(SHARD, back, owner=owner, now=NOW)
            ends = [Finish(each.id, each.tries, 1) for each in mine if each not in mine[::5]]
            said = nodes[number].finish(SHARD, ends, owner=owner, now=NOW)
            assert set(said) <= {"done"}
            with lock:
                finished.update(end.id for end in ends)
            nodes[number].queued(SHARD, some, by=owner, now=NOW + turn)

    def sweep(_number: int) -> None:
        for _ in range(10):
            nodes[4].overdue(SHARD, now=NOW, cutoff=CUTOFF, limit=100, by="sweep")
            nodes[4].expire(SHARD, cutoff=CUTOFF, limit=100, by="sweep", now=NOW)
            nodes[4].orphans(SHARD, before=NOW + 999, cutoff=CUTOFF, limit=100)

    at_once(5, lambda number: sweep(number) if number == 4 else fetch(number))
    assert set(finished.values()) == {1}
    assert flags(nodes[0]).get(1) == len(finished) > 300
    assert flags(nodes[0]).get(-1) is None


def test_a_finish_and_the_sweep_at_once_agree_on_the_end(open_postgres: Opened) -> None:
    nodes = [open_postgres(), open_postgres()]
    store(nodes[0], *range(400))
    take(nodes[0], *range(400))

    def work(number: int) -> int:
        if number:
            swept = nodes[1].overdue(SHARD, now=DEADLINE, cutoff=CUTOFF, limit=400, by="sweep")
            return len(swept)
        return sum(
            finish(nodes[0], *range(start, start + 20)).count("done") for start in range(0, 400, 20)
        )

    done, swept = at_once(2, work)
    swept += len(nodes[1].overdue(SHARD, now=DEADLINE, cutoff=CUTOFF, limit=400, by="sweep"))
    assert done + swept == 400
    assert {flag: number for flag, number in ((1, done), (0, swept)) if number} == flags(nodes[0])


def test_a_server_that_drops_its_connections_is_used_again(
    open_postgres: Opened, requests_database: str
) -> None:
    node = open_postgres()
    store(node, 1)
    with administrator(requests_database) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert store(node, 1, 2) == [False, True]


def test_a_server_that_is_away_is_said_so() -> None:
    url = "postgresql://postgres:secret@127.0.0.1:1/none?connect_timeout=1"
    node = PostgresNode(url, wait_seconds=0.3)
    for ask in (lambda: store(node, 1), node.health, lambda: node.find(SHARD, [1])):
        with pytest.raises(RequestStoreUnavailable, match="PostgreSQL: ") as caught:
            ask()
        assert "secret" not in str(caught.value)
    node.close()
    with pytest.raises(RequestStoreUnavailable):
        node.health()


def test_an_address_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(BadSetting) as caught:
        PostgresNode("postgresql://u:secret@h/n?nonsense=1")
    assert "secret" not in str(caught.value)


def test_a_database_that_is_read_only_is_said_so(
    open_postgres: Opened, requests_database: str
) -> None:
    node = open_postgres()
    store(node, 1)
    reading = PostgresNode(f"{requests_database}?options=-c%20default_transaction_read_only%3Don")
    with pytest.raises(RequestStoreUnavailable, match="read-only"):
        take(reading, 1)
    assert one(reading, 1).flag == 0
    reading.close()


@pytest.mark.slow("1 s")
def test_health_names_what_takes_long_without_its_values(
    open_postgres: Opened, requests_database: str
) -> None:
    node = open_postgres()
    named = f"{requests_database}?application_name=crawlyard%20requests"
    with psycopg.connect(named) as slow, ThreadPoolExecutor(1) as pool:
        # A value of a statement travels beside its text.
        asleep = pool.submit(slow.execute, "SELECT pg_sleep(%s)", [2.5])
        deadline = threading.Event()
        found: list[str] = []
        while not asleep.done() and not found:
            found = [each.text for each in node.health().slow]
            deadline.wait(0.1)
        asleep.result()
    assert found == ["SELECT pg_sleep($1)"]
    health = node.health()
    assert health.kind == "postgresql"
    assert (health.storage_bytes or 0) > 1_000_000
    assert (health.connections or 0) >= 1


def test_other_tables_are_no_shards(open_postgres: Opened, requests_database: str) -> None:
    node = open_postgres()
    store(node, 1)
    with administrator(requests_database) as connection:
        connection.execute(f"CREATE TABLE {SHARD.database}.other (id int)")
        assert node.shards(PREFIX) == [SHARD]
        node.drop(SHARD)
        connection.execute(f"DROP SCHEMA {SHARD.database} CASCADE")


# --- plans ----------------------------------------------------------------------------------

_KEY = f"{SHARD.collection}_pkey"
_FLAGS = f"{SHARD.collection}_flag_ts_id_idx"
_WAITING = f"{SHARD.collection}_queued_at_ts_idx"
_TAKEN = f"{SHARD.collection}_deadline_idx"
_IDS = list(range(0, 4000, 8))
_VALUES: dict[str, Any] = {
    "ids": _IDS,
    "times": [NOW + one for one in _IDS],
    "bizzes": ["news"] * len(_IDS),
    "tries": [1] * len(_IDS),
    "steps": ["[]"] * len(_IDS),
    "flags": [1] * len(_IDS),
    "results": [b""] * len(_IDS),
    "owner": "w1",
    "now": NOW,
    "deadline": DEADLINE,
    "cutoff": CUTOFF,
    "before": NOW + 2000,
    "limit": 100,
    "step": "[]",
    "biz": "news",
    "flag": 0,
    "since": 0,
    "until": NOW + 1_000_000,
    "after_ts": NOW + 1000,
    "after_id": 1000,
}
# By which indexes each finds its rows.
PLANS: dict[str, set[str]] = {
    "QUEUED": {_KEY},
    "TAKE": {_KEY},
    "FINISH": {_KEY},
    "GIVE_BACK": {_KEY},
    "REOPEN": {_KEY},
    "STATES": {_KEY},
    "SHORTEN": {_KEY},
    "START_MOVE": {_KEY},
    "UNDO_MOVE": {_KEY},
    "END_MOVE": {_KEY},
    "FIND": {_KEY},
    "OVERDUE": {_TAKEN, _KEY},
    "EXPIRE": {_FLAGS, _KEY},
    "DELETE": {_FLAGS, _KEY},
    "FLAGS": {_FLAGS},
    "PAGE": {_FLAGS},
    "PAGE_OF_FLAG": {_FLAGS},
    "ORPHANS": {_WAITING},
    "FORGOTTEN": {_WAITING},
    "COUNT": {_FLAGS},
    "OLDEST": {_FLAGS},
}


def _walk(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _walk(below)


def _plan(cursor: psycopg.Cursor[Any], name: str) -> list[dict[str, Any]]:
    text = b"EXPLAIN (FORMAT JSON) " + text_of(getattr(statements, name), SHARD)
    row = cursor.execute(text, _VALUES).fetchone()
    assert row is not None
    return list(_walk(row[0][0]["Plan"]))


def test_every_statement_is_looked_at() -> None:
    of_rows = {
        name
        for name, value in vars(statements).items()
        if name[0] != "_" and isinstance(value, str) and "{t}" in value
    }
    # The two that look for no rows, and the one that may look at all.
    assert of_rows - {"INSERT", "RECEIVE", "SIZE"} == set(PLANS)


@pytest.fixture
def filled(open_postgres: Opened) -> PostgresNode:
    """4,000 requests of every kind, of which the server knows nothing yet."""
    node = open_postgres()
    assert isinstance(node, PostgresNode)
    node.ensure(SHARD, delete_after_seconds=60)
    with node._pool._pool.open().connection() as connection:
        connection.execute(f"ALTER TABLE {TABLE} SET (autovacuum_enabled = off)")
    store(node, *range(4000))
    node.queued(SHARD, list(range(0, 4000, 2)), by="web", now=NOW)
    take(node, *range(0, 4000, 3))
    finish(node, *range(0, 4000, 9))
    return node


def _found_by(node: PostgresNode, name: str) -> tuple[set[str], set[str]]:
    """The indexes of a plan, and the kinds of looks at the table itself."""
    with node._pool._pool.open().connection() as connection, connection.cursor() as cursor:
        plan = _plan(cursor, name)
    kinds = {each["Node Type"] for each in plan if each.get("Relation Name") == SHARD.collection}
    return {each["Index Name"] for each in plan if "Index Name" in each}, kinds


@pytest.mark.parametrize("analyzed", [False, True], ids=["unknown", "analyzed"])
def test_statements_find_their_rows_by_the_right_index(
    filled: PostgresNode, analyzed: bool
) -> None:
    if analyzed:
        with filled._pool._pool.open().connection() as connection:
            connection.execute(f"ANALYZE {TABLE}")
    for name, wanted in PLANS.items():
        indexes, kinds = _found_by(filled, name)
        assert indexes == wanted, name
        assert kinds <= {"Index Scan", "Index Only Scan", "ModifyTable"}, (name, kinds)


@pytest.mark.slow("2 s")
def test_plans_are_right_where_every_way_is_open(
    filled: PostgresNode, requests_database: str
) -> None:
    """Without the settings of our connections: looking through a shard is never the cheapest."""
    more = [new(one) for one in range(4000, 24_000)]
    for start in range(0, len(more), 5000):
        filled.insert(SHARD, more[start : start + 5000], by="web", now=NOW)
    few = {
        name: value[:20] if isinstance(value, list) else value for name, value in _VALUES.items()
    }
    with administrator(requests_database) as connection, connection.cursor() as cursor:
        connection.execute(f"VACUUM ANALYZE {TABLE}")
        for name in PLANS:
            text = b"EXPLAIN (FORMAT JSON) " + text_of(getattr(statements, name), SHARD)
            row = cursor.execute(text, few).fetchone()
            assert row is not None
            kinds = {each["Node Type"] for each in _walk(row[0][0]["Plan"])}
            if name != "COUNT":
                # Of half of the rows; the server may as well read all.
                assert "Seq Scan" not in kinds, name


def test_codes_of_entries_of_others(open_postgres: Opened) -> None:
    node = open_postgres()
    store(node, 1)
    entries = [QueueEntry(1, "news' OR true --", NOW + 1), QueueEntry(1, '"; DROP', NOW + 1)]
    takes = node.take(SHARD, entries, owner="w", now=NOW, deadline=DEADLINE, cutoff=CUTOFF)
    assert codes(takes) == ["unknown", "unknown"]
