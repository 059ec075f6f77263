"""System checks of settings that would otherwise fail at the first request or sign-in."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from apps.access.engine.rates import RATE_SETTINGS, limit_of
from apps.access.services.sign_on.group_roles import GroupRoles


@register
def check_rest_rate(**kwargs: Any) -> list[CheckMessage]:
    """Check the syntax of ``REST_RATE``, ``REST_TOKEN_RATE`` and ``TOKEN_GUESS_RATE``."""
    rest: Any = settings.REST_FRAMEWORK
    rates = rest.get("DEFAULT_THROTTLE_RATES", {})
    hint = "Write it as 600/minute (second, minute, hour or day); none means no limit."
    wrong: list[CheckMessage] = []
    for scope, name in RATE_SETTINGS.items():
        try:
            # An empty rate is derived from another setting.
            limit_of(rates.get(scope) or None)
        except ValueError:
            text = f"{name}: {rates[scope]!r} is not understood."
            wrong.append(Error(text, hint=hint, id="access.E001"))
    return wrong


@register
def check_group_roles(**kwargs: Any) -> list[CheckMessage]:
    """Check ``SSO_ROLES``."""
    try:
        GroupRoles.parse(settings.SSO_ROLES)
    except ValueError as error:
        hint = 'Write it as {"admins": ["superuser"], "news": ["editor:shop"]}.'
        return [Error(f"SSO_ROLES: {error}", hint=hint, id="access.E002")]
    return []
