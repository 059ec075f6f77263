"""The same on PostgreSQL, by pg_dump and psql."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from apps.runtime.checks import restore_mark
from apps.seeds.stores.postgres import PostgresStore
from crawlyard.backup import manifest, postgres
from crawlyard.backup.creation import make_backup
from crawlyard.backup.errors import BackupError, RestoreRefused
from crawlyard.backup.parts import BackupPart, PartKind
from crawlyard.backup.restore import restore
from tests.plugins.stores import lend_empty_database, lend_postgres_database
from tests.seeds.stores import calls as seeds

pytestmark = [pytest.mark.django_db, pytest.mark.services]

INSERTS = (
    "INSERT INTO runtime_processedmessage (consumer, message_id, at) VALUES ('t', %s, now())",
    "INSERT INTO runtime_outboxmessage (message_id, exchange, key, body, headers, priority,"
    " persistent, mandatory, created_at, attempts, error)"
    " VALUES (%s, '', 'q', '', '{}', 0, true, true, now(), 0, '')",
)
COUNTS = (
    "SELECT (SELECT count(*) FROM runtime_processedmessage WHERE consumer = 't'),"
    " (SELECT count(*) FROM runtime_outboxmessage)"
)


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, settings: Any) -> Path:
    settings.DATA_DIR = tmp_path
    return tmp_path


@pytest.fixture
def full() -> Iterator[str]:
    with lend_postgres_database() as url:
        yield url


@pytest.fixture
def empty() -> Iterator[str]:
    with lend_empty_database() as url:
        yield url


def parts(database: str, seed_store: str) -> list[BackupPart]:
    return [
        BackupPart("database", PartKind.POSTGRES, "DATABASE_URL", database),
        BackupPart("seeds", PartKind.POSTGRES, "SEEDS_URL", seed_store),
    ]


@contextmanager
def writing(database: str, seed_store: str) -> Iterator[None]:
    """Pairs of rows in one database, seeds in the other, until the block ends."""
    stop, begun, failures = threading.Event(), threading.Event(), []

    def work() -> None:
        store = PostgresStore(seed_store)
        try:
            with psycopg.connect(database, autocommit=True) as connection:
                for number in range(100_000):
                    if stop.is_set():
                        return
                    with connection.transaction():
                        for statement in INSERTS:
                            connection.execute(statement, [str(number)])
                    seeds.add(store, *(f"{number}-{part}" for part in range(20)))
                    seeds.finish(store, seeds.lease(store, 10))
                    if number == 3:
                        begun.set()
        except Exception as error:  # noqa: BLE001 - told by the test
            failures.append(error)
            begun.set()
        finally:
            store.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert begun.wait(60)
        yield
        assert not failures
    finally:
        stop.set()
        thread.join()


def said(_line: str) -> None:
    """To nobody."""


def numbers(database: str, seed_store: str) -> tuple[int, int, int]:
    with psycopg.connect(database) as connection:
        processed, outbox = connection.execute(COUNTS).fetchone() or (0, 0)
    store = PostgresStore(seed_store)
    try:
        books = seeds.books(store)
        assert store.pending(seeds.FRONTIER) == books.pending
    finally:
        store.close()
    return processed, outbox, books.added


def test_two_databases_at_work_come_back_whole(full: str, empty: str, tmp_path: Path) -> None:
    with lend_empty_database() as second, lend_empty_database() as third:
        with writing(full, second):
            make_backup(tmp_path / "one", parts(full, second), [], said)
        after = numbers(full, second)
        restore(tmp_path / "one", parts(empty, third), said)
        processed, outbox, added = numbers(empty, third)
        assert processed == outbox
        # Two snapshots are exported one after the other, a moment apart.
        assert abs(added // 20 - processed) <= 2
        assert 3 <= processed < after[0]


@pytest.mark.slow("2 s")
def test_what_is_there_is_replaced_on_request_only(full: str, tmp_path: Path) -> None:
    only = parts(full, full)[:1]
    make_backup(tmp_path / "one", only, [], said)
    with psycopg.connect(full, autocommit=True) as connection:
        connection.execute("CREATE TABLE later (x int)")
        connection.execute("DROP TABLE runtime_daemon CASCADE")
    with pytest.raises(RestoreRefused, match="--force"):
        restore(tmp_path / "one", only, said)
    restore(tmp_path / "one", only, said, force=True)
    with psycopg.connect(full) as connection:
        assert connection.execute("SELECT count(*) FROM runtime_daemon").fetchone() == (0,)
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM later")


@pytest.mark.slow("2 s")
def test_a_dump_that_cannot_be_read_changes_no_database(
    full: str, empty: str, tmp_path: Path
) -> None:
    with lend_postgres_database() as second:
        both = parts(full, second)
        make_backup(tmp_path / "one", both, [], said)
        with psycopg.connect(full, autocommit=True) as connection:
            connection.execute("CREATE TABLE later (x int)")
        broken = tmp_path / "one" / "seeds" / "dump"
        broken.write_bytes(broken.read_bytes()[:5000])
        known = manifest.read(tmp_path / "one")
        files = [
            manifest.described(tmp_path / "one", tmp_path / "one" / file.path, file.part)
            for file in known.files
        ]
        body, told = manifest.written(msgspec.structs.replace(known, files=files))
        (tmp_path / "one" / manifest.NAME).write_bytes(body)
        (tmp_path / "one" / manifest.SUM_NAME).write_bytes(told)
        with pytest.raises(BackupError, match="SEEDS_URL"):
            restore(tmp_path / "one", both, said, force=True)
        assert not postgres.is_empty(second, "SEEDS_URL")
        with psycopg.connect(full) as connection:
            connection.execute("SELECT * FROM later")


@pytest.mark.slow("30 s")
def test_a_server_that_fails_after_another_has_committed_is_no_restore(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = postgres.Loading.commit

    def failing(loading: postgres.Loading) -> None:
        if loading.setting == "SEEDS_URL":
            with psycopg.connect(second, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        commit(loading)

    with lend_postgres_database() as second:
        both = parts(full, second)
        make_backup(tmp_path / "one", both, [], said)
        with monkeypatch.context() as during:
            during.setattr(postgres.Loading, "commit", failing)
            with pytest.raises(BackupError, match="DATABASE_URL and files are restored, the rest"):
                restore(tmp_path / "one", both, said, force=True)
        assert restore_mark().exists()
        restore(tmp_path / "one", both, said, force=True)
        assert not restore_mark().exists()


@pytest.mark.slow("6 s")
def test_a_server_that_ends_what_waits_keeps_its_snapshot(full: str, tmp_path: Path) -> None:
    with lend_postgres_database() as second:
        name = conninfo_to_dict(second)["dbname"]
        with psycopg.connect(second, autocommit=True) as connection:
            connection.execute(
                f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '200ms'"
            )
        # As long as the copy of a large part before it.
        made = make_backup(tmp_path / "one", parts(full, second), [], lambda _line: time.sleep(0.5))
    assert [part.name for part in made.parts] == ["database", "seeds"]


@pytest.mark.slow("30 s")
@pytest.mark.timeout(120)
def test_a_dump_with_many_answers_does_not_stop_half_way(empty: str, tmp_path: Path) -> None:
    """Each sequence is set by a SELECT: answers to thousands fill a pipe that nobody reads."""
    count = 2_800
    with lend_empty_database() as source:
        only = parts(source, source)[1:]
        with psycopg.connect(source, autocommit=True) as connection:
            connection.execute(
                f"DO $$ BEGIN FOR n IN 1..{count} LOOP"
                " EXECUTE 'CREATE SEQUENCE s' || n; END LOOP; END $$"
            )
            connection.execute("CREATE TABLE one (x int)")
        make_backup(tmp_path / "one", only, [], said)
    restore(tmp_path / "one", parts(empty, empty)[1:], said)
    with psycopg.connect(empty) as connection:
        found = connection.execute("SELECT count(*) FROM pg_sequences").fetchone()
    assert found == (count,)


def test_without_the_programs_it_says_what_to_install(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        RestoreRefused, match=r"DATABASE_URL is PostgreSQL, and pg_dump .*postgresql-client"
    ):
        make_backup(tmp_path / "one", parts(full, full)[:1], [], said)
    assert not list(tmp_path.glob("*one*"))


def test_a_password_is_no_argument(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Any] = []

    def run(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        seen.append((arguments, options["env"]))
        return subprocess.CompletedProcess(arguments, 0, b"", b"")

    monkeypatch.setattr(subprocess, "run", run)
    postgres.dump("postgresql://u:canary@127.0.0.1:9/x", "s", tmp_path / "f", "DATABASE_URL")
    ((arguments, environment),) = seen
    assert "canary" not in " ".join(map(str, arguments))
    assert environment["PGPASSWORD"] == "canary"
