"""Spark, and DuckDB's extension, read tables in place while compactions work, stop and die.

``CRAWLYARD_TEST_SPARK`` names the folder that ``tools/spark.sh`` has filled: ``make test-spark``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from tests.datasets.faults.writer_processes import REJECTED_EVERY, WriterProcesses
from tests.plugins.s3_server import Bucket
from tests.plugins.stores import lend_postgres_database, lend_rabbit_vhost
from tools.requirement_marks import ROOT

SPARK: Final = os.environ.get("CRAWLYARD_TEST_SPARK", "")
ITEMS: Final = 4_000

pytestmark = [
    pytest.mark.skipif(not SPARK, reason="make test-spark fetches Spark"),
    pytest.mark.slow("a session of Spark: a minute"),
    pytest.mark.covers("DS.4"),
    pytest.mark.timeout(600),
]

_SESSION: Final = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for line in sys.stdin:
    try:
        answer = [list(row) for row in spark.sql(json.loads(line)).collect()]
    except Exception as error:
        answer = {"error": str(error)}
    print("answer " + json.dumps(answer), flush=True)
"""
_DUCKDB: Final = """
import json, sys
from pathlib import Path
import duckdb, duckdb_extension_avro, duckdb_extension_iceberg
database = duckdb.connect()
database.execute("SET autoinstall_known_extensions = false")
database.execute("SET autoload_known_extensions = false")
for module in (duckdb_extension_avro, duckdb_extension_iceberg):
    (path,) = Path(module.__file__).parent.rglob("*.duckdb_extension")
    database.execute(f"LOAD '{path}'")
sql, location = sys.argv[1:]
print(json.dumps(database.sql(sql.format(table=f"iceberg_scan('{location}')")).fetchall()))
"""
# Of rows as they must be, whatever is under way.
_COUNTS: Final = (
    "SELECT count(*), count(DISTINCT _seq), sum(n), count_if(price >= 100) FROM {table}"
)
_OF_RUN: Final = "SELECT count(*) FROM crawlyard.{table} WHERE _run = {run}"


