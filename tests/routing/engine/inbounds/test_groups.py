"""Inbounds that share a Kafka consumer group are reported."""

from __future__ import annotations

from typing import Any

import pytest

from apps.routing.engine.inbounds import groups
from apps.routing.engine.rules import Inbound as Rule
from apps.routing.services.configuration import RoutingKind

CLS = "kafka.KafkaInbound"


def init(group: str = "hub", topics: tuple[str, ...] = ("logs",), servers: str = "k1:9092") -> Any:
    return {
        "consumer_settings": {"bootstrap.servers": servers, "group.id": group},
        "topics": list(topics),
    }


@pytest.mark.covers("S2.21")
@pytest.mark.parametrize(
    ("other", "more", "is_told"),
    [
        (init(), {}, True),
        (init(topics=("other", "logs")), {}, True),
        (init(servers="k2:9092, k1:9092"), {}, True),
        (init(group="hub-2"), {}, False),
        (init(topics=("other",)), {}, False),
        (init(servers="k2:9092"), {}, False),
        (init(), {"disable": True}, False),
        ({"consumer_settings": "x", "topics": 5}, {}, False),
    ],
    ids=["same", "one topic", "one server", "group", "topic", "server", "disabled", "broken"],
)
def test_two_of_one_group_and_topic_are_warned_of(
    other: Any, more: dict[str, Any], is_told: bool
) -> None:
    rules = [Rule("first", CLS, init()), Rule("second", CLS, other, **more)]
    found = groups.check(rules)
    assert [(each.place, each.code, each.warning) for each in found] == (
        [("inbound second", "shared_group", True)] if is_told else []
    )
    if is_told:
        assert "inbound first reads logs in the group hub too" in found[0].text


def test_saving_says_so() -> None:
    inbounds = [
        {"name": name, "class": CLS, "init": init(servers="{kafka_servers}")} for name in ("a", "b")
    ]
    data = {"version": 1, "needs": 1, "project": "p", "inbound": inbounds}
    found = [each for each in RoutingKind().check(data) if each.code == "shared_group"]
    assert [each.warning for each in found] == [True]
