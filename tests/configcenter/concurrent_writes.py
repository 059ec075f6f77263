"""Concurrent saves and activations on a shared database, run by ``test_on_postgres``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections

from apps.access.errors import DomainError
from apps.configcenter.models import Activation, ConfigVersion, KindSerial
from apps.configcenter.services import ActiveVersion, ConfigWatcher, activate, deactivate
from tests.access.factories import make_project
from tests.configcenter.factories import KIND, NOW, fresh, make_process, save
from yardkit.clock import ManualClock, SystemClock

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 8


def at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the calls concurrently; return results, or error codes."""
    start = threading.Barrier(len(calls), timeout=60)

    def run(call: Callable[[], Any]) -> Any:
        start.wait()
        try:
            return call()
        except DomainError as error:
            return error.code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@pytest.mark.parametrize("turn", range(3))
def test_savers_that_began_alike_get_one_version_and_refusals(turn: int) -> None:
    project = make_project()
    answers = at_once([lambda n=n: save(project, n, based_on=0).number for n in range(1, MANY)])
    assert sorted(map(str, answers)) == ["1", *["saved_meanwhile"] * (MANY - 2)]
    assert ConfigVersion.objects.count() == 1


@pytest.mark.parametrize("turn", range(3))
def test_savers_that_mind_nobody_get_a_number_each(turn: int) -> None:
    project = make_project()
    answers = at_once([lambda n=n: save(project, n).number for n in range(1, MANY + 1)])
    assert sorted(answers) == list(range(1, MANY + 1))
    newest = ConfigVersion.objects.get(number=MANY)
    assert fresh(newest).newest == MANY


@pytest.mark.parametrize("turn", range(3))
def test_equal_data_from_all_sides_is_one_version(turn: int) -> None:
    project = make_project()
    answers = at_once([lambda: save(project, 5, based_on=0).pk] * MANY)
    assert len(set(answers)) == 1
    assert ConfigVersion.objects.count() == 1


@pytest.mark.parametrize("turn", range(3))
def test_one_of_many_activates_what_all_saw_inactive(turn: int) -> None:
    project = make_project()
    versions = [save(project, n) for n in range(1, MANY + 1)]
    answers = at_once(
        [lambda v=v: activate(version=v, actor=None, now=NOW, instead_of=0) for v in versions]
    )
    won = [each for each in answers if isinstance(each, Activation)]
    assert len(won) == 1
    assert answers.count("activated_meanwhile") == MANY - 1
    assert fresh(versions[0]).active == won[0].version


def test_the_history_is_one_chain_and_no_serial_is_lost() -> None:
    projects = [make_project() for _ in range(3)]
    versions = [save(project, n) for project in projects for n in (1, 2)]
    calls = [lambda v=v: activate(version=v, actor=None, now=NOW) for v in versions]
    answers = at_once([*calls, *calls])
    done = [each for each in answers if isinstance(each, Activation)]
    assert len(done) == Activation.objects.count() == KindSerial.objects.get(kind=KIND).serial
    for version in versions[::2]:
        history = list(
            Activation.objects.filter(configuration=version.configuration).order_by("id")
        )
        before = None
        for each in history:
            assert each.previous_id == before
            before = each.version_id
        assert fresh(version).active_id == before


def test_a_follower_ends_with_what_is_active() -> None:
    """A watcher misses no activation, whatever the commit order."""
    projects = [make_project() for _ in range(4)]
    versions = {project.pk: [save(project, n) for n in (1, 2, 3)] for project in projects}
    runs: dict[int, int | None] = {}

    def use(project_id: int, active: ActiveVersion | None) -> None:
        runs[project_id] = active.number if active is not None else None

    done = threading.Event()

    def follow() -> None:
        identity, _daemon = make_process("follower")
        follower = ConfigWatcher(kind=KIND, apply=use, clock=SystemClock(), identity=identity)
        follower.setup()
        while not done.is_set():
            follower.wake()
            follower.poll()
        follower.wake()
        follower.poll()

    def switch(project_id: int) -> None:
        for version in versions[project_id] * 3:
            activate(version=version, actor=None, now=NOW)
        if project_id == projects[0].pk:
            deactivate(configuration=fresh(version), actor=None, now=NOW)

    with ThreadPoolExecutor(1) as other:
        following = other.submit(lambda: (follow(), connections.close_all()))
        try:
            at_once([lambda pk=pk: switch(pk) for pk in versions])
        finally:
            done.set()
        following.result(60)
    expected = dict.fromkeys(versions, 3) | {projects[0].pk: None}
    assert {pk: runs.get(pk) for pk in versions} == expected


def test_a_follower_outlives_the_connection() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only a server can cut a connection")
    version = save(make_project(), 1)
    clock = ManualClock(NOW)
    identity, _daemon = make_process("cut")
    follower = ConfigWatcher(kind=KIND, apply=lambda pk, a: None, clock=clock, identity=identity)
    follower.setup()
    activate(version=version, actor=None, now=NOW)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        mine = cursor.fetchone()[0]

    def cut() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [mine])

    at_once([cut])
    clock.advance(0.5)
    assert not follower.poll()
    assert follower.outage
    assert follower.running == {}
    clock.advance(0.5)
    assert follower.poll()
    assert not follower.outage
    assert [active.number for active in follower.running.values()] == [1]
