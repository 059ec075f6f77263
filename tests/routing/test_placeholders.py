"""Values of placeholders in rules come from the environment and are never shown (seed S2.14)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings

from apps.routing.placeholders import filled_rules, placeholders, problems
from apps.routing.services.configuration import RoutingKind
from crawlyard.settings.placeholders import read_placeholders
from tests.e2e.daemon_processes import Daemons
from yardkit.env import EnvError

pytestmark = pytest.mark.covers("S2.14")

CANARY = "canary-secret"


@pytest.fixture(autouse=True)
def values(settings: LazySettings, tmp_path: Path) -> LazySettings:
    settings.REDIS_URL = f"redis://:{CANARY}@redis:6379/0"
    settings.BROKER_URL = f"amqp://u:{CANARY}@rabbit:5672/"
    settings.ROUTING_PLACEHOLDERS = {"kafka_servers": f"kafka-{CANARY}:9092", "topic": "logs"}
    settings.ROUTING_FAILURE_DIRS = [tmp_path / "failures", tmp_path / "others"]
    return settings


def rules(**said: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "needs": 1,
        "project": "ic",
        "inbound": [
            {
                "name": "in",
                "class": "kafka.KafkaInbound",
                "init": {
                    "consumer_settings": {
                        "bootstrap.servers": "{kafka_servers}",
                        "group.id": "taskhub",
                    },
                    "topics": ["{topic}"],
                },
            }
        ],
        "outbound": [outbound()],
        "failure": {"path": "{failure_path}", "compress": False},
    } | said


def outbound(**said: Any) -> dict[str, Any]:
    return {
        "name": "out",
        "selector": ["a == '{nobody}'"],
        "note": "{nobody}",
        "class": "redis_queue.RedisListOutbound",
        "init": {"url": "{redis_url}", "key": "queue"},
    } | said


def codes(data: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return [(each.place, each.code, each.warning) for each in problems(data)]


def test_rules_run_with_the_values(tmp_path: Path) -> None:
    filled, found = filled_rules(rules(), "company")
    assert found == []
    assert filled is not None
    assert filled.inbounds[0].init["consumer_settings"]["bootstrap.servers"] == (
        f"kafka-{CANARY}:9092"
    )
    assert filled.inbounds[0].init["topics"] == ["logs"]
    assert filled.outbounds[0].init["url"] == f"redis://:{CANARY}@redis:6379/0"
    assert filled.outbounds[0].selector == ("a == '{nobody}'",)
    assert filled.failure is not None
    assert filled.failure.path == str(tmp_path / "failures" / "company.jsonl")


def test_the_setting_goes_before_what_is_built_in(settings: LazySettings) -> None:
    settings.ROUTING_PLACEHOLDERS = {"redis_url": "redis://spiders:6379/1"}
    assert placeholders("p")["redis_url"] == "redis://spiders:6379/1"
    assert placeholders("p")["broker_url"] == settings.BROKER_URL


def test_what_is_not_set_is_no_placeholder(settings: LazySettings) -> None:
    settings.REDIS_URL = ""
    assert "redis_url" not in placeholders("p")
    assert codes(rules()) == [("outbound[0].init.url", "unknown_placeholder", True)]


def test_a_name_without_a_value_is_told_with_its_remedy(settings: LazySettings) -> None:
    settings.ROUTING_PLACEHOLDERS = {"topic": "logs"}
    text = "there is no placeholder {kafka_servers}; set it in ROUTING_PLACEHOLDERS"
    (warned,) = RoutingKind().check(rules())
    assert warned.warning
    assert warned.text == text
    filled, (refused,) = filled_rules(rules(), "ic")
    assert filled is None
    assert refused.place == "inbound[0].init.consumer_settings.bootstrap.servers"
    assert refused.text.startswith(text)


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ({"constants": {"x": "{broker_url}"}}, "constants.x"),
        ({"init": {"url": "{redis_url}?x=1", "key": "q"}}, "init.url"),
        ({"init": {"url": "redis://x", "key": "{redis_url}"}}, "init.key"),
        (
            {"class": "http.HttpOutbound", "init": {"url": "http://e", "headers": {"X": "{r}"}}},
            "init.headers.X",
        ),
    ],
    ids=["constant", "part", "key", "header"],
)
def test_passwords_of_the_platform_go_nowhere_else(said: dict[str, Any], place: str) -> None:
    text = json.dumps(said).replace("{r}", "{redis_url}")
    data = rules(outbound=[outbound(**json.loads(text))])
    found = [(f"outbound[0].{place}", "misplaced_placeholder", False)]
    assert codes(data) == found
    filled, refused = filled_rules(data, "ic")
    assert filled is None
    assert [(each.place, each.code, each.warning) for each in refused] == found
    assert CANARY not in "".join(map(str, refused))
    assert "misplaced_placeholder" in {each.code for each in RoutingKind().check(data)}


@pytest.mark.parametrize(
    ("path", "is_fine"),
    [
        ("{failure_path}", True),
        ("other.jsonl", True),
        ("FOLDER/others/deep/x.jsonl", True),
        ("/etc/passwd", False),
        ("../secret_key", False),
        ("{topic}/../../x", False),
        # Known only to the router's environment.
        ("/{elsewhere}/x", None),
    ],
)
@pytest.mark.covers("S2.13")
def test_a_failure_file_is_where_it_may_be(path: str, is_fine: bool | None, tmp_path: Path) -> None:
    data = rules(failure={"path": path.replace("FOLDER", str(tmp_path)), "compress": True})
    found = codes(data)
    if is_fine is None:
        assert found == [("failure.path", "unknown_placeholder", True)]
    else:
        assert found == ([] if is_fine else [("failure.path", "failure_outside", False)])


def test_formats_of_logs_have_braces_of_their_own() -> None:
    assert codes(rules(logging={"format": "{levelname} {message}"})) == []
    found = codes(rules(logging={"format": "{broker_url}"}))
    assert found == [("logging.format", "misplaced_placeholder", False)]


def test_no_problem_of_the_values_shows_one(settings: LazySettings) -> None:
    settings.REDIS_URL = f"http://{CANARY}:no-port"
    settings.ROUTING_PLACEHOLDERS |= {"topic": CANARY + "\x00"}
    filled, found = filled_rules(rules(server={"bind": "x", "port": "{kafka_servers}"}), "ic")
    assert filled is None
    assert {each.code for each in found} == {"wrong_type", "bad_character"}
    assert CANARY not in "".join(map(str, found))


# --- the setting ----------------------------------------------------------------------------------


def test_the_setting_is_an_object_of_texts() -> None:
    assert read_placeholders('{"kafka_servers": "甲:9092", "_2": ""}') == {
        "kafka_servers": "甲:9092",
        "_2": "",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": "canary",\n  "b" "canary"}', "line 2, column 7"),
        ('{"a": "canary}', "line 1, column 7"),
        ('["canary"]', "no JSON object"),
        ('"canary"', "no JSON object"),
        ('{"a": "x", "bad name canary": "x"}', "name number 2"),
        ('{"1a": "canary"}', "name number 1"),
        ('{"password": 1234567}', "the value of password is no text"),
        ('{"a": {"b": "canary"}}', "the value of a is no text"),
        ('{"a": "canary", "a": "canary"}', "there twice"),
        ('{"a": "canary\\u0000"}', "the value of a holds"),
        ('{"a": "canary\\ud800"}', "the value of a holds"),
        ("[" * 100_000, "nested too deep"),
    ],
    ids=range(12),
)
def test_a_bad_setting_names_itself_and_the_place(text: str, told: str) -> None:
    with pytest.raises(EnvError) as caught:
        read_placeholders(text)
    said = str(caught.value)
    assert said.startswith("ROUTING_PLACEHOLDERS: ")
    assert told in said
    assert "canary" not in said
    assert "1234567" not in said
    assert "\n" not in said


@pytest.mark.slow("15 s")
def test_doctor_names_what_active_rules_lack(tmp_path: Path) -> None:
    daemons = Daemons(tmp_path)
    daemons.migrate()
    (tmp_path / "rules.yaml").write_text(
        "project: ic\n"
        "outbound:\n"
        "- {name: out, class: redis_queue.RedisListOutbound, selector: a,\n"
        "   init: {url: '{spider_redis}', key: k}}\n"
    )
    daemons.manage(
        "shell", "-c", "from tests.access.factories import make_project; make_project(slug='ic')"
    )
    daemons.manage("config", "apply", "routing", str(tmp_path / "rules.yaml"), "--project", "ic")
    lacking = daemons.manage("doctor", status=1).stdout
    assert "BAD  ROUTING_PLACEHOLDERS" in lacking
    assert "project ic: outbound[0].init.url: there is no placeholder {spider_redis}" in lacking
    given = json.dumps({"spider_redis": f"redis://:{CANARY}@127.0.0.1:6379/0"})
    # The remaining problem is that no router runs.
    mended = daemons.manage("doctor", status=1, ROUTING_PLACEHOLDERS=given).stdout
    assert "spider_redis" in mended
    assert re.findall(r"^BAD +(\w+)", mended, re.MULTILINE) == ["Router"]
    assert CANARY not in mended


@pytest.mark.slow("3 s")
def test_doctor_names_a_failure_folder_that_cannot_be_written(tmp_path: Path) -> None:
    daemons = Daemons(tmp_path)
    daemons.migrate()
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "failures")
    done = daemons.manage("doctor", status=1, ROUTING_FAILURE_DIRS=folder)
    assert "BAD  ROUTING_FAILURE_DIRS" in done.stdout


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    ("name", "value"),
    [("ROUTING_PLACEHOLDERS", '{"a": "canary'), ("ROUTING_FAILURE_DIRS", "relative/canary")],
)
def test_a_bad_setting_stops_a_process(tmp_path: Path, name: str, value: str) -> None:
    done = Daemons(tmp_path).manage("run_center", status=2, **{name: value})
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert name in line
    assert "canary" not in line
