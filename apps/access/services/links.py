"""One-time links to set user name and password: first administrator, invitation, lost password."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from apps.access.errors import BadInvitation, LinkNotValid
from apps.access.models import SetupLink, User
from apps.access.services.audit import record
from apps.access.services.people import password_was_set

MAX_KEY: Final = 100


@dataclass(frozen=True, slots=True)
class NewLink:
    """A new link. Its key is shown once; in the fragment of the URL, no server logs it."""

    link: SetupLink
    key: str

    def address(self, server: str = "") -> str:
        """Full URL; ``server`` overrides ``PUBLIC_URL``."""
        return f"{server or settings.PUBLIC_URL}{reverse('access:welcome')}#{self.key}"


def first_link(*, now: datetime | None = None) -> NewLink | None:
    """Create or replace the first administrator's link; None if a superuser exists."""
    if User.objects.filter(is_superuser=True).exists():
        return None
    return _make(
        SetupLink(is_superuser=True, is_first=True), actor=None, actor_label="manage.py", now=now
    )


def invite(
    *,
    actor: User | None,
    username: str,
    is_superuser: bool = False,
    is_auditor: bool = False,
    actor_label: str = "",
    now: datetime | None = None,
) -> NewLink:
    """Create a link for a new user, or for an existing one to set a new password.

    Invalidates earlier links for the same name or user. Raises ``BadInvitation``.
    """
    user = User.objects.filter(username=username).first()
    if user is None:
        link = SetupLink(username=username, is_superuser=is_superuser, is_auditor=is_auditor)
        _check_person(_person(link, username))
    elif is_superuser or is_auditor:
        raise BadInvitation(_("This user already exists; grant permissions on the admin pages."))
    elif not user.is_active:
        raise BadInvitation(_("This user is not allowed to log in."))
    else:
        link = SetupLink(username=username, user=user)
    return _make(link, actor=actor, actor_label=actor_label, now=now)


def open_link(key: str, *, now: datetime | None = None) -> SetupLink:
    """Return the valid link of this key. Raises ``LinkNotValid`` in every other case."""
    rows = SetupLink.objects.select_related("user")
    link = rows.filter(digest=_digest(key[:MAX_KEY]), used_at=None).first()
    if link is None or link.expires_at <= (now or timezone.now()):
        raise LinkNotValid
    if link.is_first and User.objects.filter(is_superuser=True).exists():
        raise LinkNotValid
    if link.user is not None and not link.user.is_active:
        raise LinkNotValid
    return link


@transaction.atomic
def use_link(*, key: str, username: str, password: str, now: datetime | None = None) -> User:
    """Set the password and end the link; a new user gets ``username`` unless invited by name.

    Raises ``LinkNotValid``, and ``BadInvitation`` for an invalid name or password, after which the
    link stays valid.
    """
    at = now or timezone.now()
    link = open_link(key, now=at)
    user = link.user or _person(link, link.username or username)
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise BadInvitation(fields={"password": error.messages}) from error
    user.set_password(password)
    if user.pk is None:
        _check_person(user)
    if not SetupLink.objects.filter(pk=link.pk, used_at=None).update(used_at=at):
        raise LinkNotValid
    if link.user is not None:
        user.save(update_fields=["password"])
        password_was_set(actor=user, user=user)
        return user
    try:
        with transaction.atomic():
            user.save(force_insert=True)
    except IntegrityError as error:
        raise BadInvitation(fields={"username": [_("This name is taken.")]}) from error
    rights = {"is_superuser": user.is_superuser, "is_auditor": user.is_auditor}
    record(actor=user, action="access.accept_link", obj=user, after=rights)
    return user


def _person(link: SetupLink, username: str) -> User:
    return User(
        username=username, is_staff=True, is_superuser=link.is_superuser, is_auditor=link.is_auditor
    )


def _check_person(user: User) -> None:
    """Validate the name and password. Raises ``BadInvitation``."""
    try:
        user.full_clean(exclude=["password"])
    except ValidationError as error:
        raise BadInvitation(fields={"username": error.messages}) from error


@transaction.atomic
def _make(
    link: SetupLink, *, actor: User | None, actor_label: str, now: datetime | None
) -> NewLink:
    at, key = now or timezone.now(), secrets.token_urlsafe(32)
    link.digest, link.created_at = _digest(key), at
    link.expires_at = at + timedelta(hours=settings.LINK_HOURS)
    same = Q(is_first=True) if link.is_first else Q(username=link.username, is_first=False)
    if link.user is not None:
        # The user was renamed since.
        same |= Q(user=link.user)
    SetupLink.objects.filter(same, used_at=None).delete()
    SetupLink.objects.filter(expires_at__lt=at).delete()
    link.save(force_insert=True)
    after = {
        "username": link.username,
        "is_superuser": link.is_superuser,
        "is_auditor": link.is_auditor,
        "expires_at": link.expires_at,
    }
    about = link if link.user is None else link.user
    record(actor=actor, action="access.make_link", obj=about, after=after, actor_label=actor_label)
    return NewLink(link, key)


def _digest(key: str) -> str:
    """SHA-256: enough for 256 random bits."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
