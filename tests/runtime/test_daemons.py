"""Heartbeat rows: who is there, judged by one clock."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, transaction

from apps.runtime.errors import DaemonReplaced
from apps.runtime.models import Daemon
from apps.runtime.queries import LIVE_SECONDS, unapplied_migrations
from apps.runtime.services import (
    beat,
    database_now,
    forget_daemon,
    free_daemon_name,
    is_live,
    live_daemons,
    register_daemon,
    stale_daemons,
)
from apps.runtime.states import DaemonState

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATE = NOW + timedelta(seconds=LIVE_SECONDS)


def start(name: str = "a", boot: str = "b1", *, kind: str = "center", **fields: object) -> Daemon:
    values = {"host": "h", "pid": 1, "now": NOW, **fields}
    return register_daemon(kind=kind, name=name, boot=boot, **values)  # type: ignore[arg-type]


def sign(name: str = "a", boot: str = "b1", **fields: object) -> None:
    values = {"host": "h", "pid": 1, "now": NOW, **fields}
    beat(kind="center", name=name, boot=boot, **values)  # type: ignore[arg-type]


def test_alive_while_the_heartbeat_is_young() -> None:
    daemon = start()
    just = LATE - timedelta(milliseconds=1)
    assert is_live(daemon, now=just)
    assert list(live_daemons(now=just)) == [daemon]
    assert list(stale_daemons(now=just)) == []
    assert not is_live(daemon, now=LATE)
    assert list(live_daemons(now=LATE)) == []
    assert list(stale_daemons(now=LATE)) == [daemon]


def test_who_said_good_bye_is_neither_alive_nor_late() -> None:
    start()
    sign(state=DaemonState.STOPPED)
    assert not live_daemons(now=NOW).exists()
    assert not stale_daemons(now=LATE).exists()


def test_kinds_are_told_apart() -> None:
    start()
    start(kind="runner")
    assert [d.kind for d in live_daemons(kind="runner", now=NOW)] == ["runner"]
    assert live_daemons(now=NOW).count() == 2


def test_the_newest_process_has_the_name_and_the_old_one_learns_it() -> None:
    start(boot="b1")
    start(boot="b2", pid=2)
    assert Daemon.objects.get().pid == 2
    with pytest.raises(DaemonReplaced):
        sign(boot="b1", state=DaemonState.STOPPED)
    assert Daemon.objects.get().state == DaemonState.STARTING
    sign(boot="b2")


def test_a_row_that_was_cleaned_away_comes_back() -> None:
    sign(detail={"steps": 4})
    daemon = Daemon.objects.get()
    assert (daemon.state, daemon.detail) == ("running", {"steps": 4})
    sign(now=LATE)
    daemon.refresh_from_db()
    assert (daemon.beat_at, daemon.detail) == (LATE, {"steps": 4})


def test_a_name_is_reused_by_the_successor_and_not_by_a_neighbour() -> None:
    host = "box"
    assert free_daemon_name(kind="center", host=host, now=NOW) == "box"
    start("box", host="elsewhere")
    assert free_daemon_name(kind="center", host=host, now=NOW) == "box-2"
    assert free_daemon_name(kind="center", host=host, now=LATE) == "box"
    assert free_daemon_name(kind="runner", host=host, now=NOW) == "box"


def test_a_process_killed_a_moment_ago_does_not_hold_its_name() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    start("box", host="box", pid=process.pid)
    assert free_daemon_name(kind="center", host="box", now=NOW) == "box"
    start("box", host="box", pid=os.getppid())
    assert free_daemon_name(kind="center", host="box", now=NOW) == "box-2"


def test_only_the_dead_are_forgotten() -> None:
    daemon = start()
    assert not forget_daemon(daemon=daemon, now=NOW)
    assert forget_daemon(daemon=daemon, now=LATE)
    assert not Daemon.objects.exists()


def test_one_that_woke_up_meanwhile_is_not_forgotten() -> None:
    seen = start()
    sign(now=LATE)
    assert not forget_daemon(daemon=seen, now=LATE)
    assert Daemon.objects.exists()


def test_the_database_knows_the_states() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        start(state="dancing")


def test_the_database_clock_is_aware_and_moves_inside_a_transaction() -> None:
    first = database_now()
    assert first.utcoffset() == timedelta(0)
    assert database_now() > first


def test_missing_migrations_are_named() -> None:
    from django.db import connection
    from django.db.migrations.recorder import MigrationRecorder

    assert unapplied_migrations() == []
    MigrationRecorder(connection).record_unapplied("runtime", "0001_initial")
    assert unapplied_migrations() == ["runtime.0001_initial"]
