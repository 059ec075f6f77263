"""The tables of an empty database are created at once, as the migrations would."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.core.validators import validate_slug
from django.db import DatabaseError, connections, migrations, models
from django.db.migrations.state import ModelState, ProjectState
from django.db.models import QuerySet

from crawlyard.schema import Autodetector, create_schema
from tests.plugins.migrated_databases import SQLITE_NAME, migrate
from tests.plugins.stores import lend_empty_database

# How each constraint and index is written, and what a column takes.
POSTGRES = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL
SELECT tablename::text, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL
SELECT table_name::text, column_name::text, concat_ws(' ', udt_name, is_nullable,
    column_default, character_maximum_length, is_identity)
    FROM information_schema.columns WHERE table_schema = 'public'
    -- Django's own says bigint in migrations and integer in the model.
    AND (table_name, column_name) <> ('auth_group_permissions', 'id')
"""


def ordered(definition: str) -> str:
    """With lists of values sorted, which the models have as sets."""
    value = r"'[a-z_]+'[^(),\[\]]*"
    return re.sub(
        f"{value}(?:, {value})+", lambda found: ", ".join(sorted(found[0].split(", "))), definition
    )


def definitions(create_table: str) -> list[str]:
    """The columns and constraints of a CREATE TABLE, sorted: a remade table has another order."""
    body = create_table[create_table.index("(") + 1 : create_table.rindex(")")]
    depth, parts = 0, [""]
    for character in body:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return sorted(part.strip() for part in parts)


def sqlite_schema(path: Path) -> dict[str, Any]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return {
            name: definitions(ordered(statement)) if kind == "table" else ordered(statement)
            for name, kind, statement in rows
        }


def sqlite_rows(path: Path, table: str, columns: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        statement = f"SELECT {columns} FROM {table}"  # noqa: S608 - names from this file
        return sorted(database.execute(statement))


@pytest.mark.slow("20 s")
def test_sqlite_has_the_same_either_way(tmp_path: Path) -> None:
    at_once, one_by_one = tmp_path / "a", tmp_path / "b"
    migrate(at_once)
    # The option asks for the migrations themselves.
    migrate(one_by_one, "--fake-initial")
    ours, theirs = at_once / SQLITE_NAME, one_by_one / SQLITE_NAME
    assert sqlite_schema(ours) == sqlite_schema(theirs)
    assert len(sqlite_schema(ours)) > 200
    for table, columns in (
        ("django_migrations", "app, name"),
        ("django_content_type", "app_label, model"),
        ("projects_project", "slug, name, description"),
    ):
        assert sqlite_rows(ours, table, columns) == sqlite_rows(theirs, table, columns)
        assert sqlite_rows(ours, table, columns)


@pytest.mark.services
@pytest.mark.slow("20 s")
def test_postgresql_has_the_same_either_way(tmp_path: Path) -> None:
    schemas = []
    for arguments in ([], ["--fake-initial"]):
        with lend_empty_database() as url:
            migrate(tmp_path, *arguments, DATABASE_URL=url)
            with contextlib.closing(psycopg.connect(url)) as database:
                rows = database.execute(POSTGRES).fetchall()
                schemas.append(sorted((*names, ordered(text)) for *names, text in rows))
    assert schemas[0] == schemas[1]
    assert len(schemas[0]) > 1000


def test_what_fails_leaves_nothing(
    tmp_path: Path, django_db_blocker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**connections.databases["default"], "NAME": str(tmp_path / "new")}
    monkeypatch.setitem(connections.databases, "new", settings)

    def fail(*arguments: Any) -> None:
        raise DatabaseError("disk full")

    monkeypatch.setattr(QuerySet, "bulk_create", fail)
    with django_db_blocker.unblock(), contextlib.closing(connections["new"]) as connection:
        with pytest.raises(DatabaseError):
            create_schema(connection)
        assert connection.introspection.table_names() == []
    del connections["new"]


def model(**options: Any) -> ProjectState:
    """One model with one text column."""
    state = ProjectState()
    fields = [("id", models.BigAutoField(primary_key=True)), ("name", options.pop("name"))]
    state.add_model(ModelState("app", "Thing", fields, options))
    return state


@pytest.mark.parametrize(
    "field",
    [
        models.CharField("title", max_length=50),
        models.CharField(max_length=50, help_text="Shown above."),
        models.CharField(max_length=50, choices=[("a", "A")]),
        models.CharField(max_length=50, validators=[validate_slug]),
    ],
)
def test_a_text_needs_no_migration(field: models.Field[Any, Any]) -> None:
    before = model(name=models.CharField(max_length=50))
    after = model(name=field, verbose_name="thing", ordering=["name"])
    assert Autodetector(before, after)._detect_changes() == {}


def test_a_column_does() -> None:
    before = model(name=models.CharField("name", max_length=50))
    after = model(name=models.CharField("title", max_length=60))
    [migration] = Autodetector(before, after)._detect_changes()["app"]
    [operation] = migration.operations
    assert isinstance(operation, migrations.AlterField)


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    call_command("makemigrations", check_changes=True, dry_run=True, verbosity=0)
