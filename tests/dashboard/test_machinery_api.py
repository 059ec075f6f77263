"""Dead letters, the outbox, processes and periodic tasks over REST."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.runtime import deferral
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage
from tests.access.factories import Api, make_auditor, make_project, make_superuser
from tests.dashboard.machinery import make_daemon, make_letter, make_outgoing, make_periodic_task

pytestmark = pytest.mark.django_db


@pytest.fixture
def root() -> Api:
    return Api(make_superuser())


def audited() -> list[str]:
    made = AuditRecord.objects.exclude(action="access.create_token").order_by("id")
    return list(made.values_list("action", flat=True))


def test_a_dead_letter_is_read_without_its_secrets(root: Api) -> None:
    letter = make_letter()
    (row,) = root.get("dead-letters?state=held&queue=statistics").json()["results"]
    assert (row["id"], row["reason"]) == (letter.pk, "nobody understands it")
    assert "body" not in row
    shown = root.get(f"dead-letters/{letter.pk}")
    assert (shown.json()["body"]["form"], shown.json()["headers"]["n"]) == ("json", 1)
    assert "hunter2" not in shown.content.decode()
    assert "hush" not in shown.content.decode()
    assert root.get("dead-letters?state=dropped").json()["results"] == []


def test_a_dead_letter_is_decided_once(root: Api) -> None:
    back, away, lost = make_letter(), make_letter(), make_letter(queue="")
    done = root.post(f"dead-letters/{back.pk}/requeue")
    assert (done.status_code, done.json()["state"]) == (200, "requeued")
    assert OutboxMessage.objects.get().message_id == back.message_id
    assert root.post(f"dead-letters/{away.pk}/drop").json()["state"] == "dropped"
    again = root.post(f"dead-letters/{back.pk}/drop")
    assert (again.status_code, again.json()["code"]) == (409, "dead_letter_resolved")
    homeless = root.post(f"dead-letters/{lost.pk}/requeue")
    assert (homeless.status_code, homeless.json()["code"]) == (409, "dead_letter_has_no_queue")
    assert DeadLetter.objects.get(pk=lost.pk).state == "held"
    assert audited() == ["runtime.requeue_dead_letter", "runtime.drop_dead_letter"]


def test_what_waits_to_be_sent_is_sent_now_or_never(root: Api) -> None:
    later, never, fresh = make_outgoing(), make_outgoing(), make_outgoing(error="")
    listed = root.get("outbox?failed=true").json()["results"]
    assert [row["id"] for row in listed] == [later.pk, never.pk]
    assert [row["id"] for row in root.get("outbox?failed=false").json()["results"]] == [fresh.pk]
    assert root.get(f"outbox/{later.pk}").json()["body"]["text"]
    assert root.post(f"outbox/{later.pk}/retry").json()["next_try_at"] is None
    assert root.delete(f"outbox/{never.pk}", If_Match='"old"').status_code == 412
    assert root.delete(f"outbox/{never.pk}").status_code == 204
    assert set(OutboxMessage.objects.values_list("pk", flat=True)) == {later.pk, fresh.pk}
    assert audited() == ["runtime.retry_outbox_message", "runtime.drop_outbox_message"]


def test_only_processes_that_are_gone_are_forgotten(root: Api) -> None:
    gone, here = make_daemon(detail={"token": "hush"}), make_daemon(beat_at=timezone.now())
    rows = root.get("daemons?kind=router").json()["results"]
    assert {row["name"]: row["alive"] for row in rows} == {gone.name: False, here.name: True}
    assert "hush" not in str(rows)
    alive = root.delete(f"daemons/{here.pk}")
    assert (alive.status_code, alive.json()["code"]) == (409, "daemon_is_alive")
    assert root.delete(f"daemons/{gone.pk}").status_code == 204
    assert Daemon.objects.get() == here
    assert AuditRecord.objects.get(action="runtime.forget_daemon").object_id == str(gone.pk)


def test_a_periodic_task_is_run_now(
    root: Api, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    sent: list[tuple[Any, ...]] = []
    monkeypatch.setattr(deferral, "_send", lambda *task: sent.append(task))
    task = make_periodic_task(kwargs='{"job": 7}')
    (row,) = root.get("periodic-tasks").json()["results"]
    assert (row["id"], row["enabled"], row["schedule"]) == (task.pk, True, "every 60 seconds")
    with django_capture_on_commit_callbacks(execute=True):
        answer = root.post(f"periodic-tasks/{task.pk}/run")
    assert answer.status_code == 202
    assert sent == [("runtime.prune", "celery.tasks", {"job": 7})]
    assert audited() == ["dashboard.run_periodic_task"]


@pytest.mark.parametrize("path", ["daemons", "dead-letters", "outbox", "periodic-tasks"])
def test_a_superuser_s_token_of_one_project_sees_none_of_it(path: str) -> None:
    narrow = Api(make_superuser(), project=make_project())
    assert narrow.get(path).status_code == 403


def test_auditors_look_and_decide_nothing() -> None:
    letter = make_letter()
    auditor = Api(make_auditor())
    assert auditor.get(f"dead-letters/{letter.pk}").status_code == 200
    for path in (f"dead-letters/{letter.pk}/drop", f"dead-letters/{letter.pk}/requeue"):
        refused = auditor.post(path)
        assert (refused.status_code, refused.json()["code"]) == (403, "role_required")


def test_lists_ask_the_database_as_often_however_long_they_are(
    root: Api, django_assert_max_num_queries: Any
) -> None:
    for _ in range(5):
        make_letter(died_at=timezone.now() - timedelta(seconds=1))
        make_periodic_task()
    for path in ("dead-letters", "periodic-tasks"):
        with django_assert_max_num_queries(6):
            assert len(root.get(path).json()["results"]) == 5
