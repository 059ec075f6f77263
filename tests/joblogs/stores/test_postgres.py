"""What is PostgreSQL's own: processes at once, days that go, a server that goes away."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import psycopg
import pytest

from apps.joblogs.stores.base import BEGINNING, LogStoreUnavailable, Search
from apps.joblogs.stores.postgres import PostgresLogStore
from apps.joblogs.stores.postgres import search as finding
from apps.joblogs.stores.postgres.schema import SCHEMA
from tests.joblogs.stores.lines import DAY, LONG_AGO, SECOND, batch, found, line, seqs

pytestmark = pytest.mark.services


@pytest.fixture
def stores(logs_database: str) -> Iterator[list[PostgresLogStore]]:
    """Three, as of three processes, that find nothing made yet."""
    with psycopg.connect(logs_database, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    made = [PostgresLogStore(logs_database) for _ in range(3)]
    yield made
    for one in made:
        one.close()


def test_several_make_the_tables_and_a_day_at_once(stores: list[PostgresLogStore]) -> None:
    new: list[int] = []

    def work(store: PostgresLogStore) -> None:
        store.setup()
        for begin in range(1, 100, 10):
            lines = [line(n, at=LONG_AGO + n * DAY / 20) for n in range(begin, begin + 10)]
            new.append(store.write([batch(lines), batch(lines, boot="b2")], now=LONG_AGO))

    threads = [threading.Thread(target=work, args=(one,)) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(new) == 200
    assert len(stores[0].page("run:7", after=BEGINNING, limit=999)) == 200


@pytest.mark.slow("1 s")
def test_who_writes_into_a_day_that_is_being_dropped_makes_it_anew(
    stores: list[PostgresLogStore],
) -> None:
    first, second, _third = stores
    first.setup()
    first.write([batch([line(1)])], now=LONG_AGO)
    writing = threading.Event()

    def write() -> None:
        for n in range(2, 60):
            second.write([batch([line(n, at=LONG_AGO)])], now=LONG_AGO)
        writing.set()

    thread = threading.Thread(target=write)
    thread.start()
    total = 0
    while not writing.is_set():
        total += first.delete(project=1, job=5, before=LONG_AGO + DAY, limit=1)
        first.prune(now=LONG_AGO)
    thread.join()
    total += first.delete(project=1, job=5, before=LONG_AGO + DAY, limit=100)
    assert total == 59
    state = first.stream_state("run:7")
    assert state is not None
    assert (state.lines, state.forgotten) == (0, 59)


def test_a_word_is_found_however_many_lines_have_it(
    stores: list[PostgresLogStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "_FEW", 5)
    monkeypatch.setattr(finding, "_WINDOW", 10)
    monkeypatch.setattr(finding, "_WINDOW_EACH", 0)
    store = stores[0]
    store.setup()
    lines = [
        line(n, "morning rare" if n == 3 else "morning" if n < 60 else "evening")
        for n in range(1, 101)
    ]
    store.write([batch(lines), batch([line(1, "rare")], stream="run:8", job=6)], now=LONG_AGO)
    assert found(store, "morning") == list(range(59, 0, -1))
    assert found(store, "morning", job=5, stream="run:7") == list(range(59, 0, -1))
    assert found(store, "rare", job=5) == [3]
    newest = store.search(Search(projects=None, text="morning"), limit=7)
    assert seqs(newest.lines) == [59, 58, 57, 56, 55, 54, 53]
    more = store.search(Search(projects=None, text="morning"), cursor=newest.next, limit=3)
    assert seqs(more.lines) == [52, 51, 50]
    until = LONG_AGO + 10 * SECOND
    assert found(store, "morning", until=until) == list(range(9, 0, -1))


@pytest.mark.slow("15 s")
def test_housekeeping_readies_what_was_written_for_searches(
    stores: list[PostgresLogStore], logs_database: str
) -> None:
    store, dice = stores[0], random.Random(7)
    store.setup()
    # Each day holds more than 8 MB.
    for day in range(2):
        lines = [
            line(n, " ".join(f"{dice.getrandbits(32):08x}" for _ in range(100)), at=at)
            for n, at in enumerate((LONG_AGO + day * DAY + n * SECOND for n in range(6000)), 1)
        ]
        store.write([batch(lines, boot=f"b{day}")], now=LONG_AGO)
    store.prune(now=LONG_AGO)
    with psycopg.connect(logs_database, autocommit=True) as connection:
        for name in ("lines_20261120", "lines_20261121"):
            known = "SELECT reltuples FROM pg_class WHERE oid = %s::regclass"
            assert connection.execute(known, (f"{SCHEMA}.{name}",)).fetchone() == (6000,)
            # Nothing is left for it to do.
            waiting = "SELECT gin_clean_pending_list(%s)"
            assert connection.execute(waiting, (f"{SCHEMA}.{name}_words",)).fetchone() == (0,)
    assert found(store, lines[4000].text.split()[50]) == [4001]


def test_a_server_that_is_away_is_said_to_be_without_its_password() -> None:
    store = PostgresLogStore("postgresql://u:canary@127.0.0.1:9/x", wait_seconds=0.5)
    with pytest.raises(LogStoreUnavailable) as told:
        store.setup()
    assert "canary" not in str(told.value)
    store.close()


def test_connections_that_were_cut_are_made_anew(
    stores: list[PostgresLogStore], logs_database: str
) -> None:
    store = stores[0]
    store.setup()
    store.write([batch([line(1)])], now=LONG_AGO)
    with psycopg.connect(logs_database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'crawlyard logs' AND datname = current_database()"
        )
    assert store.write([batch([line(2)])], now=LONG_AGO) == 1
