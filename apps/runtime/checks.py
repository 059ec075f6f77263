"""System checks that daemons run before they start, also part of ``manage.py check``."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from apps.runtime.fields import secret_box
from yardkit.secretbox import BadKey

# Daemons run only the checks with this tag at their start.
START_TAG: Final = "crawlyard_start"


@register(START_TAG)
def broker_credentials(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Refuse RabbitMQ's default account ``guest`` on any host but this one."""
    if settings.DEBUG:
        return []
    return [
        Error(
            f"{name} uses guest/guest on another host, which anybody may guess.",
            hint="Make an own RabbitMQ user with a password of its own.",
            id="runtime.E001",
        )
        for name in ("BROKER_URL", "RUN_BROKER_URL", "BROKER_MANAGEMENT_URL")
        if _is_guest(getattr(settings, name, ""))
    ]


def _is_guest(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme not in {"amqp", "amqps", "http", "https"} or is_loopback(parts.hostname):
        return False
    # Without a user in the URL, the client library itself uses guest.
    return (unquote(parts.username or "guest"), unquote(parts.password or "guest")) == (
        "guest",
        "guest",
    )


@register(START_TAG)
def secret_keys(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Require valid keys for stored secrets."""
    try:
        secret_box()
    except BadKey as error:
        return [Error(str(error), id="runtime.E002")]
    return []


def restore_mark() -> Path:
    """Path of the file that marks a restore in progress in the data folder."""
    return Path(settings.DATA_DIR) / "restore.unfinished"


@register(START_TAG)
def no_restore_under_way(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Refuse to start after an interrupted restore: stores may be of different points in time."""
    if not hasattr(settings, "DATA_DIR") or not restore_mark().exists():
        return []
    return [
        Error(
            f"A restore is under way, or was killed: {restore_mark()} is there.",
            hint="Wait for it, or run manage.py restore SOURCE --force again.",
            id="runtime.E003",
        )
    ]


def is_loopback(host: str | None) -> bool:
    """Whether the name or address can only mean this machine."""
    if not host or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
