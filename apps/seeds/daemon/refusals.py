"""Errors that the seed service sends to callers."""

from __future__ import annotations

from typing import Final

from apps.seeds.engine.errors import SeedError
from yardkit.protocol import SeedsRefused

# Error texts for an outage of the control plane's database.

# Codes that are worth a retry, with the pause in seconds.
_RETRY_SECONDS: Final = {
    "ask_again": 0.1,
    "frozen": 1.0,
    "stopping": 1.0,
    "store_unavailable": 1.0,
    "database_away": 1.0,
    # Codes that need an operator.
    "clock_back": 5.0,
}


class SeedCallRefused(SeedError):
    """A call cannot be executed. ``code``: see ``SeedsRefused``."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code  # type: ignore[misc]  # code differs per instance


def outcome_unknown() -> SeedCallRefused:
    """Refusal after a standstill: the caller may have been answered by another service."""
    return SeedCallRefused("ask_again", "the service was away; ask again")


def refusal(error: SeedError) -> SeedsRefused:
    """Return the refusal as the message to the caller."""
    # Text from a plug-in may contain characters that a message cannot.
    text = str(error).encode("utf-8", "replace").decode()
    return SeedsRefused(
        code=error.code, text=text, retry_seconds=_RETRY_SECONDS.get(error.code, 0.0)
    )
