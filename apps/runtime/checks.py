"""What must hold before any process starts, and what ``manage.py check`` says about it."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from apps.runtime.fields import secret_box
from yardkit.secretbox import BadKey

# Daemons run the checks under this tag at their start and nothing else.
START_TAG: Final = "crawlyard_start"


@register(START_TAG)
def broker_credentials(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """RabbitMQ's account that everybody knows is for this host only."""
    parts = urlsplit(settings.BROKER_URL)
    if settings.DEBUG or parts.scheme not in {"amqp", "amqps"} or _is_loopback(parts.hostname):
        return []
    # Without a user in the URL, the client library fills in guest itself.
    user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
    if (user, password) != ("guest", "guest"):
        return []
    return [
        Error(
            "BROKER_URL uses guest/guest on another host, which anybody may guess.",
            hint="Make an own RabbitMQ user with a password of its own.",
            id="runtime.E001",
        )
    ]


@register(START_TAG)
def secret_keys(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Stored secrets can be opened only with proper keys."""
    try:
        secret_box()
    except BadKey as error:
        return [Error(str(error), id="runtime.E002")]
    return []


def _is_loopback(host: str | None) -> bool:
    if not host or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
