"""Settings of logging in: who guesses passwords waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from yardkit.env import Env


def lockout(env: Env) -> dict[str, Any]:
    """django-axes' settings: so many wrong passwords for a name from an address, so long a wait."""
    return {
        "AXES_FAILURE_LIMIT": env.int("LOGIN_ATTEMPTS", default=10, minimum=1, maximum=1000),
        "AXES_COOLOFF_TIME": timedelta(
            minutes=env.int("LOGIN_LOCK_MINUTES", default=15, minimum=1, maximum=7 * 24 * 60)
        ),
        # Both together: else a stranger could keep somebody out from anywhere.
        "AXES_LOCKOUT_PARAMETERS": [["username", "ip_address"]],
        # Guesses during the wait do not make it longer.
        "AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT": False,
        "AXES_RESET_ON_SUCCESS": True,
        "AXES_CLIENT_IP_CALLABLE": "apps.access.services.clients.client_address",
        "AXES_LOCKOUT_CALLABLE": "apps.access.pages.locked_out",
        # Logins are in the audit trail.
        "AXES_DISABLE_ACCESS_LOG": True,
        "AXES_ENABLE_ADMIN": False,
        "AXES_VERBOSE": False,
    }
