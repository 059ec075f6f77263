"""Registry of inbound classes, and its messages about invalid ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from apps.routing.engine.inbounds import registry
from apps.routing.engine.inbounds.base import BadInit, Context
from apps.routing.engine.rules import Inbound as Rule
from apps.routing.engine.rules import Problem

ROOT = Path(__file__).parents[4]
KAFKA = {"bootstrap.servers": "127.0.0.1:1", "group.id": "hub"}
REDIS = {"url": "redis://:top@127.0.0.1/0", "key": "items"}


def check(cls: str, init: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each.code, each.text) for each in registry.check(Rule("in", cls, init))]


@pytest.mark.covers("S2.17", "S2.21")
@pytest.mark.parametrize(
    ("cls", "init"),
    [
        ("http.HttpInbound", {}),
        ("file.FileInbound", {"path": "old/log.jsonl.gz", "follow": False}),
        ("redis_queue.RedisListInbound", REDIS),
        ("redis_queue.RedisListInbound", {"url": "{redis_url}", "key": "a", "lease_seconds": 5}),
        ("rabbitmq.RabbitInbound", {"url": "amqp://a:b@127.0.0.1/v", "queue": "in"}),
        pytest.param(
            "kafka.KafkaInbound",
            {"consumer_settings": KAFKA, "topics": ["collie-ic-spider-business-log"]},
            marks=pytest.mark.kafka,
        ),
        pytest.param(
            "kafka.KafkaInbound",
            {
                "consumer_settings": {"bootstrap.servers": "{kafka_servers}", "group.id": "hub"},
                "topics": ("a", "b"),
            },
            marks=pytest.mark.kafka,
        ),
    ],
)
def test_right_rules_have_no_problem(cls: str, init: dict[str, Any]) -> None:
    assert check(cls, init) == []


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    [(code, text)] = check("kafka.KafkaInbond", {})
    assert code == "unknown_class"
    assert "did you mean kafka.KafkaInbound" in text
    [(code, text)] = check("x", {})
    assert code == "unknown_class"
    assert ", ".join(registry.names()) in text


@pytest.mark.parametrize(
    ("init", "code", "said"),
    [
        ({"url": "redis://h", "key": "a", "keys": "b"}, "unknown_parameter", "did you mean key?"),
        ({"key": "a"}, "missing_parameter", "init.url: it is required"),
        ({"url": None, "key": "a"}, "missing_parameter", "init.url"),
        ({"url": 5, "key": "a"}, "wrong_type", "this is a whole number, wanted is a text"),
        (REDIS | {"lease_seconds": True}, "wrong_type", "wanted is a number"),
        (REDIS | {"lease_seconds": 1}, "bad_parameter", "at least 5 seconds"),
        (REDIS | {"key": ""}, "bad_parameter", "the key is empty"),
        (REDIS | {"url": "http://h"}, "bad_url", "begins with redis:// or rediss://"),
        (REDIS | {"url": "redis://:top@:6379"}, "bad_url", "names no host"),
        (REDIS | {"url": "redis://:top@h:x"}, "bad_url", "the port"),
        (REDIS | {"url": "redis://:top@h:0"}, "bad_url", "the port of the URL is 0"),
    ],
)
def test_wrong_parameters_are_named(init: dict[str, Any], code: str, said: str) -> None:
    [(found, text)] = check("redis_queue.RedisListInbound", init)
    assert (found, said in text) == (code, True), text
    assert "top" not in text


@pytest.mark.parametrize(
    ("cls", "init", "said"),
    [
        ("rabbitmq.RabbitInbound", {"url": "http://a:top@h", "queue": "q"}, "is not RabbitMQ"),
        ("rabbitmq.RabbitInbound", {"url": "amqp://a:top@h", "queue": ""}, "1 to 255 bytes"),
        ("file.FileInbound", {"path": "../etc/passwd"}, "has .. in it"),
        ("file.FileInbound", {"path": ""}, "names no file"),
        ("http.HttpInbound", {"port": 80}, "it has none"),
    ],
)
def test_each_class_looks_at_its_own(cls: str, init: dict[str, Any], said: str) -> None:
    [(_code, text)] = check(cls, init)
    assert said in text
    assert "top" not in text


@pytest.mark.kafka
@pytest.mark.covers("S2.21")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"group.id": "g"}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "h"}, "group.id is missing"),
        (KAFKA | {"no.such": 1}, "no.such"),
        (KAFKA | {"session.timeout.ms": "soon"}, "session.timeout.ms"),
        (KAFKA | {"session.timeout.ms": -5}, "session.timeout.ms"),
        (KAFKA | {"enable.auto.commit": True}, "enable.auto.commit is not allowed"),
        (KAFKA | {"plugin.library.paths": "/tmp/x.so"}, "plugin.library.paths is not allowed"),
        (KAFKA | {"sasl.kerberos.kinit.cmd": "id"}, "sasl.kerberos.kinit.cmd is not allowed"),
        (KAFKA | {"error_cb": "x"}, "a function cannot be written"),
        (KAFKA | {"group.id": ["a"]}, "is a text, a number or true or false"),
        (KAFKA | {"security.protocol": "ssl", "ssl.key.pem": "top"}, "ssl.key.pem"),
    ],
)
def test_settings_of_kafka_are_judged_by_its_own_library(
    settings: dict[str, Any], said: str
) -> None:
    [(_code, text)] = check("kafka.KafkaInbound", {"consumer_settings": settings, "topics": ["t"]})
    assert said in text
    assert "top" not in text.replace("topics", "")


@pytest.mark.kafka
@pytest.mark.parametrize("topics", [[], ["a", "a"], [""]])
def test_topics_are_named_once(topics: list[str]) -> None:
    init = {"consumer_settings": KAFKA, "topics": topics}
    [(code, text)] = check("kafka.KafkaInbound", init)
    assert (code, "topics" in text) == ("bad_parameter", True)


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    init = {"consumer_settings": KAFKA, "topics": ["t"]}
    program = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from apps.routing.engine.inbounds import registry, kafka_settings\n"
        "from apps.routing.engine.rules import Inbound\n"
        f"rule = Inbound('in', 'kafka.KafkaInbound', {init!r})\n"
        "print(*(f'{each.code}: {each.text}' for each in registry.check(rule)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "not_installed: " in done.stdout
    assert "pip install '.[kafka]'" in done.stdout


def test_nobody_waits_for_libraries_of_others() -> None:
    program = (
        "import sys\n"
        "from apps.routing.engine.inbounds import registry\n"
        "registry.check(registry.Rule('in', 'http.HttpInbound'))\n"
        "print(sorted({'redis', 'pika', 'confluent_kafka', 'django'} & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_make_refuses_what_check_refuses(tmp_path: Path) -> None:
    context = Context("in", "me", tmp_path, tmp_path)
    with pytest.raises(BadInit, match=r"init\.path: it is required"):
        registry.make(Rule("in", "file.FileInbound"), context)
    with pytest.raises(BadInit, match="is not polled"):
        registry.make(Rule("in", "http.HttpInbound"), context)
    made = registry.make(Rule("in", "file.FileInbound", {"path": "a"}), context)
    assert registry.check_running(made, Rule("in", "file.FileInbound")) == []
    made.close()


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Third-party package with one valid entry point and several invalid ones."""
    (tmp_path / "somebodys_inbounds.py").write_text(
        "class Good:\n"
        "    PARAMETERS = ()\n"
        "    check = classmethod(lambda cls, init: [])\n"
        "    def __init__(self, context, init): self.context = context\n"
        "    def take(self, most, timeout): return []\n"
        "    def ack(self, handles): pass\n"
    )
    info = tmp_path / "somebodys-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[{registry.GROUP}]\n"
        "my.GoodInbound = somebodys_inbounds:Good\n"
        "my.MissingInbound = somebodys_inbounds:Missing\n"
        "my.NoInbound = json:JSONDecoder\n"
        "file.FileInbound = somebodys_inbounds:Good\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("others")
def test_others_add_their_own(tmp_path: Path) -> None:
    assert "my.GoodInbound" in registry.names()
    rule = Rule("in", "my.GoodInbound")
    assert registry.check(rule) == []
    context = Context("in", "me", tmp_path, tmp_path)
    assert registry.make(rule, context).context is context  # type: ignore[attr-defined]
    assert registry.find("file.FileInbound").__module__.startswith("apps.")


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my.MissingInbound", "cannot be loaded: AttributeError"),
        ("my.NoInbound", "it has no PARAMETERS, check, take, ack"),
    ],
)
def test_what_others_break_is_said(name: str, said: str) -> None:
    [(code, text)] = check(name, {})
    assert code == "broken_class"
    assert said in text


def test_a_place_stands_before_the_text() -> None:
    rule = Rule("in", "nothing", place="main.yaml:12")
    [problem] = registry.check(rule)
    assert isinstance(problem, Problem)
    assert str(problem).startswith("main.yaml:12: there is no inbound class 'nothing'")


def test_every_parameter_is_described() -> None:
    for name in registry.names():
        for parameter in registry.parameters(name):
            assert parameter.text, json.dumps([name, parameter.name])
