"""System checks of the settings for runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from apps.jobs.runners.accounts import BrokerAccounts
from apps.runtime.checks import START_TAG


@register(START_TAG)
def broker_management(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Require a RabbitMQ broker if the URL of a management API is set."""
    url = settings.BROKER_MANAGEMENT_URL
    if not url:
        return []
    if not settings.BROKER_URL.startswith(("amqp://", "amqps://")):
        return [
            Error(
                "BROKER_MANAGEMENT_URL is set, but BROKER_URL is no RabbitMQ.",
                hint="The embedded broker has no accounts: its file gives access to everything.",
                id="jobs.E001",
            )
        ]
    try:
        BrokerAccounts(url, settings.RUN_BROKER_URL, installation="")
    except ValueError as error:
        return [Error(f"BROKER_MANAGEMENT_URL: {error}", id="jobs.E002")]
    return []
