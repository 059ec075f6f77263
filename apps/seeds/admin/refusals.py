"""Texts for errors of the seed service, for admin pages."""

from __future__ import annotations

from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.access.errors import DomainError
from yardkit.broker.base import BrokerUnavailable
from yardkit.seeds import CallRefused, SeedServiceAway

# Short, because a page waits for it; a healthy service answers within milliseconds.
PATIENCE_SECONDS: Final = 4.0
AWAY: Final = (SeedServiceAway, BrokerUnavailable)
# All exceptions that a call to the seed service may raise.
REFUSALS: Final = (*AWAY, CallRefused, DomainError)

_TEXTS: Final[dict[str, Any]] = {
    "unknown_key": gettext_lazy("This seed no longer exists."),
    "unknown_segment": gettext_lazy("This segment no longer exists."),
    "seed_in_use": gettext_lazy("The seed is leased."),
    "seed_not_final": gettext_lazy("Only a finished seed can be reopened."),
    "frozen": gettext_lazy("The seeds of this URL queue are being moved. Try again later."),
    "unknown_frontier": gettext_lazy(
        "The seed service has not loaded this URL queue yet. Try again in a moment."
    ),
    "store_unavailable": gettext_lazy("The store of the seed service is unavailable."),
    "stopping": gettext_lazy("The seed service is stopping. Try again."),
    "empty_data": gettext_lazy("The seed is empty."),
    "data_too_large": gettext_lazy("The seed is too long."),
    "key_too_large": gettext_lazy("The key of the seed is too long."),
    "binary_data": gettext_lazy("The seed contains control or invalid characters."),
    "binary_key": gettext_lazy("The key of the seed contains control or invalid characters."),
    "bad_key": gettext_lazy("The key rules of this URL queue reject the seed."),
    "bad_segment": gettext_lazy("The segment rules of this URL queue reject the seed."),
    "bad_time": gettext_lazy("The time of the seed must be between 1973 and 2100."),
}


def text_of(error: Exception) -> str:
    """Return the text of an error from the seed service."""
    if isinstance(error, DomainError):
        return error.text
    if isinstance(error, CallRefused):
        return code_text(error.code, str(error))
    return _(
        "The seed service is unavailable, so the result is unknown. The action can be repeated "
        "safely."
    )


def code_text(code: str, detail: str) -> str:
    """Return the text of an error code, with its detail."""
    known = _TEXTS.get(code)
    return f"{known} ({detail})" if known else f"{code}: {detail}"
