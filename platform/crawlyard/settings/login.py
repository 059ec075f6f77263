"""Settings of logging in: who guesses passwords waits."""

from __future__ import annotations

from datetime import timedelta

from yardkit.env import Env


def login_limits(env: Env) -> tuple[int, timedelta]:
    """After so many wrong passwords for a name from an address, so long a wait."""
    attempts = env.int("LOGIN_ATTEMPTS", default=10, minimum=1, maximum=1000)
    minutes = env.int("LOGIN_LOCK_MINUTES", default=15, minimum=1, maximum=7 * 24 * 60)
    return attempts, timedelta(minutes=minutes)
