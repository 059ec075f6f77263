"""Validation of ``init.consumer_settings`` of Kafka inbounds: settings of librdkafka."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, Final

from apps.routing.engine.inbounds.base import Finding
from apps.routing.engine.inbounds.urls import has_placeholder

REQUIRED: Final = ("bootstrap.servers", "group.id")
_OURS: Final = "the inbound sets it itself: it commits what was acknowledged, and nothing else"
_CODE: Final = "it would run a program or load a library on the router's host"
_REFUSED: Final = {
    "enable.auto.commit": _OURS,
    "enable.auto.offset.store": _OURS,
    "enable.partition.eof": "the inbound has no use for it",
    "plugin.library.paths": _CODE,
    "sasl.kerberos.kinit.cmd": _CODE,
    "ssl.engine.location": _CODE,
    "ssl.providers": _CODE,
    "test.mock.num.brokers": "it would be no real broker",
}
_SECRETS: Final = ("password", "secret", "key.pem", "sasl.oauthbearer.config", "sasl.jaas.config")

# Defaults that the settings of an inbound override.
DEFAULTS: Final[Mapping[str, Any]] = {
    # A new group starts with the existing messages, not only with later ones.
    "auto.offset.reset": "earliest",
    # Maximum delay from an acknowledgement to its commit.
    "auto.commit.interval.ms": 1000,
    # Prefetch limit; the defaults of librdkafka are 100,000 messages or 64 MiB.
    "queued.min.messages": 10000,
    # The default of librdkafka checks a full buffer again only after one second.
    "fetch.queue.backoff.ms": 20,
    "queued.max.messages.kbytes": 16384,
    "socket.timeout.ms": 10000,
    "reconnect.backoff.max.ms": 5000,
}


def is_installed() -> bool:
    """Return whether the extra ``kafka`` is installed."""
    return importlib.util.find_spec("confluent_kafka") is not None


def effective(settings: Mapping[str, Any], client_id: str) -> dict[str, Any]:
    """Return the complete settings for librdkafka: defaults, own settings, fixed values."""
    return {
        "client.id": client_id,
        **DEFAULTS,
        **settings,
        # Offsets are stored on acknowledgement, and committed periodically, on revoke and close.
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
    }


def hide_secrets(text: str, settings: Mapping[str, Any]) -> str:
    """Return ``text`` with the secret values of the settings masked."""
    for name, value in settings.items():
        if value and any(word in name for word in _SECRETS):
            text = text.replace(str(value), "****")
    return text


def check_settings(settings: Mapping[str, Any]) -> list[Finding]:
    """Validate the settings, also with librdkafka itself, without connecting to a server."""
    findings = [
        Finding("missing_parameter", f"{name} is missing")
        for name in REQUIRED
        if not settings.get(name)
    ]
    for name, value in settings.items():
        if name in _REFUSED or name.endswith("_cb"):
            why = _REFUSED.get(name, "a function cannot be written in a file")
            findings.append(Finding("bad_parameter", f"{name} is not allowed: {why}"))
        elif not isinstance(value, str | int | float | bool):
            findings.append(
                Finding("bad_parameter", f"{name} is a text, a number or true or false")
            )
    if not findings and is_installed():
        findings += _ask_library(settings)
    return findings


def _ask_library(settings: Mapping[str, Any]) -> list[Finding]:
    from confluent_kafka import Consumer, KafkaException

    known = {
        name: value
        for name, value in effective(settings, "check").items()
        # Without bootstrap servers the consumer does not connect.
        if name != "bootstrap.servers" and not has_placeholder(value)
    }
    try:
        Consumer({"group.id": "check", **known, "log_level": 0}).close()
    except (KafkaException, TypeError, ValueError) as error:
        return [Finding("bad_parameter", hide_secrets(explain(error), settings))]
    return []


def explain(error: Exception) -> str:
    """Return the message of a librdkafka exception in one line."""
    first = error.args[0] if error.args else error
    text = first.str() if hasattr(first, "str") else str(first)
    return text or type(error).__name__
