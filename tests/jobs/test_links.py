"""Jobs that follow others."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.access.errors import RoleRequired
from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.jobs.engine.graph import find_path
from apps.jobs.errors import LinkCycle, LinkExists
from apps.jobs.models import Job, JobLink, Run
from apps.jobs.services import add_link, finish_run, remove_link
from apps.jobs.services.moves import move
from apps.jobs.states import LinkCondition, RunState, Trigger
from tests.access.factories import make_project, make_user
from tests.jobs.factories import NOW, make_job, make_run

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(minutes=1)


def link(job: Job, after: Job, condition: str = LinkCondition.SUCCEEDED) -> JobLink:
    return add_link(job=job, after=after, condition=condition, actor=None)


def end(job: Job, state: RunState) -> Run:
    run = make_run(job=job, state=RunState.RUNNING)
    assert finish_run(run=run, state=state, reason="", now=LATER)
    return run


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    ("condition", "states"),
    [
        (LinkCondition.SUCCEEDED, {RunState.EXITED}),
        (LinkCondition.FAILED, {RunState.FAILED, RunState.LOST}),
        (
            LinkCondition.ALWAYS,
            {RunState.EXITED, RunState.FAILED, RunState.LOST, RunState.CANCELLED},
        ),
    ],
)
@pytest.mark.parametrize(
    "state", [RunState.EXITED, RunState.FAILED, RunState.LOST, RunState.CANCELLED]
)
def test_a_run_follows_as_the_condition_says(
    condition: str, states: set[RunState], state: RunState
) -> None:
    before = make_job()
    follower = make_job(project=before.project, arguments={"a": 1})
    link(follower, before, condition)
    run = end(before, state)
    queued = Run.objects.filter(job=follower)
    assert queued.count() == (state in states)
    if state in states:
        found = queued.get()
        assert (found.caused_by, found.trigger, found.state) == (run, Trigger.LINK, "queued")
        assert found.arguments == {"a": 1}
        assert f"run {run.pk} of {before.name}" in found.moves.get().reason


def test_a_run_ends_once_and_is_followed_once() -> None:
    before, follower = make_job(), make_job()
    link(follower, before)
    run = end(before, RunState.EXITED)
    assert not finish_run(run=run, state=RunState.FAILED, reason="", now=LATER)
    stale = Run.objects.get(pk=run.pk)
    stale.state = RunState.RUNNING
    assert not finish_run(run=stale, state=RunState.EXITED, reason="", now=LATER)
    assert Run.objects.filter(job=follower).count() == 1


def test_a_run_that_is_tried_again_has_not_ended() -> None:
    before = make_job(retry_rules=[{"on": "failed", "retries": 1}])
    follower, cleaner = make_job(), make_job()
    link(follower, before, LinkCondition.FAILED)
    link(cleaner, before, LinkCondition.ALWAYS)
    end(before, RunState.FAILED)
    assert not Run.objects.filter(job__in=[follower, cleaner]).exists()
    retry = Run.objects.get(job=before, trigger=Trigger.RETRY)
    Run.objects.filter(pk=retry.pk).update(state=RunState.RUNNING, host="h")
    retry.refresh_from_db()
    assert finish_run(run=retry, state=RunState.FAILED, reason="", now=LATER)
    assert Run.objects.filter(job__in=[follower, cleaner], caused_by=retry).count() == 2


def test_a_disabled_follower_is_noted() -> None:
    before, follower = make_job(), make_job(enabled=False)
    link(follower, before)
    run = end(before, RunState.EXITED)
    assert not Run.objects.filter(job=follower).exists()
    noted = AuditRecord.objects.get(action="jobs.skip_follower")
    assert noted.object_id == str(follower.pk)
    assert str(run.pk) in noted.note


def test_a_restart_is_no_end() -> None:
    before, follower = make_job(), make_job()
    link(follower, before, LinkCondition.ALWAYS)
    run = make_run(job=before, state=RunState.STOPPING, restart_wanted=True)
    assert move(run, RunState.STARTING, now=LATER, actor="host-1")
    assert not Run.objects.filter(job=follower).exists()


def test_a_circle_is_refused_with_the_way_round() -> None:
    first, second, third = (make_job(name=name) for name in "ABC")
    link(second, first)
    link(third, second)
    with pytest.raises(LinkCycle, match="A → B → C → A"):
        link(first, third)
    with pytest.raises(LinkCycle, match="A → A"):
        link(first, first)
    assert JobLink.objects.count() == 2


def test_a_link_is_made_once_and_removed() -> None:
    first, second = make_job(), make_job()
    made = link(second, first)
    with pytest.raises(LinkExists):
        link(second, first, LinkCondition.ALWAYS)
    remove_link(link=made, actor=None)
    end(first, RunState.EXITED)
    assert not Run.objects.filter(job=second).exists()
    assert AuditRecord.objects.filter(action__endswith="_joblink").count() == 2


def test_two_projects_are_linked_by_an_editor_of_both() -> None:
    here, there = make_project(), make_project()
    first, second = make_job(project=here), make_job(project=there)
    person = make_user(roles={here: Role.EDITOR, there: Role.VIEWER})
    with pytest.raises(RoleRequired):
        add_link(job=first, after=second, condition="always", actor=person)
    both = make_user(roles={here: Role.EDITOR, there: Role.EDITOR})
    assert add_link(job=first, after=second, condition="always", actor=both).pk


def test_jobs_of_others_have_no_name_in_a_refusal() -> None:
    here = make_project()
    first, second = make_job(project=here, name="A"), make_job(project=here, name="B")
    hidden = make_job(name="secret")
    link(hidden, first)
    link(second, hidden)
    person = make_user(roles={here: Role.EDITOR})
    with pytest.raises(LinkCycle) as refused:
        add_link(job=first, after=second, condition="always", actor=person)
    assert "A → … → B → A" in str(refused.value)


@pytest.mark.slow("1 s")
@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=25))
def test_paths_are_those_of_the_closure(edges: set[tuple[int, int]]) -> None:
    reach = {(n, n) for n in range(8)} | edges
    for _ in range(8):
        reach |= {(a, d) for a, b in reach for c, d in edges if b == c}
    for start in range(8):
        for goal in range(8):
            path = find_path(edges, start, goal)
            assert bool(path) == ((start, goal) in reach)
            if path:
                assert (path[0], path[-1]) == (start, goal)
                assert set(itertools.pairwise(path)) <= edges
