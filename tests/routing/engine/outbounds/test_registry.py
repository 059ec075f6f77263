"""Registry of outbound classes, and its messages about invalid parameters."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.routing.engine import rules
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outbounds.base import Settings
from apps.routing.engine.outbounds.parameters import masked
from tests.routing.engine.outbounds.examples import DOCUMENT, examples

OWN = [
    "http.HttpOutbound",
    "jobs.StartRunOutbound",
    "kafka.KafkaOutbound",
    "rabbitmq.RabbitQueueOutbound",
    "redis_queue.RedisListOutbound",
    "redis_queue.RedisPriorityOutbound",
    "requests.RequestStoreOutbound",
    "seeds.SeedOutbound",
]
REDIS = "redis_queue.RedisListOutbound"
GOOD: dict[str, Any] = {"url": "redis://localhost:6379/0", "key": "captcha_spider"}
KAFKA: dict[str, Any] = {"topic": "t", "producer_settings": {"bootstrap.servers": "k:9092"}}


def check(cls: str, **init: Any) -> list[tuple[str, str]]:
    problems = registry.check(rules.Outbound("own", cls, init=init))
    assert all(problem.place.startswith("outbound own.") for problem in problems)
    return [(problem.code, str(problem)) for problem in problems]


@pytest.mark.covers("S2.24")
def test_the_names_of_rules_are_known() -> None:
    # Tests of routers bring one of their own.
    assert [name for name in registry.names() if not name.startswith("test.")] == OWN
    assert registry.parameters(REDIS) == {"url", "key"}
    assert registry.parameters("kafka.KafkaOutbound") == {
        "topic",
        "producer_settings",
        "key",
        "consumer_group",
    }
    assert registry.find(REDIS).default_expects_result is True
    assert registry.find("http.HttpOutbound").default_expects_result is False


def test_every_class_and_parameter_is_documented() -> None:
    sections = DOCUMENT.read_text("utf-8").split("\n## ")
    for name in OWN:
        section = next(one for one in sections if one.startswith(f"`{name}`"))
        if name != "redis_queue.RedisPriorityOutbound":  # "parameters as above"
            for parameter in registry.parameters(name):
                assert f"| `{parameter}` |" in section


def test_good_rules_have_no_problem() -> None:
    assert check(REDIS, **GOOD) == []
    assert check("kafka.KafkaOutbound", **KAFKA) == []
    assert check("rabbitmq.RabbitQueueOutbound", url="amqp://u:p@h/v", queue="任务") == []
    assert check("http.HttpOutbound", url="https://h/x", headers={"X-Key": "1"}) == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("redis_queue.RedisListOutbond", "did you mean redis_queue.RedisListOutbound"),
        ("redis.RedisListOutbound", "did you mean redis_queue.RedisListOutbound"),
        ("", "there are http.HttpOutbound, jobs.StartRunOutbound, kafka.KafkaOutbound"),
        ("os.system", "there are http.HttpOutbound"),
    ],
)
def test_an_unknown_class_is_told_with_what_is_near(name: str, near: str) -> None:
    [(code, text)] = check(name)
    assert code == "unknown_class"
    assert near in text
    with pytest.raises(registry.UnknownOutbound):
        registry.build(rules.Outbound("own", name), Settings())


@pytest.mark.parametrize(
    ("cls", "init", "code", "words"),
    [
        (REDIS, {"url": GOOD["url"]}, "missing_parameter", "init.key is needed"),
        (REDIS, {**GOOD, "key": None}, "missing_parameter", "init.key"),
        (REDIS, {**GOOD, "kay": "x"}, "unknown_parameter", "did you mean key?"),
        (REDIS, {**GOOD, "key": 5}, "wrong_parameter", "must be a text, this is a whole number"),
        (REDIS, {**GOOD, "key": ""}, "wrong_parameter", "1 to 1024 bytes"),
        (REDIS, {**GOOD, "key": "\ud800"}, "wrong_parameter", "no valid text"),
        (REDIS, {**GOOD, "url": "{redis_url}"}, "wrong_parameter", "placeholder"),
        (REDIS, {**GOOD, "url": "http://h/"}, "wrong_parameter", "no address for this class"),
        (REDIS, {**GOOD, "url": "redis://"}, "wrong_parameter", "names no host"),
        (REDIS, {**GOOD, "url": "redis://h:x/"}, "wrong_parameter", "cannot be read"),
        (REDIS, {**GOOD, "url": "redis://h:0/"}, "wrong_parameter", "port 0"),
        (REDIS, {**GOOD, "url": "redis://h\n/"}, "wrong_parameter", "control character"),
        (
            "rabbitmq.RabbitQueueOutbound",
            {"url": "amqp://h/a/b", "queue": "q"},
            "wrong_parameter",
            "slash",
        ),
        (
            "rabbitmq.RabbitQueueOutbound",
            {"url": "amqp://h", "queue": "q", "max_priority": 256},
            "wrong_parameter",
            "between 0 and 255",
        ),
        (
            "rabbitmq.RabbitQueueOutbound",
            {"url": "amqp://h", "queue": "q", "max_priority": True},
            "wrong_parameter",
            "this is true or false",
        ),
        ("kafka.KafkaOutbound", {**KAFKA, "topic": "a/b"}, "wrong_parameter", "a topic has"),
        (
            "kafka.KafkaOutbound",
            {**KAFKA, "producer_settings": {}},
            "wrong_parameter",
            "bootstrap.servers is needed",
        ),
        (
            "kafka.KafkaOutbound",
            {**KAFKA, "producer_settings": {"bootstrap.servers": "{kafka_servers}"}},
            "wrong_parameter",
            "list of host:port",
        ),
        (
            "kafka.KafkaOutbound",
            {**KAFKA, "producer_settings": {"bootstrap.servers": "k", "acks": 0}},
            "wrong_parameter",
            "acks is not for a rule to set",
        ),
        (
            "kafka.KafkaOutbound",
            {**KAFKA, "producer_settings": {"bootstrap.servers": "k", "error_cb": [1]}},
            "wrong_parameter",
            "error_cb must be a text",
        ),
        ("http.HttpOutbound", {"url": "ftp://h/"}, "wrong_parameter", "no address"),
        (
            "http.HttpOutbound",
            {"url": "http://h/", "headers": {"a b": "x"}},
            "wrong_parameter",
            "letters, digits and hyphens",
        ),
        (
            "http.HttpOutbound",
            {"url": "http://h/", "headers": {"Host": "x"}},
            "wrong_parameter",
            "set by the outbound itself",
        ),
        (
            "http.HttpOutbound",
            {"url": "http://h/", "headers": {"X": "hunter2\r\nY: z"}},
            "wrong_parameter",
            "no line of ASCII",
        ),
        (
            "http.HttpOutbound",
            {"url": "http://h/", "concurrency": 1.5},
            "wrong_parameter",
            "must be a whole number, this is a number",
        ),
    ],
)
def test_what_is_wrong_is_said(cls: str, init: dict[str, Any], code: str, words: str) -> None:
    [(found, text)] = check(cls, **init)
    assert found == code
    assert words in text
    assert "hunter2" not in text


def test_a_problem_stands_where_the_rule_stands() -> None:
    rule = rules.Outbound("own", REDIS, init={}, place="main.yaml:12")
    assert [problem.place for problem in registry.check(rule)] == ["main.yaml:12"] * 2


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hunter2@h/0",
        "redis://user:hunter2@h:1/0",
        "amqp://hunter2@h/",
        "https://h/x?token=hunter2&b=1",
        "https://h/x?b=1&API_KEY=hunter2",
        "redis:/user:hunter2@h",
        "http://[user:hunter2@h",
        "http://u:hunt@hunter2@h/",
    ],
)
def test_secrets_of_an_address_are_not_shown(url: str) -> None:
    assert "hunter2" not in masked(url)
    for cls in OWN:
        for _, text in check(cls, url=url, key="k", queue="q"):
            assert "hunter2" not in text


def test_a_long_address_holds_nobody_up() -> None:
    url = "ftp://h/" + "?" * 60_000
    began = time.process_time()
    [(_code, text)] = check("http.HttpOutbound", url=url)
    assert "is no address for this class" in text
    assert time.process_time() - began < 2


def test_an_address_without_secrets_is_shown_as_it_is() -> None:
    assert masked("redis://h:6379/0") == "redis://h:6379/0"
    assert masked("https://h/x?page=2") == "https://h/x?page=2"


# --- classes of others ----------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Third-party package with entry points, installed for one test."""
    info = tmp_path / "their_outbounds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-outbounds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[crawlyard.outbounds]\n"
        "theirs.Good = their_outbounds:Good\n"
        "theirs.Broken = their_outbounds_missing:Broken\n"
        "theirs.Lacking = their_outbounds:Lacking\n"
        "redis_queue.RedisListOutbound = their_outbounds:Good\n"
    )
    (tmp_path / "their_outbounds.py").write_text(
        "class Lacking:\n"
        "    parameters = {}\n"
        "class Good:\n"
        "    parameters = {}\n"
        "    default_expects_result = True\n"
        "    def __init__(self, rule, settings): self.name = rule.name\n"
        "    def send(self, batch): return []\n"
        "    def depth(self): return 7\n"
        "    def close(self): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("their_outbounds", None)


def test_an_entry_point_adds_a_class(installed: Path) -> None:
    assert "theirs.Good" in registry.names()
    assert check("theirs.Good") == []
    assert check("theirs.Good", url="x")[0][0] == "unknown_parameter"
    assert registry.build(rules.Outbound("own", "theirs.Good"), Settings()).depth() == 7


def test_an_entry_point_replaces_no_class_of_ours(installed: Path) -> None:
    assert registry.find(REDIS).__module__ == "apps.routing.engine.outbounds.redis_queue"


@pytest.mark.parametrize(
    ("name", "words"),
    [("theirs.Broken", "their_outbounds_missing"), ("theirs.Lacking", "send, depth, close")],
)
def test_a_broken_entry_point_is_a_problem_and_no_crash(
    installed: Path, name: str, words: str
) -> None:
    [(code, text)] = check(name)
    assert code == "broken_class"
    assert words in text


def test_a_class_above_the_engine_registers_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    cls = examples()["FileOutbound"]
    registry.register("files.FileOutbound", cls)
    registry.register("files.FileOutbound", cls)
    assert registry.parameters("files.FileOutbound") == {"path"}
    for name in ("files.FileOutbound", REDIS):
        with pytest.raises(ValueError, match="exists already"):
            registry.register(name, type("Other", (), {}))
