"""Settings of this app that would fail only at the first request."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from apps.access.engine.rates import limit_of


@register
def check_rest_rate(**kwargs: Any) -> list[CheckMessage]:
    """``REST_RATE`` can be understood."""
    rest: Any = settings.REST_FRAMEWORK
    rate = rest.get("DEFAULT_THROTTLE_RATES", {}).get("user")
    try:
        limit_of(rate)
    except ValueError:
        hint = "Write it as 600/minute (second, minute, hour or day); none means no limit."
        return [Error(f"REST_RATE: {rate!r} is not understood.", hint=hint, id="access.E001")]
    return []
