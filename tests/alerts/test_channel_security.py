"""Channels never reveal a secret and call public addresses only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from apps.alerts.engine.channels import ChannelRequest
from apps.alerts.errors import BadChannel
from apps.alerts.models import Channel
from apps.alerts.services.channel_fields import read_fields
from apps.alerts.services.delivery import send_notices
from apps.alerts.services.http_calls import AddressNotAllowed, call
from apps.alerts.states import ChannelKind, NoticeProblem, NoticeState
from tests.alerts.factories import NOW, make_channel, make_notice
from tests.alerts.servers import Asked, Reply, Server, json_reply, serving
from tests.alerts.test_delivery import KEY, state_of

pytestmark = pytest.mark.django_db
HOSTS = json.loads((Path(__file__).parents[1] / "data/corpus/addresses.json").read_text())


@pytest.fixture(autouse=True)
def near(settings: Any) -> None:
    """Allow the local servers of these tests."""
    settings.ALERTS_ALLOWED_NETWORKS = ["127.0.0.0/8"]


@pytest.fixture
def hook() -> Iterator[Server]:
    """Run a server that accepts every request."""
    with serving(lambda _asked: json_reply()) as server:
        yield server


def by_hook(server: Server) -> Channel:
    secrets = {"url": f"{server.url}/hook/pa55word", "key": KEY}
    return make_channel(kind=ChannelKind.WEBHOOK, secrets=secrets, settings={})


def test_no_answer_holds_a_secret(hook: Server, caplog: pytest.LogCaptureFixture) -> None:
    hook.reply = lambda asked: (400, {}, f"bad {asked.path} {KEY} {hook.url}{asked.path}".encode())
    channel = by_hook(hook)
    notice = make_notice(channel=channel)
    send_notices(channel=channel.pk, now=NOW)
    answer = state_of(notice)[2]
    assert answer.startswith("HTTP 400: bad")
    assert KEY not in answer
    assert "pa55word" not in answer + caplog.text


def test_no_token_of_a_robot_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    token = "t0ken/+of=robot"
    query = urlencode({"access_token": token})

    def reply(asked: Asked) -> Reply:
        said = f"{asked.path} {asked.query['access_token']} {json.dumps(token)} {query}"
        return json_reply(errcode=300005, errmsg=said)

    with serving(reply) as robot:
        channel = make_channel(
            kind=ChannelKind.DINGTALK, secrets={"url": f"{robot.url}/robot/send?{query}"}
        )
        notice = make_notice(channel=channel)
        send_notices(channel=channel.pk, now=NOW)
    answer = state_of(notice)[2]
    assert answer.startswith("300005 •••")
    for each in (token, quote(token, safe=""), query):
        assert each not in answer + caplog.text


def test_what_cannot_be_made_says_nothing_secret(
    hook: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_args: Any, **_values: Any) -> None:
        raise RuntimeError(f"no {KEY}")

    channel = by_hook(hook)
    notice = make_notice(channel=channel)
    monkeypatch.setattr("apps.alerts.services.delivery.request_of", fail)
    send_notices(channel=channel.pk, now=NOW)
    assert state_of(notice)[1:] == (NoticeProblem.SETTINGS, "RuntimeError")
    assert KEY not in caplog.text
    assert "delivery.py" in caplog.text, "where it failed"


def test_nobody_reaches_the_inside(hook: Server, settings: Any) -> None:
    settings.ALERTS_ALLOWED_NETWORKS = []
    channel = by_hook(hook)
    notice = make_notice(channel=channel)
    send_notices(channel=channel.pk, now=NOW)
    assert state_of(notice)[:2] == (NoticeState.WAITING, NoticeProblem.ADDRESS)
    # Redirects cannot reach it either.
    settings.ALERTS_ALLOWED_NETWORKS = ["127.0.0.0/8"]
    hook.reply = lambda _asked: (302, {"Location": "http://169.254.169.254/"}, b"")
    send_notices(channel=channel.pk, now=NOW + timedelta(minutes=1))
    assert state_of(notice)[1:] == (NoticeProblem.REFUSED, "HTTP 302")
    assert len(hook.heard) == 1


def in_address(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


@pytest.mark.parametrize("host", sorted(set(HOSTS["blocked"])))
def test_no_inner_address_is_called_however_it_is_written(host: str, settings: Any) -> None:
    settings.ALERTS_ALLOWED_NETWORKS = []
    url = f"http://{in_address(host)}:9/hook"
    typed = {"url": url, "key": "0123456789abcdef"}
    with pytest.raises(BadChannel) as refused:
        read_fields(ChannelKind.WEBHOOK, typed, stored={})
    assert list(refused.value.fields) == ["url"]
    # The call checks the address again, because DNS answers may change.
    with pytest.raises(AddressNotAllowed):
        call(ChannelRequest(url=url))


@pytest.mark.parametrize("host", HOSTS["allowed"])
def test_public_addresses_are_no_trouble(host: str, settings: Any) -> None:
    settings.ALERTS_ALLOWED_NETWORKS = []
    url = f"https://{in_address(host)}/hook"
    plain, secrets = read_fields(
        ChannelKind.WEBHOOK, {"url": url, "key": "0123456789abcdef"}, stored={}
    )
    assert (plain, secrets["url"]) == ({}, url)
