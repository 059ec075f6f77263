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
    "seed_not_final": gettext_lazy("Only a seed that has ended can be opened again."),
    "frozen": gettext_lazy("Its seeds are being moved. Try again when that is done."),
    "unknown_frontier": gettext_lazy("The seed service does not know this frontier yet."),
    "store_unavailable": gettext_lazy("The store of the seed service is unavailable."),
    "stopping": gettext_lazy("The seed service is stopping. Try again."),
    "empty_data": gettext_lazy("It is empty."),
    "data_too_large": gettext_lazy("It is too long."),
    "key_too_large": gettext_lazy("Its key is too long."),
    "binary_data": gettext_lazy("It holds characters that no URL may hold."),
    "binary_key": gettext_lazy("Its key holds characters that no URL may hold."),
    "bad_key": gettext_lazy("The rules of this frontier make no key of it."),
    "bad_segment": gettext_lazy("The rules of this frontier find no segment for it."),
    "bad_time": gettext_lazy("Its time is not between 1973 and 2100."),
}


def text_of(error: Exception) -> str:
    """Return the text of an error from the seed service."""
    if isinstance(error, DomainError):
        return error.text
    if isinstance(error, CallRefused):
        return code_text(error.code, str(error))
    return _(
        "The seed service does not answer. Nothing is lost. Whether this was done is not known; "
        "doing it again does no harm."
    )


def code_text(code: str, detail: str) -> str:
    """Return the text of an error code, with its detail."""
    known = _TEXTS.get(code)
    return f"{known} ({detail})" if known else f"{code}: {detail}"
