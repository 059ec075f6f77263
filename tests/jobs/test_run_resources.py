"""A run that has ended holds no resource any more, however it ended."""

from __future__ import annotations

import pytest

from apps.jobs.services import finish_run
from apps.jobs.states import RunState
from apps.seeds.services.resources import run_owner
from apps.seeds.states import ResourceState
from tests.jobs.factories import NOW, make_job, make_run
from tests.seeds.resources.factories import make_pool, make_resource, take

pytestmark = pytest.mark.django_db


@pytest.mark.covers("S3.21")
@pytest.mark.parametrize("state", [RunState.EXITED, RunState.FAILED, RunState.LOST], ids=str)
def test_what_it_leased_is_free_again(state: RunState) -> None:
    run = make_run(job=make_job(), state=RunState.RUNNING)
    other = make_run(job=make_job(), state=RunState.RUNNING)
    pool = make_pool(run.job.project)
    mine, theirs = make_resource(pool), make_resource(pool)
    take(pool, NOW, run_owner(run.pk, "boot"))
    take(pool, NOW, run_owner(other.pk, "boot"))
    assert finish_run(run=run, state=state, reason="", now=NOW)
    pool.refresh_from_db()
    states = dict(pool.resources.values_list("pk", "state"))
    assert states == {mine.pk: ResourceState.FREE, theirs.pk: ResourceState.LEASED}
