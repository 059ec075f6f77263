"""What stands in the way of an upgrade is said before it is begun."""

from __future__ import annotations

import io
import json
import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from apps.projects.models import Project
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage
from apps.runtime.services import close_shared_broker, depths, shared_broker
from apps.runtime.states import DaemonState
from crawlyard.settings.names import KNOWN
from crawlyard.upgrades import readiness
from crawlyard.upgrades.readiness import UpgradeItem, UpgradeLevel, check
from tests.test_docs import _TABLE_SETTING, read
from yardkit.broker import Outgoing, QueueSpec
from yardkit.secretbox import generate_key

pytestmark = pytest.mark.django_db


def items(what: str, environ: dict[str, str] | None = None) -> list[UpgradeItem]:
    return [each for each in check(environ or {}) if each.what.startswith(what)]


def test_a_fresh_installation_is_ready() -> None:
    out = io.StringIO()
    call_command("upgrade_check", "--json", stdout=out)
    rows = json.loads(out.getvalue())
    assert {"what", "level", "detail", "how"} == set(rows[0])
    assert not [row for row in rows if row["level"] == "bad"]


def test_a_migration_that_is_not_applied_is_judged() -> None:
    recorder = MigrationRecorder.Migration.objects
    recorder.filter(app="runtime").delete()
    recorder.filter(app="jobs", name__gte="0013").delete()
    found = {each.what: each for each in items("migration ")}
    assert found["migration jobs.0013_active_runs_by_their_end"].level is UpgradeLevel.OK
    assert "expands" in found["migration runtime.0001_initial"].detail


def test_a_contracting_one_waits_for_older_processes() -> None:
    MigrationRecorder.Migration.objects.filter(app="projects", name__gte="0002").delete()
    (found,) = items("migration projects.0002")
    assert (found.level, "contracts" in found.detail) == (UpgradeLevel.NOTE, True)
    daemon("9.8.7")
    (found,) = items("migration projects.0002")
    assert found.level is UpgradeLevel.BAD


def test_a_database_of_a_newer_version_is_told() -> None:
    MigrationRecorder.Migration.objects.create(app="jobs", name="9999_later")
    found = items("migrations")
    assert found[0].level is UpgradeLevel.BAD
    assert "jobs.9999_later" in found[0].detail
    with pytest.raises(CommandError, match="migrations"):
        call_command("upgrade_check", stdout=io.StringIO())


def daemon(version: str) -> None:
    Daemon.objects.create(
        kind="center",
        name=f"c-{version}",
        host="here",
        pid=1,
        boot="b",
        version=version,
        state=DaemonState.RUNNING,
        beat_at=timezone.now(),
    )


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("ours", "theirs", "level"),
    [
        ("0.3.0", "0.3.0", UpgradeLevel.OK),
        ("0.3.0", "0.2.9", UpgradeLevel.NOTE),
        ("0.3.0", "0.1.0", UpgradeLevel.BAD),
        ("1.0.0", "0.9.0", UpgradeLevel.BAD),
        ("0.3.0", "", UpgradeLevel.NOTE),
    ],
)
def test_processes_of_other_versions(
    monkeypatch: pytest.MonkeyPatch, ours: str, theirs: str, level: UpgradeLevel
) -> None:
    monkeypatch.setattr(readiness, "own_version", lambda: ours)
    daemon(theirs)
    (found,) = items("processes")
    assert found.level is level
    assert level is UpgradeLevel.OK or f"center c-{theirs}" in found.detail


def test_processes_are_read_before_their_table_has_the_columns_of_this_version() -> None:
    daemon("9.8.7")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runtime_daemon DROP COLUMN detail")
    (found,) = items("processes")
    assert "center c-9.8.7" in found.detail


