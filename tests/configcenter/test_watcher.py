"""ConfigWatcher: application of versions and reports of running ones."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from apps.configcenter.models import ConfigSubscription, RunningVersion
from apps.configcenter.queries import RolloutCount, rollouts_of
from apps.configcenter.services import ActiveVersion, ConfigWatcher, activate, deactivate, revert
from apps.configcenter.services.watcher import REPORT_SECONDS, RETRY_SECONDS
from apps.runtime.models import Daemon
from apps.runtime.queries import LIVE_SECONDS
from apps.runtime.services import database_now
from tests.access.factories import make_project
from tests.configcenter.factories import KIND, NOW, fresh, make_process, save
from yardkit.clock import ManualClock

pytestmark = pytest.mark.django_db


class Router:
    """Records the versions applied by a watcher."""

    def __init__(self, name: str = "one", **options: Any) -> None:
        self.identity, self.daemon = make_process(name)
        self.clock = ManualClock(NOW)
        self.seen: list[tuple[int, int | None]] = []
        self.fails = False
        self.follower = ConfigWatcher(
            kind=KIND, apply=self.apply, clock=self.clock, identity=self.identity, **options
        )

    def apply(self, project_id: int, active: ActiveVersion | None) -> None:
        if self.fails:
            raise ValueError("no such queue\nmore")
        self.seen.append((project_id, active.data["limit"] if active is not None else None))

    def later(self, seconds: float = 0.5) -> bool:
        self.clock.advance(seconds)
        return self.follower.poll()


def rollout(version: Any) -> RolloutCount:
    return rollouts_of([fresh(version)])[version.configuration_id]


@pytest.mark.covers("S4.10")
def test_active_versions_come_at_the_start_and_with_each_change() -> None:
    one, two = make_project(), make_project()
    first = save(one, 1)
    activate(version=first, actor=None, now=NOW)
    save(two, 7)
    router = Router()
    router.follower.setup()
    assert router.seen == [(one.pk, 1)]
    assert not router.later()
    newer = save(one, 2)
    # A saved version is not active.
    assert not router.later()
    activate(version=newer, actor=None, now=NOW)
    assert router.later()
    activate(version=save(two, 8), actor=None, now=NOW)
    assert router.later()
    revert(configuration=fresh(first), actor=None, now=NOW)
    assert router.later()
    deactivate(configuration=fresh(first), actor=None, now=NOW)
    assert router.later()
    assert not router.later()
    assert router.seen[1:] == [(one.pk, 2), (two.pk, 8), (one.pk, 1), (one.pk, None)]
    assert {pk: active.number for pk, active in router.follower.running.items()} == {two.pk: 2}


def test_half_a_second_is_the_longest_it_takes_and_one_query_all_it_costs() -> None:
    project = make_project()
    router = Router()
    router.follower.setup()
    activate(version=save(project, 1), actor=None, now=NOW)
    assert not router.later(0.4)
    assert router.later(0.1)
    with CaptureQueriesContext(connection) as queries:
        assert not router.follower.poll()
        assert len(queries) == 0
        assert not router.later()
        assert len(queries) == 1
    activate(version=save(project, 2), actor=None, now=NOW)
    router.follower.wake()
    assert router.follower.poll()
    assert router.seen[-1] == (project.pk, 2)


def test_one_project_alone_can_be_followed() -> None:
    mine, other = make_project(), make_project()
    activate(version=save(other, 1), actor=None, now=NOW)
    version = save(mine, 2)
    activate(version=version, actor=None, now=NOW)
    router = Router(project_id=mine.pk)
    router.follower.setup()
    assert router.seen == [(mine.pk, 2)]
    assert (rollout(version).on, rollout(version).of) == (1, 1)
    assert rollout(save(other, 3)).of == 0


def test_seven_of_eight_run_it() -> None:
    project = make_project()
    version = save(project, 1)
    activate(version=version, actor=None, now=NOW)
    routers = [Router(f"r{number}") for number in range(8)]
    for router in routers:
        router.follower.setup()
    newer = save(project, 2)
    activate(version=newer, actor=None, now=NOW)
    for router in routers[1:]:
        assert router.later()
    counted = rollout(newer)
    assert (counted.on, counted.of, counted.active, counted.complete) == (7, 8, 2, False)
    assert (counted.count(1), counted.count(2)) == (1, 7)
    behind = next(each for each in counted.runners if not each.current)
    assert (behind.name, behind.number, behind.applied_at) == ("r0", 1, NOW)
    with CaptureQueriesContext(connection) as queries:
        rollouts_of([fresh(newer)])
    # PostgreSQL needs one more query, for its time.
    assert len(queries) == (4 if connection.vendor == "postgresql" else 3)
    assert routers[0].later()
    assert rollout(newer).complete


def test_the_dead_and_the_replaced_do_not_count() -> None:
    version = save(make_project(), 1)
    activate(version=version, actor=None, now=NOW)
    first, second = Router("a"), Router("b")
    first.follower.setup()
    second.follower.setup()
    assert rollout(version).of == 2
    long_ago = database_now() - timedelta(seconds=LIVE_SECONDS + 1)
    Daemon.objects.filter(pk=second.daemon.pk).update(beat_at=long_ago)
    assert rollout(version).of == 1
    again = Router("a")
    # A successor of the same name that has not reported yet.
    assert rollout(version).of == 0
    again.follower.setup()
    assert (rollout(version).on, rollout(version).of) == (1, 1)
    # The frozen predecessor resumes: its reports are ignored.
    first.later(REPORT_SECONDS)
    assert RunningVersion.objects.filter(following__daemon=again.daemon).count() == 1
    assert ConfigSubscription.objects.get(daemon=again.daemon).boot == again.identity.boot


def test_a_report_that_was_lost_comes_again() -> None:
    version = save(make_project(), 1)
    activate(version=version, actor=None, now=NOW)
    router = Router()
    router.follower.setup()
    ConfigSubscription.objects.all().delete()
    router.later()
    assert rollout(version).of == 0
    router.later(REPORT_SECONDS)
    assert (rollout(version).on, rollout(version).of) == (1, 1)


def test_what_cannot_be_applied_leaves_the_last_good_one(caplog: pytest.LogCaptureFixture) -> None:
    project = make_project()
    activate(version=save(project, 1), actor=None, now=NOW)
    router = Router()
    router.follower.setup()
    router.fails = True
    bad = save(project, 2)
    activate(version=bad, actor=None, now=NOW)
    with caplog.at_level(logging.ERROR):
        assert router.later()
    assert "v2 could not be applied; the previous one stays" in caplog.text
    assert router.follower.running[project.pk].number == 1
    assert router.follower.problems == {project.pk: "v2: no such queue"}
    (runner,) = rollout(bad).runners
    assert (runner.number, runner.problem, runner.current) == (1, "v2: no such queue", False)
    # Retried, but not at every poll.
    assert not router.later(RETRY_SECONDS / 2)
    router.fails = False
    assert router.later(RETRY_SECONDS)
    assert router.follower.problems == {}
    assert rollout(bad).complete


def test_while_the_database_is_away_the_last_good_one_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    project = make_project()
    activate(version=save(project, 1), actor=None, now=NOW)
    router = Router()
    router.follower.setup()
    activate(version=save(project, 2), actor=None, now=NOW)

    def refuse(*args: Any) -> Any:
        raise OperationalError("connection refused\nIs the server running?")

    monkeypatch.setattr(connection, "close", lambda: None)
    with caplog.at_level(logging.INFO), connection.execute_wrapper(refuse):
        assert not router.later()
        assert not router.later()
    assert router.follower.outage == "connection refused"
    assert caplog.text.count("the last versions stay in effect") == 1
    assert router.follower.running[project.pk].number == 1
    with caplog.at_level(logging.INFO):
        assert router.later()
    assert "database reachable again" in caplog.text
    assert router.follower.outage == ""
    assert router.follower.running[project.pk].number == 2


def test_a_daemon_cannot_start_without_the_database() -> None:
    router = Router()

    def refuse(*args: Any) -> Any:
        raise OperationalError("connection refused")

    with connection.execute_wrapper(refuse), pytest.raises(OperationalError):
        router.follower.setup()


def test_without_an_identity_nothing_is_reported() -> None:
    version = save(make_project(), 1)
    activate(version=version, actor=None, now=NOW)
    follower = ConfigWatcher(
        kind=KIND, apply=lambda project_id, active: None, clock=ManualClock(NOW)
    )
    follower.setup()
    assert not ConfigSubscription.objects.exists()
