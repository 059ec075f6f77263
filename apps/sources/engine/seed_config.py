"""The seed's own ``config.yml``, read as settings of this platform.

    rabbitmq: {host, port, username, password, queue, message_ttl}
    crawler:  {filter_days, max_expired_batches, auto_start}

becomes ``defaults`` and a ``broker`` that is shown and not used. The password is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apps.configcenter.engine.kinds import DataProblem

SECTIONS: Final = ("rabbitmq", "crawler")
_BROKER: Final = {"host": str, "port": int, "username": str}
_RABBITMQ: Final = (*_BROKER, "password", "queue", "message_ttl")
_CRAWLER: Final = ("filter_days", "max_expired_batches", "auto_start")
_MS: Final = 1000


def is_seed_config(root: object) -> bool:
    """Whether the file has one of the seed's sections."""
    return isinstance(root, dict) and any(section in root for section in SECTIONS)


def translated(root: Mapping[str, Any]) -> tuple[dict[str, Any], list[DataProblem]]:
    """Translate to ``defaults`` and ``broker``; other keys of the file are kept."""
    problems: list[DataProblem] = []
    rabbitmq = _section(root, "rabbitmq", _RABBITMQ, problems)
    crawler = _section(root, "crawler", _CRAWLER, problems)
    defaults: dict[str, Any] = dict(crawler)
    if "queue" in rabbitmq:
        defaults["queue"] = rabbitmq["queue"]
    if "message_ttl" in rabbitmq:
        defaults["ttl_seconds"] = _seconds(rabbitmq["message_ttl"], problems)
    broker = {key: rabbitmq[key] for key in _BROKER if key in rabbitmq}
    data = {key: value for key, value in root.items() if key not in SECTIONS}
    own = data.get("defaults")
    data["defaults"] = {**defaults, **own} if isinstance(own, dict) else defaults
    if broker:
        data["broker"] = broker
    data.setdefault("sources", {})
    return data, problems


def _section(
    root: Mapping[str, Any], name: str, known: tuple[str, ...], problems: list[DataProblem]
) -> dict[str, Any]:
    section = root.get(name)
    if section is None:
        return {}
    if not isinstance(section, dict):
        problems.append(DataProblem(name, "not_a_mapping", "expected a mapping"))
        return {}
    for key in section:
        if key not in known:
            text = f"unknown; known are {', '.join(known)}"
            problems.append(DataProblem(f"{name}.{key}", "unknown_field", text))
    return {key: section[key] for key in known if section.get(key) is not None}


def _seconds(value: Any, problems: list[DataProblem]) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = "expected the TTL in milliseconds, such as 604800000"
        problems.append(DataProblem("rabbitmq.message_ttl", "bad_value", text))
        return None
    seconds = value / _MS
    return int(seconds) if seconds == int(seconds) else seconds
