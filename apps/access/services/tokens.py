"""API tokens: made, found again by their secret, revoked."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.apps import apps
from django.db import transaction
from django.db.models import Model, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.errors import InvalidScopes, ScopeTooWide, TokenRevoked
from apps.access.models import ApiToken, User
from apps.access.services.audit import record
from apps.access.states import MAX_SCOPES, SCOPE_PATTERN, scopes_within

# No look-alikes (0/o, 1/l): a prefix is read aloud and compared by eye.
_PREFIX_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"
_PREFIX_LENGTH: Final = 10
# How stale last_used_at may be; writing it at every call would make each read a write.
USE_RESOLUTION: Final = timedelta(minutes=1)
_NO_DIGEST: Final = hashlib.sha256(b"").hexdigest()


class NewToken(NamedTuple):
    """A token and its secret, which cannot be shown again."""

    token: ApiToken
    secret: str


def known_areas() -> list[str]:
    """What may stand before the colon of a scope: the labels of the platform's apps, and ``*``."""
    labels = sorted(each.label for each in apps.get_app_configs() if each.name.startswith("apps."))
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
) -> NewToken:
    """Make a token for ``user``; the secret ``cy_<prefix>_<secret>`` is returned only now.

    ``scopes`` are ``"<area>:read"`` or ``"<area>:write"`` (see ``known_areas``; write includes
    read). Raises ``InvalidScopes``, and ``ScopeTooWide`` when the actor itself acts through a
    token that may do less.
    """
    checked = _checked_scopes(scopes)
    _refuse_wider(actor, scopes=checked, project=project, expires_at=expires_at)
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
    )
    record(
        actor=actor,
        action="access.create_token",
        obj=token,
        project=project,
        after={"name": name, "user_id": user.pk, "scopes": checked, "expires_at": expires_at},
    )
    return NewToken(token, f"cy_{prefix}_{secret}")


@transaction.atomic
def revoke_token(*, actor: User | None, token: ApiToken, now: datetime | None = None) -> None:
    """End the token for good. Raises ``TokenRevoked`` when it has ended before."""
    at = now or timezone.now()
    if not ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=at):
        raise TokenRevoked
    token.revoked_at = at
    record(actor=actor, action="access.revoke_token", obj=token, project=token.project_id)


def find_token(presented: str) -> ApiToken | None:
    """The token whose secret was presented, whether still usable or not; None for a wrong one.

    Takes the same steps for an unknown prefix as for a wrong secret, so that the time of the
    answer does not tell them apart.
    """
    kind, _first, rest = presented.partition("_")
    prefix, _second, secret = rest.partition("_")
    token: ApiToken | None = None
    if kind == "cy" and len(prefix) <= 16 and prefix.isascii() and prefix.isalnum():
        token = ApiToken.objects.select_related("user").filter(prefix=prefix).first()
    expected = token.digest if token is not None else _NO_DIGEST
    matches = hmac.compare_digest(expected, _digest(secret))
    return token if matches and secret else None


def touch_token(token: ApiToken, *, now: datetime) -> None:
    """Note that the token was used, to the minute."""
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - USE_RESOLUTION)
    if token.last_used_at is None or token.last_used_at < now - USE_RESOLUTION:
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _checked_scopes(scopes: Sequence[str]) -> list[str]:
    if not scopes:
        raise InvalidScopes(fields={"scopes": [_("At least one scope is needed.")]})
    if len(scopes) > MAX_SCOPES:
        raise InvalidScopes(fields={"scopes": [_("These are too many scopes.")]})
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


def _refuse_wider(
    actor: User, *, scopes: list[str], project: Model | None, expires_at: datetime | None
) -> None:
    holder = actor.acting_token
    if holder is None:
        return
    if not scopes_within(scopes, holder.scopes):
        raise ScopeTooWide
    if holder.project_id is not None and (project is None or project.pk != holder.project_id):
        raise ScopeTooWide
    if holder.expires_at is not None and (expires_at is None or expires_at > holder.expires_at):
        raise ScopeTooWide
