"""API tokens: create, rotate, revoke, look up by secret."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.apps import apps
from django.db import transaction
from django.db.models import Model, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.errors import (
    InvalidNetworks,
    InvalidScopes,
    RoleRequired,
    ScopeTooWide,
    TokenExpired,
    TokenRevoked,
)
from apps.access.models import ApiToken, User
from apps.access.services.audit import record
from apps.access.states import MAX_SCOPES, SCOPE_PATTERN, scopes_within

# No similar characters (0/o, 1/l): prefixes are read aloud and compared by eye.
_PREFIX_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
_PREFIX_LENGTH: Final = 10
# Resolution of last_used_at: writing it at every call would make each read a write.
USE_RESOLUTION: Final = timedelta(minutes=1)
# Longest overlap: a longer one would defeat the rotation.
MAX_OVERLAP: Final = timedelta(days=30)
MAX_NETWORKS: Final = 64
_NO_DIGEST: Final = hashlib.sha256(b"").hexdigest()


class NewToken(NamedTuple):
    """A new token and its secret, which cannot be shown again."""

    token: ApiToken
    secret: str


def known_areas() -> list[str]:
    """Return the valid areas of scopes: app labels and ``*``."""
    labels = sorted(
        config.label for config in apps.get_app_configs() if config.name.startswith("apps.")
    )
    return ["*", *labels]


@transaction.atomic
def create_token(
    *,
    actor: User,
    user: User,
    name: str,
    scopes: Sequence[str],
    project: Model | None = None,
    expires_at: datetime | None = None,
    allowed_networks: Sequence[str] = (),
) -> NewToken:
    """Create a token for ``user``; its secret ``cy_<prefix>_<secret>`` is returned only now.

    ``scopes`` are ``"<area>:read"`` or ``"<area>:write"`` (see ``known_areas``; write includes
    read). ``allowed_networks`` limits client addresses, as CIDR; empty means everywhere. Raises
    ``InvalidScopes``, ``InvalidNetworks``, and ``ScopeTooWide`` if the actor's own token has fewer
    permissions.
    """
    checked = _checked_scopes(scopes)
    networks = checked_networks(allowed_networks)
    wanted = ApiToken(
        scopes=checked,
        project_id=None if project is None else project.pk,
        expires_at=expires_at,
        allowed_networks=networks,
    )
    _refuse_wider(actor, wanted)
    prefix = "".join(secrets.choice(_PREFIX_ALPHABET) for _position in range(_PREFIX_LENGTH))
    secret = secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        name=name,
        user=user,
        project_id=None if project is None else project.pk,
        prefix=prefix,
        digest=_digest(secret),
        scopes=checked,
        expires_at=expires_at,
        allowed_networks=networks,
    )
    record(
        actor=actor,
        action="access.create_token",
        obj=token,
        project=project,
        after={
            "name": name,
            "user_id": user.pk,
            "scopes": checked,
            "expires_at": expires_at,
            "allowed_networks": networks,
        },
    )
    return NewToken(token, f"cy_{prefix}_{secret}")


@transaction.atomic
def rotate_token(
    *, actor: User, token: ApiToken, overlap: timedelta = timedelta(0), now: datetime | None = None
) -> NewToken:
    """Give the token a new secret; the old one stays valid for ``overlap``, at most 30 days.

    Only the token's user may: the secret acts for them. Raises ``RoleRequired``, ``TokenRevoked``,
    ``TokenExpired``, ``ScopeTooWide``.
    """
    at = now or timezone.now()
    locked = ApiToken.objects.select_for_update().get(pk=token.pk)
    if locked.user_id != actor.pk:
        raise RoleRequired
    if locked.revoked_at is not None:
        raise TokenRevoked
    if not locked.usable(at):
        raise TokenExpired
    _refuse_wider(actor, locked)
    overlap = min(max(overlap, timedelta(0)), MAX_OVERLAP)
    secret = secrets.token_urlsafe(32)
    locked.previous_digest = locked.digest if overlap else ""
    locked.previous_until = at + overlap if overlap else None
    locked.digest = _digest(secret)
    locked.save(update_fields=["digest", "previous_digest", "previous_until"])
    record(
        actor=actor,
        action="access.rotate_token",
        obj=locked,
        project=locked.project_id,
        after={"previous_until": locked.previous_until},
    )
    return NewToken(locked, f"cy_{locked.prefix}_{secret}")


@transaction.atomic
def revoke_token(*, actor: User | None, token: ApiToken, now: datetime | None = None) -> None:
    """Revoke the token. Raises ``TokenRevoked`` if it was revoked before."""
    at = now or timezone.now()
    if not ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=at):
        raise TokenRevoked
    token.revoked_at = at
    record(
        actor=actor,
        action="access.revoke_token",
        obj=token,
        project=token.project_id,
        before={"revoked_at": None},
        after={"revoked_at": at},
    )


def find_token(presented: str, *, now: datetime | None = None) -> ApiToken | None:
    """Return the token whose secret was presented, usable or not; None for a wrong secret.

    A secret from before the last rotation is wrong once its grace period is over. An unknown prefix
    takes as long as a wrong secret, so that the response time reveals nothing.
    """
    kind, _first, rest = presented.partition("_")
    prefix, _second, secret = rest.partition("_")
    token: ApiToken | None = None
    if kind == "cy" and len(prefix) <= 16 and prefix.isascii() and prefix.isalnum():
        token = ApiToken.objects.select_related("user").filter(prefix=prefix).first()
    expected = token.digest if token is not None else _NO_DIGEST
    before = (token.previous_digest if token is not None else "") or _NO_DIGEST
    given = _digest(secret)
    matches = hmac.compare_digest(expected, given)
    matches_before = hmac.compare_digest(before, given)
    if token is None or not secret:
        return None
    until = token.previous_until
    lives = until is not None and (now or timezone.now()) < until
    return token if matches or (matches_before and lives) else None


def touch_token(token: ApiToken, *, now: datetime, address: str = "") -> None:
    """Record the use of the token and the client's address, at most once a minute."""
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - USE_RESOLUTION)
    if token.last_used_at is None or token.last_used_at < now - USE_RESOLUTION:
        used = {"last_used_at": now, "last_used_from": address[:45]}
        ApiToken.objects.filter(stale, pk=token.pk).update(**used)


