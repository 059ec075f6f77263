"""The page of a run: what was asked of it, what may be asked, and where it comes from."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from apps.access.models import User
from apps.access.states import Role
from apps.jobs.models import Run
from apps.jobs.services import (
    acknowledge,
    freeze_run,
    mark_frozen,
    pause_run,
    restart_run,
    tune_run,
)
from apps.jobs.states import RunState, Trigger
from tests.access.factories import make_superuser, make_user
from tests.jobs.factories import make_job, make_run
from yardkit.protocol import LifecycleAnswer, RunAction

pytestmark = pytest.mark.django_db

S = RunState


def logged_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def page(run: Run, user: User | None = None) -> str:
    return str(logged_in(user or make_superuser()).get(f"/runs/{run.pk}").content.decode())


def buttons(html: str, run: Run) -> set[str]:
    return set(re.findall(rf'action="/admin/jobs/run/{run.pk}/(\w+)"', html))


@pytest.mark.slow("6 s")
@pytest.mark.parametrize(
    ("state", "fields", "offered"),
    [
        (S.QUEUED, {}, {"stop"}),
        (S.STARTING, {}, {"restart", "stop"}),
        (S.RUNNING, {}, {"pause", "restart", "stop", "tune"}),
        (S.PAUSING, {}, {"resume", "restart", "stop", "tune"}),
        (S.PAUSED, {}, {"resume", "restart", "stop", "tune"}),
        (S.PAUSED, {"frozen": True}, {"resume", "restart", "stop"}),
        (S.RUNNING, {"freeze_wanted": True}, {"pause", "restart", "stop", "thaw"}),
        (S.STOPPING, {}, set()),
        (S.STOPPING, {"restart_wanted": True}, {"stop"}),
        (S.EXITED, {}, set()),
    ],
)
def test_only_what_is_allowed_is_offered(
    state: RunState, fields: dict[str, Any], offered: set[str]
) -> None:
    run = make_run(state=state, **fields)
    assert buttons(page(run), run) == offered
    viewer = make_user(roles={run.job.project: Role.VIEWER})
    assert buttons(page(run, viewer), run) == set()


@pytest.mark.covers("S3.20")
def test_the_pace_shown_is_the_one_the_run_goes_by() -> None:
    run = make_run(job=make_job(concurrency=100, speed=1.0), state=S.RUNNING)
    command = tune_run(run=run, concurrency=7, now=timezone.now(), actor=make_user(username="ann"))
    html = page(run)
    assert 'name="concurrency" min="1" max="10000" value="100"' in html
    assert 'step="any" value="1.0"' in html
    assert "tune asked by ann" in text_of(html)
    answer = LifecycleAnswer(
        run=run.pk,
        boot=run.boot,
        action=RunAction.TUNE,
        command=command.pk,
        reason="concurrency 7, speed 1",
    )
    acknowledge(message=answer, now=timezone.now())
    html = page(run)
    assert 'value="7"' in html
    assert "concurrency 7, speed 1" in text_of(html)
    run.commands.update(asked_at=timezone.now() - timedelta(seconds=11), answered_at=None)
    assert "tune unanswered by ann" in text_of(page(run))


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.8")
def test_a_command_shows_as_asked_then_as_unanswered_then_as_acknowledged() -> None:
    run = make_run(state=S.RUNNING)
    command = pause_run(run=run, now=timezone.now(), actor=make_user(username="ann"))
    html = page(run)
    assert "pause asked by ann" in text_of(html)
    assert 'data-look-again="10"' in html
    assert "freeze" not in buttons(html, run)

    run.commands.update(asked_at=timezone.now() - timedelta(seconds=11))
    html = page(run)
    assert "pause unanswered by ann" in text_of(html)
    assert "data-look-again" not in html
    assert "freeze" in buttons(html, run)

    answer = LifecycleAnswer(
        run=run.pk,
        boot=run.boot,
        action=RunAction.PAUSE,
        command=command.pk,
        reason="2 requests are still on their way",
    )
    acknowledge(message=answer, now=timezone.now())
    text = text_of(page(run))
    assert re.search(r"pause acknowledged by ann answered [\d:]+ 2 requests are still", text)


@pytest.mark.slow("1 s")
def test_a_frozen_run_says_so_and_what_was_left_unanswered_is_void_after_a_restart() -> None:
    now = timezone.now() - timedelta(minutes=1)
    run = make_run(state=S.RUNNING)
    pause_run(run=run, now=now, actor=None)
    freeze_run(run=run, now=now, actor=None)
    mark_frozen(run=run, frozen=True, now=now)
    assert "Suspended by its host" in text_of(page(run))
    restart_run(run=run, now=now, actor=None)
    assert "The run restarts when it has ended." in text_of(page(run))
    Run.objects.filter(pk=run.pk).update(boot="b2")
    assert "pause void" in text_of(page(run))


def test_without_any_runner_a_run_says_why_it_waits() -> None:
    assert "no host is registered: start run_runner on a machine" in text_of(page(make_run()))


def test_where_a_run_comes_from_and_what_it_waits_for() -> None:
    job = make_job()
    first = make_run(job=job, state=S.FAILED, exit_code=137)
    retry = make_run(
        job=job,
        attempt=2,
        retry_of=first,
        trigger=Trigger.RETRY,
        waits_for=first,
        waiting_reason="box-1: draining",
        not_before=timezone.now() + timedelta(hours=1),
        image_reference="shop/spider:1.2.0",
        image_digest="sha256:" + "ab" * 32,
    )
    text = text_of(page(retry))
    for said in (
        f"attempt 2 after #{first.pk}",
        "started by a retry",
        "box-1: draining",
        f"Starts when run {first.pk} has ended.",
        "Starts at",
        "shop/spider:1.2.0 sha256:ab",
    ):
        assert said in text, said
    text = text_of(page(first))
    assert f"retried as #{retry.pk}" in text
    assert "exit code 137" in text


def test_a_run_can_be_repeated_with_its_arguments_although_another_is_active() -> None:
    run = make_run(job=make_job(arguments={"depth": 1}), state=S.RUNNING, arguments={"depth": 2})
    client = logged_in(make_user(roles={run.job.project: Role.OPERATOR}))
    html = client.get(f"/runs/{run.pk}/settings").content.decode()
    assert "&quot;depth&quot;: 2" in html
    assert 'name="overlap"' in html
    start = f"/admin/jobs/job/{run.job_id}/start"
    client.post(start, {"arguments": '{"depth": 3}'})
    assert Run.objects.count() == 1
    client.post(start, {"arguments": '{"depth": 3}', "overlap": "queue"})
    again = Run.objects.exclude(pk=run.pk).get()
    assert (again.arguments, again.waits_for) == ({"depth": 3}, run)


def test_the_log_is_on_the_page() -> None:
    run = make_run(state=S.RUNNING)
    log = logged_in(make_superuser()).get(f"/runs/{run.pk}/log").content.decode()
    assert f'data-socket="/ws/logs/run:{run.pk}"' in log
