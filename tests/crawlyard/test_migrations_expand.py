"""No migration hurts the processes of the version before, unless it says so."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from crawlyard.upgrades.classification import MigrationVerdict, classify
from tools.released_migrations import present, released

CREATED = migrations.CreateModel(
    "thing",
    [
        ("id", models.BigAutoField(primary_key=True)),
        ("name", models.CharField(max_length=50)),
        ("maybe", models.IntegerField(null=True)),
        ("size", models.IntegerField(db_default=0)),
    ],
    options={"constraints": [models.UniqueConstraint(fields=["name"], name="once")]},
)
CHECK = models.CheckConstraint(condition=models.Q(maybe__gt=0), name="positive")

EXPANDS: dict[str, Operation] = {
    "a new table": migrations.CreateModel("other", [("id", models.AutoField(primary_key=True))]),
    "a column that may be empty": migrations.AddField(
        "thing", "colour", models.TextField(null=True)
    ),
    "a column with a default in the database": migrations.AddField(
        "thing", "count", models.IntegerField(db_default=0)
    ),
    "a relation of its own": migrations.AddField(
        "thing", "things", models.ManyToManyField("app.thing")
    ),
    "a longer text": migrations.AlterField("thing", "name", models.CharField(max_length=80)),
    "other words": migrations.AlterField(
        "thing", "name", models.CharField("called", max_length=50, help_text="x")
    ),
    "an index": migrations.AddIndex("thing", models.Index(fields=["name"], name="by_name")),
}
CONTRACTS: dict[str, tuple[Operation, str]] = {
    "removed column": (migrations.RemoveField("thing", "name"), "app.thing"),
    "removed table": (migrations.DeleteModel("thing"), "app.thing"),
    "renamed column": (migrations.RenameField("thing", "name", "title"), "app.thing"),
    "renamed table": (migrations.RenameModel("thing", "object"), "app."),
    "column with Django's default alone": (
        migrations.AddField("thing", "count", models.IntegerField(default=0)),
        "app.thing.count: added, NOT NULL, no db_default",
    ),
    "no longer empty": (
        migrations.AlterField("thing", "maybe", models.IntegerField()),
        "app.thing.maybe: becomes NOT NULL",
    ),
    "default gone": (
        migrations.AlterField("thing", "size", models.IntegerField(default=0)),
        "app.thing.size: loses its db_default",
    ),
    "shorter": (
        migrations.AlterField("thing", "name", models.CharField(max_length=10)),
        "becomes shorter, 10",
    ),
    "unique": (
        migrations.AlterField("thing", "name", models.CharField(max_length=50, unique=True)),
        "becomes unique",
    ),
    "another type": (
        migrations.AlterField("thing", "maybe", models.DateField(null=True)),
        "changes its type to DateField",
    ),
    "constraint": (migrations.AddConstraint("thing", CHECK), "positive"),
    "constraint that an upsert names": (migrations.RemoveConstraint("thing", "once"), "once"),
    "code": (migrations.RunPython(lambda apps, editor: None), "cannot be judged"),
    "SQL": (migrations.RunSQL("DROP TABLE app_thing"), "cannot be judged"),
    "inside another": (
        migrations.SeparateDatabaseAndState([migrations.RemoveField("thing", "name")]),
        "app.thing",
    ),
}


def verdict(operation: Operation, **attributes: Any) -> MigrationVerdict:
    """Of a migration with this operation, where the table is in use already."""
    state = ProjectState()
    CREATED.state_forwards("app", state)
    kind = type("Migration", (migrations.Migration,), {"operations": [operation], **attributes})
    migration = kind("0002_test", "app")
    (found,) = classify([(migration, False)], state)
    return found


@pytest.mark.parametrize("what", EXPANDS)
def test_what_only_adds_expands(what: str) -> None:
    assert not verdict(EXPANDS[what]).contracts


@pytest.mark.parametrize("what", CONTRACTS)
def test_what_takes_away_contracts_and_is_named(what: str) -> None:
    operation, told = CONTRACTS[what]
    found = verdict(operation)
    assert found.contracts
    assert told in found.problems[0]
    marked = verdict(operation, contract="nothing has read it since 0.3")
    assert marked.contracts
    assert marked.marked == "nothing has read it since 0.3"


def test_code_may_say_that_it_hurts_nobody_but_a_removal_may_not() -> None:
    assert not verdict(CONTRACTS["code"][0], expand="fills a new column").contracts
    assert verdict(CONTRACTS["removed column"][0], expand="it is fine").contracts
    assert not verdict(CONTRACTS["removed column"][0], expand="it is fine").marked


def test_a_table_of_the_same_upgrade_may_be_changed_at_will() -> None:
    first = migrations.Migration("0001_initial", "app")
    first.operations = [CREATED]
    second = migrations.Migration("0002_other", "app")
    second.operations = [migrations.RemoveField("thing", "maybe")]
    assert not any(
        each.contracts for each in classify([(first, False), (second, False)], ProjectState())
    )


def test_what_only_the_models_say_is_known_to_what_follows() -> None:
    """As where a table that another migration made is taken over."""
    taken = migrations.SeparateDatabaseAndState(state_operations=[CREATED])
    first, second = migrations.Migration("0001_initial", "app"), migrations.Migration("2", "app")
    first.operations = [taken]
    second.operations = [migrations.AlterField("thing", "maybe", models.IntegerField())]
    found = classify([(first, False), (second, False)], ProjectState())
    assert [each.problems for each in found] == [(), ("app.thing.maybe: becomes NOT NULL",)]


def test_no_migration_since_the_last_release_hurts_it() -> None:
    loader = MigrationLoader(None)
    known = released()
    ours = {app for app, _name in known}
    before, after = [], []
    for leaf in loader.graph.leaf_nodes():
        for key in loader.graph.forwards_plan(leaf):
            kept = before if key in known or key[0] not in ours else after
            if key not in kept:
                kept.append(key)
    state = loader.project_state([key for key in before if key in loader.graph.nodes])
    unmarked = [
        each
        for each in classify([(loader.graph.nodes[key], False) for key in after], state)
        if each.contracts and not each.marked
    ]
    assert unmarked == [], "see docs/upgrade.md, Migrations only add"


def test_what_was_released_is_still_there() -> None:
    missing = {f"{app}.{name}" for app, name in released()} - set(present())
    assert missing == set(), "an installation that has them could not be upgraded"
