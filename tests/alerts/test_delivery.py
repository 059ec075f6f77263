"""Delivery of notifications to real servers: retries, rate limits and digests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.alerts.models import Notice
from apps.alerts.services.delivery import GIVE_UP_AFTER, send_notices
from apps.alerts.states import ChannelKind, IncidentState, NoticeKind, NoticeProblem, NoticeState
from apps.projects.engine.signatures import check_standard
from tests.alerts.factories import NOW, make_channel, make_incident, make_notice
from tests.alerts.servers import (
    Asked,
    Mailbox,
    Reply,
    Server,
    dingtalk,
    feishu,
    json_reply,
    mail_server,
    serving,
    wecom,
)
from tests.jobs.factories import make_project

pytestmark = pytest.mark.django_db
KEY = "SEC1234567890abcdef"


@pytest.fixture(autouse=True)
def near(settings: Any) -> None:
    """Allow the local servers of these tests."""
    settings.ALERTS_ALLOWED_NETWORKS = ["127.0.0.0/8"]


@pytest.fixture
def mailbox(settings: Any) -> Iterator[Mailbox]:
    """Run a mail server and configure it."""
    with mail_server(login="ops s3cret-of-mail") as box:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", box.port
        settings.EMAIL_HOST_USER, settings.EMAIL_HOST_PASSWORD = "ops", "s3cret-of-mail"
        settings.DEFAULT_FROM_EMAIL = "Crawlyard <yard@example.com>"
        yield box


@pytest.fixture
def hook() -> Iterator[Server]:
    """Run a server that accepts every request."""
    with serving(lambda _asked: json_reply()) as server:
        yield server


def state_of(notice: Notice) -> tuple[str, str, str]:
    notice.refresh_from_db()
    return notice.state, notice.problem, notice.answer


def by_hook(server: Server, **fields: Any) -> Any:
    secrets = {"url": f"{server.url}/hook/pa55word", "key": KEY}
    return make_channel(kind=ChannelKind.WEBHOOK, secrets=secrets, settings={}, **fields)


def test_dingtalk_wants_a_signature_in_the_address() -> None:
    with serving(dingtalk(KEY, NOW)) as robot:
        url = f"{robot.url}/robot/send?access_token=t0ken"
        channel = make_channel(
            kind=ChannelKind.DINGTALK,
            secrets={"url": url, "key": KEY},
            settings={"mobiles": ["13800000000"], "all": False},
        )
        notice = make_notice(channel=channel)
        assert send_notices(channel=channel.pk, now=NOW) == 1
        assert state_of(notice) == (NoticeState.SENT, "", "0 ok")
        body = robot.heard[0].json
        assert "[warning] job news: run 7 failed (exit 1)" in body["text"]["content"]
        assert "@13800000000" in body["text"]["content"]
        assert body["at"] == {"atMobiles": ["13800000000"], "isAtAll": False}


def test_a_robot_refuses_with_http_200() -> None:
    with serving(dingtalk("another key", NOW)) as robot:
        url = f"{robot.url}/robot/send?access_token=t0ken"
        channel = make_channel(kind=ChannelKind.DINGTALK, secrets={"url": url, "key": KEY})
        notice = make_notice(channel=channel)
        assert send_notices(channel=channel.pk, now=NOW) == 0
    assert state_of(notice) == (NoticeState.WAITING, NoticeProblem.REFUSED, "310000 sign not match")
    assert notice.next_try_at is not None
    assert 5 <= (notice.next_try_at - NOW).total_seconds() < 12


def test_wecom_is_told_at_most_what_it_takes() -> None:
    with serving(wecom) as robot:
        channel = make_channel(
            kind=ChannelKind.WECOM,
            secrets={"url": f"{robot.url}/cgi-bin/webhook/send?key=k3y"},
            settings={"all": True, "mobiles": []},
            language="zh-hans",
        )
        incident = make_incident(facts={"job": "价" * 3000, "reason": "x" * 3000})
        notice = make_notice(channel=channel, incident=incident)
        send_notices(channel=channel.pk, now=NOW)
        assert state_of(notice)[0] == NoticeState.SENT
        assert robot.heard[0].json["text"]["mentioned_mobile_list"] == ["@all"]


def test_feishu_wants_a_signature_in_the_body() -> None:
    with serving(feishu(KEY, NOW)) as robot:
        url = f"{robot.url}/open-apis/bot/v2/hook/t0ken"
        channel = make_channel(kind=ChannelKind.FEISHU, secrets={"url": url, "key": KEY})
        notice = make_notice(channel=channel)
        send_notices(channel=channel.pk, now=NOW)
        assert state_of(notice) == (NoticeState.SENT, "", "0 success")
        wrong = make_channel(kind=ChannelKind.FEISHU, secrets={"url": url, "key": "wrong"})
        notice = make_notice(channel=wrong)
        send_notices(channel=wrong.pk, now=NOW)
    state, problem, answer = state_of(notice)
    assert (state, problem) == (NoticeState.WAITING, NoticeProblem.REFUSED)
    assert answer.startswith("19021 sign match fail")


def test_a_webhook_is_signed_and_keeps_its_id(hook: Server) -> None:
    channel = by_hook(hook, project=make_project(slug="news"))
    notice = make_notice(channel=channel)
    hook.reply = lambda _asked: json_reply(503, why="try later")
    send_notices(channel=channel.pk, now=NOW)
    assert state_of(notice)[1] == NoticeProblem.REFUSED
    hook.reply = lambda _asked: json_reply()
    later = NOW + timedelta(seconds=20)
    send_notices(channel=channel.pk, now=later)
    assert state_of(notice)[0] == NoticeState.SENT
    first, second = hook.heard
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == f"notice_{notice.pk}"
    check_standard(
        KEY,
        second.body,
        message_id=second.headers["webhook-id"],
        timestamp=second.headers["webhook-timestamp"],
        signatures=second.headers["webhook-signature"],
        now=later.timestamp(),
    )
    told = second.json
    assert told["type"] == "incident.opened"
    assert told["timestamp"] == "2026-03-01T12:00:00Z"
    assert told["data"]["project"] == "news"
    assert told["data"]["facts"] == {"job": "news", "run": 7, "reason": "exit 1"}


def test_what_is_sent_again_by_a_person_has_the_same_id(hook: Server) -> None:
    channel = by_hook(hook)
    first = make_notice(channel=channel, state=NoticeState.SENT, next_try_at=None)
    make_notice(channel=channel, incident=first.incident, resent_of=first)
    send_notices(channel=channel.pk, now=NOW)
    assert [each.headers["webhook-id"] for each in hook.heard] == [f"notice_{first.pk}"]


@pytest.mark.fault
def test_it_is_tried_for_a_day_with_growing_pauses(hook: Server) -> None:
    hook.reply = lambda _asked: json_reply(500)
    channel = by_hook(hook)
    notice = make_notice(channel=channel)
    at, pauses = NOW, []
    while notice.state == NoticeState.WAITING:
        assert notice.next_try_at is not None
        at = max(at, notice.next_try_at)
        send_notices(channel=channel.pk, now=at)
        notice.refresh_from_db()
        if notice.next_try_at is not None:
            pauses.append((notice.next_try_at - at).total_seconds())
    assert notice.state == NoticeState.FAILED
    assert at - NOW > GIVE_UP_AFTER
    assert pauses[0] < 14 < pauses[2] < max(pauses) < 2200
    assert len(hook.heard) == notice.attempts < 110


def test_a_server_says_how_long_to_wait_or_never_again(hook: Server) -> None:
    channel = by_hook(hook)
    notice = make_notice(channel=channel)
    hook.reply = lambda _asked: (429, {"Retry-After": "120"}, b"")
    send_notices(channel=channel.pk, now=NOW)
    assert state_of(notice)[1] == NoticeProblem.TOO_MANY
    assert notice.next_try_at is not None
    assert 120 <= (notice.next_try_at - NOW).total_seconds() < 125
    hook.reply = lambda _asked: (410, {}, b"")
    send_notices(channel=channel.pk, now=NOW + timedelta(minutes=5))
    assert state_of(notice)[0] == NoticeState.FAILED
    channel.refresh_from_db()
    assert not channel.enabled
    assert AuditRecord.objects.get().note == "HTTP 410"


@pytest.mark.fault
def test_a_worker_that_dies_loses_nothing(hook: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = by_hook(hook)
    notice = make_notice(channel=channel)

    def die(name: str) -> None:
        if name == "alerts.notice_claimed":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("apps.alerts.services.delivery.failpoints.hit", die)
        with pytest.raises(KeyboardInterrupt):
            send_notices(channel=channel.pk, now=NOW)
    assert send_notices(channel=channel.pk, now=NOW + timedelta(seconds=30)) == 0, "in hand"
    assert send_notices(channel=channel.pk, now=NOW + timedelta(minutes=4)) == 1
    assert state_of(notice)[0] == NoticeState.SENT
    assert len(hook.heard) == 1


def test_newer_news_takes_the_place_of_what_could_not_be_told(hook: Server) -> None:
    hook.reply = lambda _asked: json_reply(500)
    channel, incident = by_hook(hook), make_incident()
    opened = make_notice(channel=channel, incident=incident)
    send_notices(channel=channel.pk, now=NOW)
    over = make_notice(channel=channel, incident=incident, kind=NoticeKind.RECOVERED)
    incident.state, incident.ended_at = IncidentState.RECOVERED, NOW + timedelta(minutes=9)
    incident.save()
    hook.reply = lambda _asked: json_reply()
    send_notices(channel=channel.pk, now=NOW + timedelta(minutes=10))
    assert state_of(opened)[0] == NoticeState.DROPPED
    assert state_of(over)[0] == NoticeState.SENT
    assert hook.heard[-1].json["type"] == "incident.recovered"
    assert hook.heard[-1].json["timestamp"] == "2026-03-01T12:09:00Z"


def test_a_storm_is_one_message() -> None:
    with serving(wecom) as robot:
        channel = make_channel(
            kind=ChannelKind.WECOM, secrets={"url": f"{robot.url}/send?key=k3y"}, settings={}
        )
        for number in range(40):
            make_notice(channel=channel, incident=make_incident(key=f"job:{number}"))
        assert send_notices(channel=channel.pk, now=NOW) == 40
        texts = [each.json["text"]["content"] for each in robot.heard]
    assert [text.splitlines()[0] for text in texts] == ["30 alerts", "10 alerts"]
    assert Notice.objects.filter(state=NoticeState.SENT).count() == 40
    assert Notice.objects.values("message").distinct().count() == 2


def test_no_channel_is_called_more_often_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "apps.alerts.services.delivery.PER_MINUTE", {ChannelKind.WECOM: 2}, raising=True
    )
    with serving(wecom) as robot:
        channel = make_channel(
            kind=ChannelKind.WECOM, secrets={"url": f"{robot.url}/send?key=k3y"}, settings={}
        )
        for _number in range(3):
            make_notice(channel=channel)
        assert send_notices(channel=channel.pk, now=NOW) == 2
        assert send_notices(channel=channel.pk, now=NOW + timedelta(seconds=30)) == 0
        assert send_notices(channel=channel.pk, now=NOW + timedelta(seconds=70)) == 1
        assert len(robot.heard) == 3


def test_what_waits_for_a_channel_that_was_switched_off_is_given_up(hook: Server) -> None:
    channel = by_hook(hook, enabled=False)
    notice = make_notice(channel=channel)
    test = Notice.objects.create(
        channel=channel,
        channel_name=channel.name,
        kind=NoticeKind.TEST,
        created_at=NOW,
        next_try_at=NOW,
    )
    send_notices(channel=channel.pk, now=NOW)
    assert state_of(notice)[:2] == (NoticeState.FAILED, NoticeProblem.OFF)
    assert state_of(test)[0] == NoticeState.SENT
    assert hook.heard[0].json["type"] == "test"


def test_a_test_is_tried_once(hook: Server) -> None:
    hook.reply = lambda _asked: json_reply(500)
    channel = by_hook(hook)
    test = Notice.objects.create(
        channel=channel,
        channel_name=channel.name,
        kind=NoticeKind.TEST,
        created_at=NOW,
        next_try_at=NOW,
    )
    send_notices(channel=channel.pk, now=NOW)
    assert state_of(test)[:2] == (NoticeState.FAILED, NoticeProblem.REFUSED)


def test_mail_goes_to_each_receiver_in_the_channels_language(mailbox: Mailbox) -> None:
    channel = make_channel(settings={"to": ["a@example.com", "b@example.com"]})
    incident = make_incident(project=make_project(name="新闻\r\nBcc: evil@example.com"))
    notice = make_notice(channel=channel, incident=incident)
    send_notices(channel=channel.pk, now=NOW)
    assert state_of(notice)[0] == NoticeState.SENT
    assert [receiver for receiver, _mail in mailbox.received] == ["a@example.com", "b@example.com"]
    assert mailbox.logins == ["ops s3cret-of-mail"]
    mail = mailbox.received[0][1]
    assert mail["To"] == "a@example.com"
    assert mail["From"] == "Crawlyard <yard@example.com>"
    assert mail["Bcc"] is None
    assert mail["References"] == f"<incident-{incident.pk}@example.com>"
    assert mail["Message-ID"].startswith(f"<notice_{notice.pk}.a-example-com@")
    assert "[warning]" in mail["Subject"]
    text = mail.get_content()
    assert "新闻 Bcc: evil@example.com" in text
    assert f"/admin/alerts/incident/{incident.pk}/change/" in text


def test_only_those_who_have_it_not_get_it_again(mailbox: Mailbox) -> None:
    mailbox.unknown = {"b@example.com"}
    channel = make_channel(settings={"to": ["a@example.com", "b@example.com", "c@example.com"]})
    notice = make_notice(channel=channel)
    send_notices(channel=channel.pk, now=NOW)
    assert state_of(notice) == (
        NoticeState.WAITING,
        NoticeProblem.REFUSED,
        "b@example.com: 550 5.1.1 no such mailbox",
    )
    mailbox.unknown = set()
    send_notices(channel=channel.pk, now=NOW + timedelta(minutes=1))
    assert state_of(notice)[0] == NoticeState.SENT
    assert [receiver for receiver, _mail in mailbox.received] == [
        "a@example.com",
        "c@example.com",
        "b@example.com",
    ]


@pytest.mark.fault
def test_mail_waits_for_its_server(mailbox: Mailbox, settings: Any) -> None:
    channel = make_channel()
    notice = make_notice(channel=channel)
    mailbox.is_broken = True
    send_notices(channel=channel.pk, now=NOW)
    assert state_of(notice)[1:] == (NoticeProblem.REFUSED, "SMTPDataError 451 4.3.0 disk full")
    mailbox.is_broken = False
    settings.EMAIL_HOST_PASSWORD = "wrong-s3cret"
    send_notices(channel=channel.pk, now=NOW + timedelta(minutes=1))
    assert "535 5.7.8 bad credentials" in state_of(notice)[2]
    assert "wrong-s3cret" not in notice.answer
    settings.EMAIL_PORT = 1
    send_notices(channel=channel.pk, now=NOW + timedelta(minutes=2))
    assert state_of(notice)[1] == NoticeProblem.NO_ANSWER
    settings.EMAIL_PORT, settings.EMAIL_HOST_PASSWORD = mailbox.port, "s3cret-of-mail"
    send_notices(channel=channel.pk, now=NOW + timedelta(hours=1))
    assert state_of(notice)[0] == NoticeState.SENT


def test_a_text_message_goes_by_whatever_gateway_there_is() -> None:
    with serving(lambda _asked: json_reply(code="OK")) as gateway:
        channel = make_channel(
            kind=ChannelKind.SMS,
            secrets={"secret": "gat3way"},
            settings={
                "url": f"{gateway.url}/send?to={{number}}",
                "method": "POST",
                "content": "json",
                "body": '{"to": ["{number}"], "text": "{text}", "id": "{id}"}',
                "headers": {"Authorization": "Bearer {secret}"},
                "numbers": ["+8613800000000", "+8613900000000"],
                "success": '"OK"',
            },
        )
        incident = make_incident(facts={"job": '"}, {"x', "reason": "{secret}"})
        notice = make_notice(channel=channel, incident=incident)
        send_notices(channel=channel.pk, now=NOW)
        assert state_of(notice)[0] == NoticeState.SENT
        first, second = gateway.heard
        assert first.path == "/send?to=%2B8613800000000"
        assert first.headers["authorization"] == "Bearer gat3way"
        assert first.json["to"] == ["+8613800000000"]
        assert '"}, {"x' in first.json["text"]
        assert "{secret}" in first.json["text"], "no fact is read as a template"
        assert second.json["to"] == ["+8613900000000"]
        # The gateway rejects with HTTP 200.
        gateway.reply = lambda _asked: json_reply(code="BUSY", secret="gat3way")
        notice = make_notice(channel=channel)
        send_notices(channel=channel.pk, now=NOW)
        assert state_of(notice)[1] == NoticeProblem.REFUSED
        assert "BUSY" in notice.answer
        assert "gat3way" not in notice.answer


def test_a_wrong_number_keeps_no_other_from_being_told() -> None:
    def reply(asked: Asked) -> Reply:
        wrong = asked.json["to"] == "+1"
        return json_reply(400, error="no such number") if wrong else json_reply()

    with serving(reply) as gateway:
        channel = make_channel(
            kind=ChannelKind.SMS,
            settings={
                "url": f"{gateway.url}/",
                "body": '{"to": "{number}", "text": "{text}"}',
                "numbers": ["+1", "+2", "+3"],
            },
        )
        notice = make_notice(channel=channel)
        send_notices(channel=channel.pk, now=NOW)
        assert state_of(notice)[:2] == (NoticeState.WAITING, NoticeProblem.REFUSED)
        assert notice.answer.startswith("+1: HTTP 400")
        assert notice.delivered == ["+2", "+3"]
        # Only the missing recipient is retried.
        send_notices(channel=channel.pk, now=NOW + timedelta(hours=1))
        assert [each.json["to"] for each in gateway.heard] == ["+1", "+2", "+3", "+1"]


def test_a_gateway_of_forms() -> None:
    with serving(lambda _asked: json_reply()) as gateway:
        channel = make_channel(
            kind=ChannelKind.SMS,
            secrets={"secret": "p&ss"},
            settings={
                "url": f"{gateway.url}/",
                "method": "POST",
                "content": "form",
                "body": "phone={number}&password={secret}&msg={text}",
                "numbers": ["13800000000"],
            },
        )
        make_notice(channel=channel, incident=make_incident(facts={"job": "a&phone=1"}))
        send_notices(channel=channel.pk, now=NOW)
        heard = gateway.heard[0]
    assert heard.headers["content-type"].startswith("application/x-www-form-urlencoded")
    assert heard.body.startswith(b"phone=13800000000&password=p%26ss&msg=")
    assert heard.body.count(b"phone=") == 1


def test_a_channel_that_cannot_work_says_so() -> None:
    channel = make_channel(
        kind=ChannelKind.SMS,
        settings={"url": "http://127.0.0.1/", "body": "{no json", "numbers": ["1"]},
    )
    notice = make_notice(channel=channel)
    send_notices(channel=channel.pk, now=NOW)
    assert state_of(notice)[:2] == (NoticeState.WAITING, NoticeProblem.SETTINGS)