class Spark:
    """A session of Spark in a process of its own, set up as docs/data.md says."""

    def __init__(self, settings: dict[str, str], log: Path) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [f"{SPARK}/bin/python", "-I", "-c", _SESSION, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(log.parent),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            text=True,
        )

    def __call__(self, statement: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        raise AssertionError(Path(self._log.name).read_text(errors="replace")[-3000:])

    def close(self) -> None:
        # Ends its input, and with it the session.
        self._process.communicate(timeout=60)
        self._log.close()


class Place:
    """Writers, and the ways of other programs to their tables."""

    def __init__(
        self, writers: WriterProcesses, database: str, jdbc: str, bucket: Bucket | None
    ) -> None:
        self.writers = writers
        self.is_bucket = bucket is not None
        access: dict[str, str] = {}
        settings = {
            "uri": jdbc,
            "jdbc.schema-version": "V1",
            "warehouse": "file:///nowhere",
            # Its tables change all the time.
            "cache-enabled": "false",
        }
        if bucket is not None:
            access = {
                "s3.endpoint": bucket.endpoint,
                "s3.access-key-id": bucket.access_key,
                "s3.secret-access-key": bucket.secret_key,
                "s3.region": "us-east-1",
            }
            settings |= {name: value for name, value in access.items() if name != "s3.region"}
        self.catalog = load_catalog(
            "crawlyard", type="sql", uri=database, init_catalog_tables="false", **access
        )
        prefix = "spark.sql.catalog.crawlyard."
        known = documented_settings()
        if bucket is None:
            known = {
                name: value
                for name, value in known.items()
                if not name.startswith((f"{prefix}io", f"{prefix}s3", f"{prefix}client"))
            }
        self.settings = {
            **{name: value for name, value in known.items() if name != "spark.jars.packages"},
            **{f"{prefix}{name}": value for name, value in settings.items()},
            "spark.jars": ",".join(map(str, sorted(Path(SPARK, "jars").glob("*.jar")))),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
        }

    def counted(self, table: str) -> list[Any]:
        """Return what ``_COUNTS`` returns, by pyiceberg."""
        try:
            rows = self.catalog.load_table(table).scan().to_arrow()
        except NoSuchTableError:
            return []
        if not len(rows):
            return [0, 0, None, 0]
        seqs = rows["_seq"].to_pylist()
        prices = rows["price"].to_pylist()
        return [
            len(seqs),
            len(set(seqs)),
            sum(rows["n"].to_pylist()),
            sum(price >= 100 for price in prices),
        ]


def documented_settings() -> dict[str, str]:
    """Return the settings of Spark in docs/data.md."""
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    block = re.search(r"```properties\n(.*?)```", page, re.DOTALL)
    assert block is not None
    pairs = (line.split(maxsplit=1) for line in block[1].splitlines())
    return {name: value.strip() for name, value in pairs}


@pytest.fixture(params=["embedded", pytest.param("services", marks=pytest.mark.services)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Embedded stores, or PostgreSQL, RabbitMQ and S3."""
    bucket: Bucket | None = None
    with ExitStack() as stack:
        if request.param == "services":
            bucket = request.getfixturevalue("s3_bucket")
            database = stack.enter_context(lend_postgres_database())
            environment = {
                "DATABASE_URL": database,
                "BROKER_URL": stack.enter_context(lend_rabbit_vhost()),
                "OBJECTS_URL": bucket.url,
                "OBJECTS_ACCESS_KEY": bucket.access_key,
                "OBJECTS_SECRET_KEY": bucket.secret_key,
            }
            parts = urlsplit(database)
            jdbc = (
                f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}?user={parts.username}"
            )
            database = database.replace("postgresql://", "postgresql+psycopg://")
        else:
            environment = {"BROKER_URL": f"sqlite:///{tmp_path / 'broker.sqlite3'}"}
            file = tmp_path / "writers" / "data" / "crawlyard.sqlite3"
            jdbc, database = f"jdbc:sqlite:{file}", f"sqlite:///{file}"
        writers = stack.enter_context(
            closing(WriterProcesses(tmp_path / "writers", ITEMS, **environment))
        )
        place = Place(writers, database, jdbc, bucket)
        with closing(place.catalog):
            yield place


def by_duckdb(place: Place, table: str) -> list[Any]:
    """Return what ``_COUNTS`` returns, by DuckDB's extension for Iceberg."""
    location = place.catalog.load_table(table).metadata_location.removeprefix("file://")
    done = subprocess.run(
        [f"{SPARK}/bin/python", "-I", "-c", _DUCKDB, _COUNTS, location],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    return list(found)


def expected(writers: WriterProcesses, last: int) -> list[Any]:
    """Return what ``_COUNTS`` returns of a table with the items up to a number."""
    kept = [n for n in range(1, last + 1) if n % REJECTED_EVERY]
    return [len(kept), len(kept), sum(kept), sum(n / 4 >= 100 for n in kept)]


def test_spark_counts_the_same_whatever_a_compaction_does(place: Place, tmp_path: Path) -> None:
    writers = place.writers
    half, whole = expected(writers, writers.each // 2), expected(writers, writers.each)
    writers.send(1, writers.each // 2)
    writers.start("first")
    writers.until(lambda: writers.left() == 0 and writers.are_compacted())
    writers.stop("first")
    tables = {run: found["table"] for run, found in writers.read().items()}
    with closing(Spark(place.settings, tmp_path / "spark.log")) as spark:

        def counts() -> dict[str, Any]:
            found = {}
            for table in tables.values():
                (found[table],) = spark(_COUNTS.format(table=f"crawlyard.{table}"))
                assert found[table] == place.counted(table)
            return found

        assert counts() == dict.fromkeys(tables.values(), half)
        for run, table in tables.items():
            assert spark(_OF_RUN.format(table=table, run=run)) == [[half[0]]]
            assert spark(_OF_RUN.format(table=table, run=0)) == [[0]]
        writers.send(writers.each // 2 + 1)
        # While one goes on, and after it was killed.
        writers.start("frozen", "datasets.compaction_written=stop:300@1")
        writers.daemons.until_frozen("frozen")
        assert counts() == dict.fromkeys(tables.values(), half)
        writers.daemons.stop("frozen", 9)
        assert counts() == dict.fromkeys(tables.values(), half)
        # Killed between its commit and its entry in the manifest.
        writers.until_killed("datasets.compaction_committed=kill@1")
        assert sorted(map(tuple, counts().values())) != [tuple(half)] * len(tables)
        writers.start("last")
        looks = 0
        while not (writers.left() == 0 and writers.are_compacted()):
            for table in tables.values():
                ((rows, distinct, *_sums),) = spark(_COUNTS.format(table=f"crawlyard.{table}"))
                assert half[0] <= rows == distinct <= whole[0]
                looks += 1
        assert looks
        writers.until_settled()
        assert counts() == dict.fromkeys(tables.values(), whole)
        writers.check_accounts()
    if not place.is_bucket:
        # In a bucket it needs one more extension.
        assert {table: by_duckdb(place, table) for table in tables.values()} == dict.fromkeys(
            tables.values(), whole
        )
