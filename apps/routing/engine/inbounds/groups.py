"""Detection of inbounds that share a Kafka consumer group and a topic.

Kafka distributes the partitions among the members of a group, so each of these inbounds receives
only a part of the items. Neither Kafka nor the router reports this as an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from apps.routing.engine.rules import Inbound as Rule
from apps.routing.engine.rules import Problem

KAFKA: Final = "kafka.KafkaInbound"
CODE: Final = "shared_group"

# (server, group, topic)
Seat = tuple[str, str, str]


def seats(rule: Rule) -> set[Seat]:
    """Return the (server, group, topic) triples that an enabled Kafka inbound consumes."""
    settings: Any = rule.init.get("consumer_settings")
    topics: Any = rule.init.get("topics")
    if rule.cls != KAFKA or rule.disable or not isinstance(settings, Mapping):
        return set()
    if not isinstance(topics, list | tuple):
        return set()
    group = settings.get("group.id", "")
    servers = str(settings.get("bootstrap.servers", "")).split(",")
    return {(server.strip(), str(group), str(topic)) for server in servers for topic in topics}


def shared_group_text(shared: Iterable[Seat], other: str) -> str:
    """Return the text of the warning that ``other`` consumes the same group and topic."""
    _server, group, topic = min(shared)
    return f"{other} reads {topic} in the group {group} too: each gets a part of the items only"


def check(rules: Sequence[Rule]) -> list[Problem]:
    """Return warnings about inbounds of one rule set that share a group and a topic."""
    problems = []
    for number, rule in enumerate(rules):
        mine = seats(rule)
        for other in rules[:number] if mine else ():
            if shared := mine & seats(other):
                place = rule.place or f"inbound {rule.name}"
                text = shared_group_text(shared, f"inbound {other.name}")
                problems.append(Problem(place, "shared_group", text, warning=True))
                break
    return problems
