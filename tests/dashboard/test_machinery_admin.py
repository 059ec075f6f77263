"""Dead letters, processes and the outbox in the admin."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.access.models import AuditRecord, User
from apps.access.states import Role
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage
from apps.runtime.states import DaemonState, DeadLetterState
from tests.access.factories import enter, make_auditor, make_project, make_superuser, make_user
from tests.confirmation import confirm
from tests.dashboard.machinery import make_outgoing
from yardkit.protocol import (
    DownloadBatch,
    DownloadRequest,
    RequestItem,
    RunQueued,
    encode,
    encode_request,
)

pytestmark = pytest.mark.django_db

LETTERS = "admin:runtime_deadletter_changelist"
LETTER = "admin:runtime_deadletter_change"


@pytest.fixture
def boss() -> User:
    return make_superuser()


@pytest.fixture
def admin(boss: User) -> Client:
    client = Client()
    client.force_login(boss)
    return client


def make_letter(number: int = 1, **fields: object) -> DeadLetter:
    body = fields.setdefault("body", encode(RunQueued(run=7)))
    assert isinstance(body, bytes)
    values = {
        "message_id": f"m{number}",
        "queue": "runners",
        "reason": "the run 7 does not exist",
        "body_size": len(body),
        "died_at": timezone.now(),
        **fields,
    }
    return DeadLetter.objects.create(**values)


def make_daemon(name: str, *, age: float = 0, **fields: object) -> Daemon:
    values = {
        "kind": "center",
        "host": "box",
        "pid": 1,
        "boot": "b",
        "state": DaemonState.RUNNING,
        "beat_at": timezone.now() - timedelta(seconds=age),
        **fields,
    }
    return Daemon.objects.create(name=name, **values)


def said(response: object) -> list[str]:
    return [str(message) for message in response.context["messages"]]  # type: ignore[attr-defined]


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("model", ["deadletter", "daemon", "outboxmessage"])
def test_only_those_who_see_everything_see_the_machinery(model: str, admin: Client) -> None:
    address = reverse(f"admin:runtime_{model}_changelist")
    assert admin.get(address).status_code == 200
    client = Client()
    client.force_login(make_user(roles={make_project(): Role.ADMIN}))
    assert client.get(address).status_code == 403
    stranger = Client().get(address)
    assert stranger.status_code == 302
    assert "login" in stranger.headers["Location"]


def test_the_list_names_reason_queue_size_and_state(admin: Client) -> None:
    make_letter()
    page = admin.get(reverse(LETTERS)).content.decode()
    for text in ("the run 7 does not exist", "runners", "held", "bytes"):
        assert text in page


def test_the_list_loads_no_body_and_asks_a_fixed_number_of_queries(
    admin: Client, django_assert_max_num_queries: object
) -> None:
    for number in range(30):
        make_letter(number, body=b"x" * 1000)
    with django_assert_max_num_queries(12) as captured:  # type: ignore[operator]
        assert admin.get(reverse(LETTERS)).status_code == 200
    selects = [q["sql"] for q in captured.captured_queries if "runtime_deadletter" in q["sql"]]
    assert selects
    assert not any('"runtime_deadletter"."body",' in sql for sql in selects)


def test_the_page_of_a_letter_shows_its_message(admin: Client) -> None:
    letter = make_letter(headers={"color": "red"})
    page = admin.get(reverse(LETTER, args=[letter.pk])).content.decode()
    assert "run_queued" in page
    assert "&quot;run&quot;: 7" in page
    assert "&quot;color&quot;: &quot;red&quot;" in page
    assert "Requeue" in page
    assert "Drop" in page


def test_no_secret_of_a_message_is_shown(admin: Client) -> None:
    request = DownloadRequest(url="https://a/", headers={"Cookie": "s3cret"})
    batch = DownloadBatch(
        run=1,
        token="r1.s3cret",
        reply_to="q",
        items=[RequestItem(1, 1, "a", "", encode_request(request))],
        sent_at=1.0,
    )
    letter = make_letter(body=encode(batch), headers={"x-auth-token": "s3cret"})
    page = admin.get(reverse(LETTER, args=[letter.pk])).content.decode()
    assert "https://a/" in page
    assert "s3cret" not in page


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    "body", [b"<script>alert(1)</script>", b'{"a": "<script>alert(1)</script>"}', b"\xff<script>"]
)
def test_a_message_cannot_put_anything_into_the_page(admin: Client, body: bytes) -> None:
    letter = make_letter(
        body=body,
        reason="<script>alert(1)</script>",
        queue="<script>q",
        headers={"<script>h": "<script>v"},
    )
    for address in (reverse(LETTERS), reverse(LETTER, args=[letter.pk])):
        page = admin.get(address).content.decode()
        assert "<script>alert(1)" not in page
        assert "<script>q" not in page
        assert "<script>h" not in page
        assert "<script>v" not in page


@pytest.mark.slow("2 s")
def test_a_huge_body_is_cut(admin: Client) -> None:
    letter = make_letter(body=b"x" * 2_000_000)
    response = admin.get(reverse(LETTER, args=[letter.pk]))
    assert ", truncated" in response.content.decode()
    assert len(response.content) < 500_000


def test_requeue_sends_it_back_and_is_on_record(admin: Client, boss: User) -> None:
    letter = make_letter()
    address = reverse("admin:runtime_deadletter_requeue", args=[letter.pk])
    assert admin.get(address).status_code == 405, "a link changes nothing"

    response = admin.post(address, follow=True)

    assert said(response) == ["The message was requeued."]
    letter.refresh_from_db()
    assert (letter.state, letter.resolved_by) == (DeadLetterState.REQUEUED, boss.username)
    message = OutboxMessage.objects.get()
    assert (message.key, message.message_id) == ("runners", "m1")
    entry = AuditRecord.objects.get(action="runtime.requeue_dead_letter")
    assert (entry.actor, entry.object_id) == (boss, str(letter.pk))

    again = admin.post(address, follow=True)
    assert said(again) == ["This dead letter has already been requeued or dropped."]
    assert OutboxMessage.objects.count() == 1
    assert "Requeue" not in again.content.decode().split("<form")[-1]


def test_drop_gives_it_up_and_is_on_record(admin: Client) -> None:
    letter = make_letter()
    response = confirm(
        admin, reverse("admin:runtime_deadletter_drop", args=[letter.pk]), follow=True
    )
    assert said(response) == ["The message was dropped."]
    letter.refresh_from_db()
    assert letter.state == DeadLetterState.DROPPED
    assert AuditRecord.objects.filter(action="runtime.drop_dead_letter").count() == 1
    assert not OutboxMessage.objects.exists()


def test_the_buttons_want_a_token_against_forged_requests(boss: User) -> None:
    letter = make_letter()
    client = Client(enforce_csrf_checks=True)
    client.force_login(boss)
    for verb in ("requeue", "drop"):
        address = reverse(f"admin:runtime_deadletter_{verb}", args=[letter.pk])
        assert client.post(address).status_code == 403
    letter.refresh_from_db()
    assert letter.state == DeadLetterState.HELD


def test_those_of_a_project_cannot_decide(boss: User) -> None:
    letter = make_letter()
    client = Client()
    client.force_login(make_user(roles={make_project(): Role.ADMIN}))
    for verb in ("requeue", "drop"):
        address = reverse(f"admin:runtime_deadletter_{verb}", args=[letter.pk])
        assert client.post(address).status_code == 404
    letter.refresh_from_db()
    assert letter.state == DeadLetterState.HELD


def test_bulk_actions_report_what_they_did_and_what_they_could_not(admin: Client) -> None:
    letters = [make_letter(number) for number in range(3)]
    lost = [make_letter(number, queue="") for number in (10, 11)]
    DeadLetter.objects.filter(pk=letters[0].pk).update(
        state=DeadLetterState.DROPPED, resolved_at=timezone.now()
    )
    response = admin.post(
        reverse(LETTERS),
        {"action": "requeue_selected", "_selected_action": [x.pk for x in (*letters, *lost)]},
        follow=True,
    )
    texts = said(response)
    assert "2 messages were requeued." in texts
    assert "This dead letter has already been requeued or dropped." in texts
    assert any(text.startswith("2 × ") for text in texts)
    assert OutboxMessage.objects.count() == 2
    assert AuditRecord.objects.filter(action="runtime.requeue_dead_letter").count() == 2

    response = confirm(
        admin,
        reverse(LETTERS),
        {"action": "drop_selected", "_selected_action": [lost[0].pk]},
        follow=True,
    )
    assert said(response) == ["1 message was dropped."]


def test_nobody_adds_changes_or_deletes_a_letter(admin: Client) -> None:
    letter = make_letter()
    assert admin.get(reverse("admin:runtime_deadletter_add")).status_code == 403
    assert (
        admin.get(reverse("admin:runtime_deadletter_delete", args=[letter.pk])).status_code == 403
    )
    assert admin.post(reverse(LETTER, args=[letter.pk]), {"queue": "x"}).status_code == 403


def test_processes_are_told_apart_by_their_last_heartbeat(admin: Client) -> None:
    make_daemon("alive")
    make_daemon("dead", age=3600)
    make_daemon("sick", state=DaemonState.FAILING, detail={"error": "OSError: disk <full>"})
    make_daemon("gone", age=3600, state=DaemonState.STOPPED)
    page = admin.get(reverse("admin:runtime_daemon_changelist")).content.decode()
    assert page.count("silent (was running)") == 1
    assert "disk &lt;full&gt;" in page
    for text in ("running", "failing", "stopped", "seconds ago", "1\u00a0hour"):
        assert text in page


def test_the_list_of_processes_asks_a_fixed_number_of_queries(
    admin: Client, django_assert_max_num_queries: object
) -> None:
    for number in range(30):
        make_daemon(f"d{number}")
    with django_assert_max_num_queries(12):  # type: ignore[operator]
        assert admin.get(reverse("admin:runtime_daemon_changelist")).status_code == 200


def test_only_the_dead_can_be_forgotten(admin: Client) -> None:
    daemons = [make_daemon("alive"), make_daemon("dead", age=3600)]
    page = admin.get(reverse("admin:runtime_daemon_change", args=[daemons[0].pk]))
    assert page.status_code == 200
    response = confirm(
        admin,
        reverse("admin:runtime_daemon_changelist"),
        {"action": "forget_selected", "_selected_action": [daemon.pk for daemon in daemons]},
        follow=True,
    )
    assert said(response) == ["1 process was removed.", "1 process is alive and stays."]
    assert Daemon.objects.get().name == "alive"
    assert AuditRecord.objects.filter(action="runtime.forget_daemon").count() == 1


def test_the_outbox_shows_what_waits_and_why(admin: Client) -> None:
    message = OutboxMessage.objects.create(
        message_id="m1", key="agent.gone", body=encode(RunQueued(run=7)), error="no queue for it"
    )
    page = admin.get(reverse("admin:runtime_outboxmessage_changelist")).content.decode()
    assert "agent.gone" in page
    assert "no queue for it" in page
    page = admin.get(reverse("admin:runtime_outboxmessage_change", args=[message.pk])).content
    assert b"run_queued" in page


@pytest.mark.slow("1 s")
def test_what_waits_is_sent_now_or_never_and_is_on_record(admin: Client) -> None:
    stuck, unwanted, *rest = [make_outgoing() for _each in range(4)]
    page = admin.get(reverse("admin:runtime_outboxmessage_change", args=[stuck.pk])).content
    assert b"Send now" in page
    sent = admin.post(reverse("admin:runtime_outboxmessage_retry", args=[stuck.pk]), follow=True)
    assert said(sent) == ["The message is being sent."]
    stuck.refresh_from_db()
    assert stuck.next_try_at is None
    entry = AuditRecord.objects.get(action="runtime.retry_outbox_message")
    assert (entry.object_id, bool(entry.before["next_try_at"])) == (str(stuck.pk), True)
    assert entry.after == {"next_try_at": None}

    drop = reverse("admin:runtime_outboxmessage_drop", args=[unwanted.pk])
    assert said(confirm(admin, drop, follow=True)) == ["The message was dropped."]
    assert not OutboxMessage.objects.filter(pk=unwanted.pk).exists()
    entry = AuditRecord.objects.get(action="runtime.drop_outbox_message")
    assert (entry.object_id, entry.before["key"]) == (str(unwanted.pk), "events")

    chosen = {"action": "retry_selected", "_selected_action": [each.pk for each in rest]}
    done = admin.post(reverse("admin:runtime_outboxmessage_changelist"), chosen, follow=True)
    assert said(done) == ["2 messages are being sent."]
    assert AuditRecord.objects.filter(action="runtime.retry_outbox_message").count() == 3


def test_of_what_waits_others_decide_nothing() -> None:
    message = make_outgoing()
    for person in (make_auditor(), make_user(roles={make_project(): Role.ADMIN})):
        client = enter(person)
        for verb in ("retry", "drop"):
            address = reverse(f"admin:runtime_outboxmessage_{verb}", args=[message.pk])
            assert client.post(address).status_code == 404
    page = enter(make_auditor()).get(
        reverse("admin:runtime_outboxmessage_change", args=[message.pk])
    )
    assert (page.status_code, b"Send now" in page.content) == (200, False)
    message.refresh_from_db()
    assert message.next_try_at is not None
