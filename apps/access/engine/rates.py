"""Rate limit syntax."""

from __future__ import annotations

import re
from typing import Final

# Setting of each throttle scope.
RATE_SETTINGS: Final = {
    "user": "REST_RATE",
    "token": "REST_TOKEN_RATE",
    "guess": "TOKEN_GUESS_RATE",
}
# (number, seconds); None is unlimited.
Rate = tuple[int | None, int | None]
_PERIODS: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_RATE: Final = re.compile(r"([1-9][0-9]{0,8})/(second|minute|hour|day)")


def limit_of(rate: str | None) -> Rate:
    """Parse ``"600/minute"`` to (600, 60) and ``"none"`` to None. Raises ``ValueError``."""
    if rate is None or rate == "none":
        return None, None
    match = _RATE.fullmatch(rate)
    if match is None:
        raise ValueError(f"{rate!r} is no rate such as 600/minute")
    return int(match[1]), _PERIODS[match[2]]
