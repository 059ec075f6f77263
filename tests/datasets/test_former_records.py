"""What the sinks of earlier versions have stored is still there, and goes on from there."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from apps.requeststore.engine.biz import Biz, DestinationKind, Records
from apps.requeststore.services.deliveries import ensure_delivery
from tests.datasets.deliveries import deliver, rows_in
from tests.projects.factories import make_project
from tests.requeststore.test_records_read import keep_records
from tests.requeststore.test_sinks import gathered

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.covers("DS.3")]

# As the sink for tables made it.
_TABLE = (
    'CREATE TABLE "{}" ("request_id" INTEGER, "position" INTEGER, "at" DATETIME, "url" TEXT, '
    '"rule" TEXT, "meta" JSON, "extra" JSON, "title" TEXT, PRIMARY KEY ("request_id", "position")) '
    "WITHOUT ROWID"
)
_ROW = (
    "INSERT INTO \"{}\" VALUES (7, 0, '2026-11-22 10:00:00', 'u', 'article', '{{}}', '{{}}', 'old')"
)


@pytest.mark.slow("5 s: migrates to and fro")
def test_tables_in_the_platform_s_database_survive_the_migration() -> None:
    call_command("migrate", "datasets", "zero", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute(_TABLE.format("records_p1_news"))
        cursor.execute(_ROW.format("records_p1_news"))
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute('SELECT request_id, title FROM "records_p1_news"')
        assert cursor.fetchall() == [(7, "old")]
        cursor.execute('DROP TABLE "records_p1_news"')


@pytest.mark.parametrize("to", [DestinationKind.TABLE, DestinationKind.JSON_LINES])
def test_new_records_stand_beside_the_old_ones(
    to: DestinationKind, settings: Any, tmp_path: Path
) -> None:
    settings.RECORDS_URL = f"sqlite:///{tmp_path}/records.sqlite3"
    settings.RECORDS_DIR = tmp_path / "records"
    project = make_project().pk
    table, folder = f"records_p{project}_news", settings.RECORDS_DIR / f"p{project}" / "news"
    with closing(sqlite3.connect(tmp_path / "records.sqlite3")) as file:
        file.execute(_TABLE.format(table))
        file.execute(_ROW.format(table))
        file.commit()
    folder.mkdir(parents=True)
    former = folder / "2026-11-22.host-1.jsonl"
    former.write_text('{"request_id":"7","position":0,"of":1,"title":"old"}\n')
    bound: Any = SimpleNamespace(
        project_id=project, name="news", settings=Biz(records=Records(to=to))
    )
    ensure_delivery(bound)
    keep_records(project, gathered(12, {"title": "new"}))
    deliver(now=datetime.now(UTC))
    titles = {row["title"] for row in rows_in(tmp_path / "records.sqlite3", table)}
    lines = [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    in_files = {line["title"] for line in lines}
    both = ({"old", "new"}, {"old"})
    assert (titles, in_files) == (both if to is DestinationKind.TABLE else both[::-1])
    assert former.read_text().count("\n") == 1
