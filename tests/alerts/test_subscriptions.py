"""Subscriptions to runs: failures by incidents, each end by a notification of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from apps.access.models import AuditRecord, User
from apps.access.services.people import set_role
from apps.access.states import Role
from apps.alerts.errors import BadChannel, NoAddress, NoSuchChannel
from apps.alerts.models import Channel, Incident, Notice, RunSubscription
from apps.alerts.queries.recipients import run_end_counts, unnotified_projects
from apps.alerts.services.delivery import send_notices
from apps.alerts.services.notices import notify, prune_notices
from apps.alerts.services.recipients import personal_channel, subscribed_names
from apps.alerts.services.subscriptions import SETTLED_AFTER, notify_me, subscribe, unsubscribe
from apps.alerts.states import ChannelKind, NoticeKind, NoticeProblem, NoticeState
from apps.jobs.models import Job, Run
from apps.jobs.services.moves import move
from apps.jobs.states import RunState
from apps.projects.engine.signatures import check_standard
from tests.access.factories import make_superuser, make_user
from tests.alerts.factories import NOW, make_channel, make_incident
from tests.alerts.servers import json_reply, serving
from tests.alerts.test_delivery import KEY, mailbox  # noqa: F401 - a fixture
from tests.jobs.factories import make_job, make_project, make_run

pytestmark = [pytest.mark.django_db, pytest.mark.covers("UX.6")]


def end(job: Job, state: RunState = RunState.FAILED, reason: str = "exit 1") -> Run:
    run = make_run(job=job, state=RunState.RUNNING, started_at=NOW - timedelta(minutes=5))
    with transaction.atomic():
        assert move(run, state, now=NOW, actor="", reason=reason)
    return run


def member(job: Job, **fields: Any) -> User:
    user = make_user(**({"email": "ann@example.com"} | fields))
    set_role(actor=None, user=user, project=job.project, role=Role.VIEWER)
    return user


def hook(url: str, **fields: Any) -> Channel:
    secrets = {"url": f"{url}/hook", "key": KEY}
    return make_channel(kind=ChannelKind.WEBHOOK, secrets=secrets, settings={}, **fields)


def test_each_end_of_a_run_is_posted_once_signed_and_accounted(settings: Any) -> None:
    settings.ALERTS_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    job, other = make_job(name="news"), make_job()
    with serving(lambda _asked: json_reply()) as server:
        channel = hook(server.url, project=job.project)
        subscribe(channel=channel, project_id=job.project_id, every_end=True, actor=None)
        first, second = end(job), end(job, RunState.EXITED, "")
        end(other)
        assert run_end_counts(channel) == {"total": 2, "sent": 0, "waiting": 2, "failed": 0} | {
            "dropped": 0
        }
        assert send_notices(channel=channel.pk, now=NOW) == 0, "the last counters are waited for"
        later = NOW + SETTLED_AFTER
        assert send_notices(channel=channel.pk, now=later) == 2
        bodies = [asked.json for asked in server.heard]
        headers = server.heard[0].headers
        check_standard(
            KEY,
            server.heard[0].body,
            message_id=headers["webhook-id"],
            timestamp=headers["webhook-timestamp"],
            signatures=headers["webhook-signature"],
            now=later.timestamp(),
        )
    assert [body["type"] for body in bodies] == ["run.ended", "run.ended"]
    assert [body["data"]["run"] for body in bodies] == [first.pk, second.pk]
    assert [body["data"]["outcome"] for body in bodies] == ["failed", "succeeded"]
    assert bodies[0]["data"]["project"] == job.project.slug
    assert bodies[0]["data"]["reason"] == "exit 1"
    assert bodies[0]["data"]["seconds"] == 300
    assert bodies[0]["data"]["url"].endswith(f"/runs/{first.pk}")
    assert run_end_counts(channel)["sent"] == 2


def end_and_die(job: Job) -> None:
    end(job)
    assert Notice.objects.count() == 1
    raise KeyboardInterrupt


def test_an_end_that_is_rolled_back_notifies_nobody() -> None:
    job = make_job()
    subscribe(channel=make_channel(), job=job, every_end=True, actor=None)
    with pytest.raises(KeyboardInterrupt), transaction.atomic():
        end_and_die(job)
    assert not Notice.objects.exists()


def test_the_run_may_be_deleted_before_its_end_is_sent(settings: Any) -> None:
    settings.ALERTS_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    job = make_job()
    with serving(lambda _asked: json_reply()) as server:
        channel = hook(server.url)
        subscribe(channel=channel, every_end=True, actor=None)
        end(job, RunState.LOST).delete()
        assert send_notices(channel=channel.pk, now=NOW + SETTLED_AFTER) == 1
        data = server.heard[0].json["data"]
    assert (data["outcome"], data["items"]) == ("lost", None)
    assert prune_notices(now=NOW + timedelta(days=31)) == 1


def test_me_on_failure_joins_the_incident_of_the_job(mailbox: Any) -> None:  # noqa: F811
    job = make_job(name="news")
    user = member(job)
    notify_me(user=user, job=job, every_end=False)
    incident = make_incident(project=job.project, key=f"job:{job.pk}")
    assert subscribed_names(incident) == [f"@{user.username}"]
    notify(incident=incident, kind=NoticeKind.OPENED, channels=subscribed_names(incident), now=NOW)
    assert send_notices(channel=personal_channel(user).pk, now=NOW) == 1
    ((receiver, mail),) = mailbox.received
    assert receiver == "ann@example.com"
    assert "run 7 failed" in mail["Subject"]


def test_two_rules_about_one_failure_notify_a_subscriber_once() -> None:
    job = make_job()
    subscribe(channel=make_channel(name="ops"), job=job, every_end=False, actor=None)
    first = make_incident(project=job.project, key=f"job:{job.pk}", rule="run failed")
    assert subscribed_names(first) == ["ops"]
    Incident.objects.filter(pk=first.pk).update(told_at=NOW)
    second = make_incident(project=job.project, key=f"job:{job.pk}", rule="my own")
    assert subscribed_names(second) == []
    assert subscribed_names(first) == ["ops"]
    # One that is muted has notified nobody.
    Incident.objects.filter(pk=first.pk).update(told_at=None)
    assert subscribed_names(second) == ["ops"]
    assert subscribed_names(make_incident(key="agent:a1", source="agent.silent")) == []


def test_who_lost_the_role_is_no_longer_notified() -> None:
    job = make_job()
    user = member(job)
    notify_me(user=user, job=job, every_end=True)
    end(job)
    assert Notice.objects.get().channel_name == f"@{user.username}"
    set_role(actor=None, user=user, project=job.project, role=None)
    end(job)
    assert Notice.objects.count() == 1
    incident = make_incident(project=job.project)
    (notice,) = notify(
        incident=incident, kind=NoticeKind.OPENED, channels=[f"@{user.username}"], now=NOW
    )
    assert notice.problem == NoticeProblem.NO_CHANNEL


def test_me_needs_an_address() -> None:
    job = make_job()
    user = member(job, email="")
    with pytest.raises(NoAddress):
        notify_me(user=user, job=job, every_end=False)
    with pytest.raises(BadChannel):
        notify_me(user=user, job=job, every_end=False, address="no address")
    notify_me(user=user, job=job, every_end=False, address="me@example.com")
    user.refresh_from_db()
    assert user.email == "me@example.com"
    notify_me(user=user, job=job, every_end=True)
    assert RunSubscription.objects.get().every_end
    notify_me(user=user, job=job, every_end=None)
    assert not RunSubscription.objects.exists()
    actions = AuditRecord.objects.order_by("id").values_list("action", flat=True)
    assert list(actions)[-4:] == [
        "access.set_email",
        "alerts.subscribe",
        "alerts.subscribe",
        "alerts.unsubscribe",
    ]


def test_an_address_that_was_removed_is_named() -> None:
    job = make_job()
    user = member(job)
    notify_me(user=user, job=job, every_end=True)
    end(job)
    User.objects.filter(pk=user.pk).update(email="")
    assert send_notices(channel=personal_channel(user).pk, now=NOW + SETTLED_AFTER) == 0
    notice = Notice.objects.get()
    assert (notice.state, notice.answer) == (NoticeState.WAITING, "no e-mail address")


def test_a_channel_of_another_project_is_refused() -> None:
    job = make_job()
    with pytest.raises(NoSuchChannel):
        subscribe(channel=make_channel(project=make_project()), job=job, every_end=True, actor=None)


def test_the_overview_knows_who_is_notified_nowhere() -> None:
    user, silent = make_superuser(), make_job(project=make_project(name="a")).project
    job = make_job(project=make_project(name="b"))
    assert unnotified_projects(user) == ([silent, job.project], 2)
    row = subscribe(channel=make_channel(project=job.project), job=job, every_end=False, actor=None)
    assert unnotified_projects(user) == ([silent], 2)
    Channel.objects.update(enabled=False)
    assert len(unnotified_projects(user)[0]) == 2
    unsubscribe(subscription=row, actor=user)
    subscribe(channel=make_channel(), every_end=False, actor=None)
    assert unnotified_projects(user) == ([], 2)
