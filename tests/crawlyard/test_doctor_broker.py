"""What doctor says of a broker that takes no long messages, or none of this account."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pytest

from crawlyard import diagnosis
from tests.plugins.stores import rabbitmqctl
from yardkit.broker.sqlite import SqliteBroker
from yardkit.protocol import MAX_MESSAGE_BYTES


@pytest.fixture
def limit() -> Iterator[int]:
    """One byte less than the longest message, which no other test sends either."""
    lower = MAX_MESSAGE_BYTES - 1
    change = f"application:set_env(rabbit, max_message_size, {lower})"
    before = rabbitmqctl("eval", f"V = application:get_env(rabbit, max_message_size), {change}, V.")
    try:
        yield lower
    finally:
        # {ok,134217728}
        usual = re.sub(r"\D", "", before)
        rabbitmqctl("eval", f"application:set_env(rabbit, max_message_size, {usual}).")


@pytest.fixture
def without_rights(rabbit_vhost: str) -> Iterator[str]:
    name, parts = f"test-{uuid4().hex}", urlsplit(rabbit_vhost)
    rabbitmqctl("add_user", name, "hunter2")
    try:
        vhost = unquote(parts.path[1:])
        rabbitmqctl("set_permissions", "-p", vhost, name, "^$", "^$", "^$")
        host = parts.netloc.rpartition("@")[2]
        yield parts._replace(netloc=f"{name}:hunter2@{host}").geturl()
    finally:
        rabbitmqctl("delete_user", name)


def test_the_embedded_broker_takes_long_messages(settings: Any, sqlite_broker_url: str) -> None:
    settings.BROKER_URL = sqlite_broker_url
    found = diagnosis.check_broker()
    assert (found.ok, found.detail) == (True, "connected")


def test_a_broker_that_confirms_nothing_is_named(
    settings: Any, sqlite_broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BROKER_URL = sqlite_broker_url
    monkeypatch.setattr(SqliteBroker, "publish", lambda _self, _messages: Future[None]())
    monkeypatch.setattr(diagnosis, "PUBLISH_SECONDS", 0.1)
    found = diagnosis.check_broker()
    assert not found.ok
    assert "not confirmed in 0.1 s" in found.detail
    assert "memory or disk" in found.how


@pytest.mark.services
def test_a_rabbitmq_that_takes_the_longest_message_is_well(
    settings: Any, rabbit_vhost: str
) -> None:
    settings.BROKER_URL = rabbit_vhost
    found = diagnosis.check_broker()
    assert (found.ok, found.detail) == (True, "connected")


@pytest.mark.services
@pytest.mark.slow("rabbitmqctl")
def test_a_rabbitmq_with_a_lower_limit_is_named(
    settings: Any, rabbit_vhost: str, limit: int
) -> None:
    settings.BROKER_URL = rabbit_vhost
    found = diagnosis.check_broker()
    assert not found.ok
    assert found.detail == f"the broker refuses messages of {limit + 1} bytes"
    assert "max_message_size = 16777216" in found.how


@pytest.mark.services
@pytest.mark.slow("rabbitmqctl")
def test_a_missing_right_is_named_and_is_no_failure(settings: Any, without_rights: str) -> None:
    settings.BROKER_URL = without_rights
    found = diagnosis.check_broker()
    assert found.ok
    assert "no right to write to amq.default" in found.detail
    assert "hunter2" not in found.detail + found.value