def checked_networks(networks: Sequence[str]) -> list[str]:
    """Return normalized networks without duplicates. Raises ``InvalidNetworks``."""
    if len(networks) > MAX_NETWORKS:
        raise InvalidNetworks(fields={"allowed_networks": [_("Too many networks.")]})
    checked, wrong = [], []
    for text in networks:
        try:
            checked.append(str(ipaddress.ip_network(text)))
        except ValueError:
            wrong.append(text[:60])
    if wrong:
        message = _("Invalid networks: %(networks)s. Write them as 10.20.0.0/16.")
        text = message % {"networks": ", ".join(wrong)}
        raise InvalidNetworks(fields={"allowed_networks": [text]})
    return list(dict.fromkeys(checked))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _checked_scopes(scopes: Sequence[str]) -> list[str]:
    if not scopes:
        raise InvalidScopes(fields={"scopes": [_("At least one scope is needed.")]})
    if len(scopes) > MAX_SCOPES:
        raise InvalidScopes(fields={"scopes": [_("Too many scopes.")]})
    areas = known_areas()
    wrong = []
    for scope in scopes:
        match = SCOPE_PATTERN.fullmatch(scope)
        if match is None or match["area"] not in areas:
            wrong.append(scope[:60])
    if wrong:
        message = _("Unknown scopes: %(scopes)s.") % {"scopes": ", ".join(wrong)}
        raise InvalidScopes(fields={"scopes": [message]})
    return list(dict.fromkeys(scopes))


def _refuse_wider(actor: User, wanted: ApiToken) -> None:
    holder = actor.acting_token
    if holder is None:
        return
    if not scopes_within(wanted.scopes, holder.scopes):
        raise ScopeTooWide
    if holder.project_id is not None and wanted.project_id != holder.project_id:
        raise ScopeTooWide
    end = wanted.expires_at
    if holder.expires_at is not None and (end is None or end > holder.expires_at):
        raise ScopeTooWide
    if holder.allowed_networks and not _networks_within(wanted, holder):
        raise ScopeTooWide


def _networks_within(wanted: ApiToken, holder: ApiToken) -> bool:
    outer = [ipaddress.ip_network(network) for network in holder.allowed_networks]
    inner = [ipaddress.ip_network(network) for network in wanted.allowed_networks]
    # Python cannot compare IPv4 with IPv6 networks, which never contain each other.
    return bool(inner) and all(
        any(narrow.version == wide.version and narrow.subnet_of(wide) for wide in outer)  # type: ignore[arg-type]
        for narrow in inner
    )