@pytest.mark.parametrize(("age", "level"), [(5, UpgradeLevel.NOTE), (120, UpgradeLevel.BAD)])
def test_an_outbox_that_is_not_sent(age: int, level: UpgradeLevel) -> None:
    created = timezone.now() - timedelta(seconds=age)
    OutboxMessage.objects.create(message_id="m", key="q", body=b"x", created_at=created)
    (found,) = items("outbox")
    assert found.level is level
    assert found.detail.startswith("1 messages")


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    ("version", "level"),
    [(0, UpgradeLevel.NOTE), (1, UpgradeLevel.OK), (2, UpgradeLevel.BAD), (-1, UpgradeLevel.BAD)],
)
def test_messages_of_other_versions_are_found_and_stay(
    monkeypatch: pytest.MonkeyPatch, version: int, level: UpgradeLevel
) -> None:
    body = msgspec.msgpack.encode({"type": "run_counters", "v": version})
    broker = shared_broker(timeout=5, name="test")
    broker.declare(QueueSpec("statistics"))
    broker.purge("statistics")
    broker.publish([Outgoing(body, "statistics"), Outgoing(b"junk", "statistics")]).result(5)
    close_shared_broker(1.0)
    # Readings serve everybody for two seconds.
    monkeypatch.setattr(depths._asker, "_asked_at", float("-inf"))
    try:
        found = [
            each for each in items("queue") if "statistics" in each.what or level is UpgradeLevel.OK
        ]
        assert [each.level for each in found] == [level]
        assert level is UpgradeLevel.OK or f"1 messages of version {version}" in found[0].detail
        assert shared_broker(timeout=5, name="test").depth("statistics").ready == 2
    finally:
        shared_broker(timeout=5, name="test").purge("statistics")
        close_shared_broker(1.0)


def test_dead_letters_are_better_decided_before() -> None:
    DeadLetter.objects.create(
        message_id="m", queue="q", body=b"x", body_size=1, died_at=timezone.now()
    )
    (found,) = items("dead letters")
    assert found.level is UpgradeLevel.NOTE


@pytest.mark.slow("2 s")
def test_keys_that_are_still_needed(settings: Any) -> None:
    old, new = generate_key(), generate_key()
    settings.SECRETBOX_KEYS = [old]
    project = Project(name="P", slug="p")
    project.git_password = "canary"
    project.save()
    (found,) = items("SECRETBOX_KEYS")
    assert (found.level, found.detail) == (UpgradeLevel.OK, "one key, 1 secrets")
    settings.SECRETBOX_KEYS = [new, old]
    (found,) = items("SECRETBOX_KEYS")
    assert "still needed for 1 secrets" in found.detail
    assert old not in found.detail
    call_command("rotate_secrets", stdout=io.StringIO())
    (found,) = items("SECRETBOX_KEYS")
    assert "needed for nothing" in found.detail
    settings.SECRETBOX_KEYS = [old]
    (found,) = items("SECRETBOX_KEYS")
    assert found.level is UpgradeLevel.BAD


def test_what_the_database_has_not_yet_holds_no_secret() -> None:
    """The check runs with the new version's code, before its migrations."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE sources_credential RENAME TO of_the_next_version")
        cursor.execute("ALTER TABLE projects_project RENAME COLUMN git_password TO of_another")
    (found,) = items("SECRETBOX_KEYS")
    assert found.level is UpgradeLevel.OK


def test_a_setting_that_nothing_reads_is_named() -> None:
    environ = {
        "ROUTING_WORKER": "3",
        "ROUTING_WORKERS": "3",
        "METRICS_TOKEN_FILE": "/x",
        "HOME": "/",
    }
    (found,) = items("settings", environ)
    assert found.detail == "ROUTING_WORKER is read by nothing"
    (found,) = items("settings", {"PATH": "/bin", "ROUTING_WORKER": ""})
    assert found.level is UpgradeLevel.OK


def test_the_names_are_those_of_the_document() -> None:
    assert set(_TABLE_SETTING.findall(read("settings.md"))) == KNOWN
    assert re.fullmatch(r"[A-Z0-9_]+", min(KNOWN))
