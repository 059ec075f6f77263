"""Settings of login: lockout, two-factor authentication, session lifetime."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from yardkit.env import Env, EnvError

# Password rules.
AUTH_PASSWORD_VALIDATORS: Final = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]


def login_limits(env: Env) -> tuple[int, timedelta]:
    """Return the lockout threshold for a (user name, IP address) and the lockout time."""
    attempts = env.int("LOGIN_ATTEMPTS", default=10, minimum=1, maximum=1000)
    minutes = env.int("LOGIN_LOCK_MINUTES", default=15, minimum=1, maximum=7 * 24 * 60)
    return attempts, timedelta(minutes=minutes)


def who_needs_a_code(env: Env) -> str:
    """Return who must use two-factor authentication: "" (optional), ``"admins"``, ``"everyone"``.

    ``true`` and ``false`` are accepted as well.
    """
    text = env.str("ADMIN_TOTP", default="false").lower()
    if text in ("admins", "everyone"):
        return text
    try:
        return "admins" if env.bool("ADMIN_TOTP", default=False) else ""
    except EnvError as error:
        raise EnvError(f"ADMIN_TOTP: {text!r} is none of true, false, admins, everyone") from error


def oidc_client(env: Env) -> tuple[str, str, str]:
    """Return issuer, ID and secret of the OpenID Connect client; "" without a provider."""
    url = env.str("OIDC_URL", default="")
    client_id = env.str("OIDC_CLIENT_ID", default="")
    if url and not client_id:
        raise EnvError("OIDC_CLIENT_ID: missing; OIDC_URL names a provider")
    return url, client_id, env.secret("OIDC_CLIENT_SECRET", default="")


def directory(env: Env) -> tuple[str, str, str, bool]:
    """Return URL, DN and password of the directory's reader, and whether to start TLS."""
    url = env.str("LDAP_URL", default="")
    if url and not url.startswith(("ldap://", "ldaps://")):
        raise EnvError("LDAP_URL: begins with neither ldap:// nor ldaps://")
    password = env.secret("LDAP_BIND_PASSWORD", default="")
    start_tls = env.bool("LDAP_START_TLS", default=False)
    return url, env.str("LDAP_BIND_DN", default=""), password, start_tls


def session_limits(env: Env) -> tuple[int, int]:
    """Return the maximum lifetime of a session in hours and its idle timeout in minutes."""
    hours = env.int("SESSION_HOURS", default=14 * 24, minimum=1, maximum=365 * 24)
    minutes = env.int("SESSION_IDLE_MINUTES", default=24 * 60, minimum=5, maximum=365 * 24 * 60)
    return hours, minutes
