"""Fields of each channel kind: validation and write-only secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.alerts.errors import BadChannel, ChannelExists, ChannelInUse
from apps.alerts.models import Channel
from apps.alerts.services.channel_fields import shown_host
from apps.alerts.services.channels import change_channel, create_channel, delete_channel
from apps.alerts.services.delivery import secrets_of
from apps.alerts.states import ChannelKind, NoticeProblem, NoticeState
from apps.configcenter.services import activate, save_version
from tests.access.factories import make_superuser
from tests.alerts.factories import NOW, make_channel, make_notice
from tests.jobs.factories import make_project

pytestmark = pytest.mark.django_db

KEY = "a-key-of-some-length"
GOOD: dict[str, dict[str, Any]] = {
    ChannelKind.MAIL: {"to": "a@example.com, b@example.com\na@example.com"},
    ChannelKind.SMS: {
        "numbers": ["+86 138-0000-0000"],
        "url": "https://sms.example.com/send?to={number}",
        "body": '{"text": "{text}"}',
        "headers": "Authorization: Bearer {secret}\nX-Id: {id}",
        "secret": "gat3way",
    },
    ChannelKind.WEBHOOK: {"url": "https://hooks.example.com/x", "key": KEY},
    ChannelKind.DINGTALK: {
        "url": "https://oapi.dingtalk.com/robot/send?access_token=t0ken",
        "key": "SEC12345678",
        "mobiles": ["13800000000"],
        "all": True,
    },
    ChannelKind.WECOM: {"url": "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=k3y-of-robot"},
    ChannelKind.FEISHU: {"url": "https://open.feishu.cn/open-apis/bot/v2/hook/t0ken-of-robot"},
    ChannelKind.SLACK: {"url": "https://hooks.slack.com/services/T000/B000/t0ken"},
    ChannelKind.TEAMS: {"url": "https://prod-1.westus.logic.azure.com/workflows/x?sig=t0ken"},
    ChannelKind.DISCORD: {"url": "https://discord.com/api/webhooks/1/t0ken"},
    ChannelKind.TELEGRAM: {"token": "123456:ABC-t0ken-of-bot", "chat": "-100123"},
    ChannelKind.PAGERDUTY: {"key": "t0ken-of-32-characters-or-so"},
    ChannelKind.OPSGENIE: {"key": "t0ken-of-an-integration"},
    ChannelKind.NTFY: {"topic": "t0ken-topic", "url": "https://ntfy.example.com"},
}


def make(kind: str, typed: dict[str, Any], **fields: Any) -> Channel:
    values = {"project_id": None, "name": "ops", "actor": None}
    return create_channel(kind=kind, typed=typed, **(values | fields))


def refused(kind: str, **changed: Any) -> dict[str, str]:
    with pytest.raises(BadChannel) as found:
        make(kind, GOOD[kind] | changed)
    return {name: str(texts[0]) for name, texts in found.value.fields.items()}


@pytest.mark.parametrize("kind", ChannelKind.values)
def test_each_kind_is_kept_with_its_secrets_sealed(kind: str) -> None:
    channel = make(kind, GOOD[kind])
    channel.refresh_from_db()
    shown = json.dumps(channel.settings)
    for value in secrets_of(channel).values():
        assert value not in shown
        assert value not in json.dumps(AuditRecord.objects.get().after)
    assert "t0ken" not in shown


def test_lists_are_cleaned() -> None:
    assert make(ChannelKind.MAIL, GOOD["mail"]).settings == {
        "to": ["a@example.com", "b@example.com"]
    }
    assert make(ChannelKind.SMS, GOOD["sms"], name="sms").settings["numbers"] == ["+8613800000000"]


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("mail", "to", ""),
        ("mail", "to", "a@example.com\r\nBcc: x"),
        ("mail", "to", ["no address"]),
        ("mail", "to", [f"a{number}@example.com" for number in range(51)]),
        ("mail", "colour", "red"),
        ("sms", "numbers", ["12x"]),
        ("sms", "url", "ftp://x/"),
        ("sms", "url", "https://{number}.example.com/{text}"),
        ("sms", "body", "{"),
        ("sms", "body", '{"to": "{number}"}'),
        ("sms", "headers", "no header"),
        ("sms", "headers", {"Authorization": "Bearer plain-t0ken"}),
        ("sms", "headers", {"X": "a\r\nY: b"}),
        ("sms", "method", "DELETE"),
        ("sms", "characters", "9"),
        ("sms", "characters", "9" * 5_000),
        ("webhook", "url", "http://127.0.0.1/"),
        ("webhook", "url", "http://169.254.169.254/latest"),
        ("webhook", "url", "https://user:pass@example.com/"),
        ("webhook", "url", "https://[::1/"),
        ("webhook", "key", "short"),
        ("webhook", "key", "whsec_%%%%%%%%%%%%%%%%%"),
        ("webhook", "key", ""),
        ("dingtalk", "url", "https://oapi.dingtalk.com/robot/send"),
        ("dingtalk", "all", "yes"),
        ("wecom", "url", "https://qyapi.weixin.qq.com/cgi-bin/webhook/send"),
        ("feishu", "url", "https://open.feishu.cn/open-apis/bot/v2/t0ken"),
        ("slack", "url", "https://hooks.slack.com/services/T000"),
        ("slack", "url", "http://10.0.0.1/services/T000/B000/t0ken"),
        ("teams", "url", "https://prod-1.westus.logic.azure.com/"),
        ("discord", "url", "https://discord.com/channels/1/t0ken"),
        ("telegram", "token", "t0ken"),
        ("telegram", "topic", "first"),
        ("pagerduty", "key", "t0ken"),
        ("opsgenie", "url", "https://user:t0ken@example.com"),
        ("ntfy", "topic", "a/t0ken"),
    ],
)
def test_what_cannot_work_is_refused_where_it_stands(kind: str, field: str, value: Any) -> None:
    found = refused(kind, **{field: value})
    assert set(found) == {field}
    assert "t0ken" not in found[field]


def test_networks_that_are_allowed_may_be_called(settings: Any) -> None:
    settings.ALERTS_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    channel = make(ChannelKind.WEBHOOK, {"url": "http://127.0.0.1:9/x", "key": KEY})
    assert shown_host(secrets_of(channel), channel.settings) == "127.0.0.1"


def test_names_are_told_apart_by_project() -> None:
    project = make_project()
    make(ChannelKind.MAIL, GOOD["mail"])
    make(ChannelKind.MAIL, GOOD["mail"], project_id=project.pk)
    for taken in (None, project.pk):
        with pytest.raises(ChannelExists):
            make(ChannelKind.MAIL, GOOD["mail"], project_id=taken)
    with pytest.raises(BadChannel, match="not configured"):
        make(ChannelKind.MAIL, GOOD["mail"], name="Ops")


def test_secrets_stay_until_they_are_named() -> None:
    channel = make(ChannelKind.DINGTALK, GOOD["dingtalk"])
    changed = change_channel(channel=channel, typed={"all": False}, actor=None, language="zh-hans")
    assert changed.settings == {"mobiles": [], "all": False}
    assert secrets_of(changed)["key"] == "SEC12345678"
    changed = change_channel(channel=channel, typed={"key": ""}, actor=None)
    assert set(secrets_of(changed)) == {"url"}
    with pytest.raises(BadChannel):
        change_channel(channel=channel, typed={"url": ""}, actor=None)
    last = AuditRecord.objects.order_by("-id").first()
    assert last is not None
    assert last.after is not None
    assert last.after["changed"] == ["key"]
    assert "t0ken" not in json.dumps([last.before, last.after])


def test_what_waits_for_a_deleted_channel_is_given_up() -> None:
    channel = make_channel()
    notice = make_notice(channel=channel)
    delete_channel(channel=channel, actor=make_superuser())
    notice.refresh_from_db()
    assert (notice.state, notice.problem, notice.channel) == (
        NoticeState.FAILED,
        NoticeProblem.NO_CHANNEL,
        None,
    )


def test_a_channel_that_rules_name_stays() -> None:
    project, person = make_project(), make_superuser()
    own, shared = make_channel(name="ops", project=project), make_channel(name="oncall")
    data = {
        "rules": [
            {
                "name": "runs fail",
                "event": "run.failed",
                "tell": ["ops"],
                "escalate": [{"after_seconds": 60, "tell": ["oncall"]}],
            }
        ]
    }
    saved = save_version(kind="alerts", project_id=project.pk, data=data, actor=person, now=NOW)
    activate(version=saved.version, actor=person, now=NOW)
    for channel in (own, shared):
        with pytest.raises(ChannelInUse) as found:
            delete_channel(channel=channel, actor=person)
        assert found.value.fields == {"rules": ["runs fail"]}
    delete_channel(channel=make_channel(name="other", project=project), actor=person)
