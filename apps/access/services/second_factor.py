"""Second factor: time-based codes (TOTP, RFC 6238) and recovery codes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote, urlencode

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone
from django_otp.oath import TOTP

from apps.access.errors import FactorExists, NoFactor, TooManyCodes, WrongCode
from apps.access.models import Membership, SecondFactor, User
from apps.access.services.audit import record
from apps.access.states import Role

SESSION_KEY: Final = "second_factor"
RECOVERY_CODES: Final = 10
# Tolerated clock skew: one step of 30 s in either direction.
TOLERANCE: Final = 1
MAX_FAILURES: Final = 5
PAUSE: Final = timedelta(minutes=5)


def factor_of(user: User) -> SecondFactor | None:
    """Return the confirmed factor, or None."""
    return SecondFactor.objects.filter(user=user, confirmed_at__isnull=False).first()


def begin_factor(*, user: User) -> SecondFactor:
    """Create a secret; it has no effect until it is confirmed. Raises ``FactorExists``."""
    if factor_of(user) is not None:
        raise FactorExists
    secret = base64.b32encode(secrets.token_bytes(20)).decode()
    factor, _made = SecondFactor.objects.get_or_create(user=user, defaults={"secret": secret})
    return factor


def address_of(factor: SecondFactor) -> str:
    """Return the otpauth URL for the QR code."""
    label = quote(f"Crawlyard:{factor.user.get_username()}")
    return f"otpauth://totp/{label}?{urlencode({'secret': factor.secret, 'issuer': 'Crawlyard'})}"


@transaction.atomic
def confirm_factor(*, user: User, code: str, now: datetime | None = None) -> list[str]:
    """Enable the factor; return the recovery codes, which are stored as hashes.

    Raises ``NoFactor``, ``WrongCode``, ``TooManyCodes``.
    """
    factor = SecondFactor.objects.select_for_update().filter(user=user).first()
    if factor is None or factor.confirmed_at is not None:
        raise NoFactor
    at = now or timezone.now()
    _check(factor, code, at)
    codes = [_recovery_code() for _each in range(RECOVERY_CODES)]
    factor.recovery_digests = [_digest(code) for code in codes]
    factor.confirmed_at = at
    factor.save()
    record(actor=user, action="access.add_second_factor", obj=user)
    return codes


def verify_factor(*, user: User, code: str, now: datetime | None = None) -> None:
    """Verify a TOTP code, or use up a recovery code.

    Raises ``NoFactor``, ``WrongCode``, and ``TooManyCodes`` after five wrong codes in a row.
    """
    at = now or timezone.now()
    with transaction.atomic():
        factor = SecondFactor.objects.select_for_update().filter(user=user).first()
        if factor is None or factor.confirmed_at is None:
            raise NoFactor
        _refuse_paused(factor, at)
        digest = _digest(code)
        used = next(
            (
                stored_digest
                for stored_digest in factor.recovery_digests
                if _same(stored_digest, digest)
            ),
            None,
        )
        if used is not None:
            factor.recovery_digests.remove(used)
            factor.failures = 0
            factor.save(update_fields=["recovery_digests", "failures"])
            left = {"codes_left": len(factor.recovery_digests)}
            record(actor=user, action="access.use_recovery_code", obj=user, after=left)
            return
        fits = _fits(factor, code, at)
        _count(factor, fits, at)
    # After the transaction: the failure must be counted even if an error is raised.
    if not fits:
        raise WrongCode


@transaction.atomic
def remove_factor(*, actor: User, user: User) -> None:
    """Remove a second factor: by its owner, or by a superuser for a user who lost the phone."""
    if not SecondFactor.objects.filter(user=user).delete()[0]:
        raise NoFactor
    before, after = {"second_factor": True}, {"second_factor": False}
    record(actor=actor, action="access.remove_second_factor", obj=user, before=before, after=after)


def needs_factor(user: User, session: Any) -> str:
    """Return what is missing in this session: ``"verify"``, ``"enrol"``, or ``""`` for nothing.

    ``user``: as loaded by the session's backend, with its factor.
    """
    factor = getattr(user, "second_factor", None)
    if factor is None or factor.confirmed_at is None:
        return "enrol" if must_have_factor(user) else ""
    return "" if session.get(SESSION_KEY) == factor.pk else "verify"


def must_have_factor(user: User) -> bool:
    """Return whether ``ADMIN_TOTP`` requires a factor of this user: none, admins, or everyone."""
    if not settings.ADMIN_TOTP:
        return False
    if settings.ADMIN_TOTP == "everyone" or user.is_superuser:
        return True
    # The session's backend has loaded it; elsewhere it costs a query.
    known: bool | None = getattr(user, "is_project_admin", None)
    return _administers(user.pk).exists() if known is None else known


def with_project_admin(people: QuerySet[User]) -> QuerySet[User]:
    """Annotate ``is_project_admin`` if the setting needs it."""
    if settings.ADMIN_TOTP != "admins":
        return people
    return people.annotate(is_project_admin=Exists(_administers(OuterRef("pk"))))


def _administers(user: Any) -> QuerySet[Membership]:
    return Membership.objects.filter(user=user, role=Role.ADMIN)


def _check(factor: SecondFactor, code: str, now: datetime) -> None:
    if not _fits(factor, code, now):
        raise WrongCode


def _refuse_paused(factor: SecondFactor, now: datetime) -> None:
    if factor.paused_until is not None and now < factor.paused_until:
        raise TooManyCodes


def _count(factor: SecondFactor, fits: bool, now: datetime) -> None:
    factor.failures = 0 if fits else factor.failures + 1
    if factor.failures >= MAX_FAILURES:
        factor.failures, factor.paused_until = 0, now + PAUSE
    factor.save(update_fields=["failures", "paused_until", "last_step"])


def _fits(factor: SecondFactor, code: str, now: datetime) -> bool:
    """Whether the code is valid now and unused."""
    text = code.replace(" ", "")
    if not (text.isascii() and text.isdigit() and len(text) == 6):
        return False
    judge = TOTP(base64.b32decode(str(factor.secret)))
    judge.time = now.timestamp()
    if not judge.verify(int(text), TOLERANCE, factor.last_step + 1):
        return False
    factor.last_step = judge.t()
    return True


def _recovery_code() -> str:
    text = secrets.token_hex(8)
    return f"{text[:8]}-{text[8:]}"


def _digest(code: str) -> str:
    plain = code.strip().lower().encode("utf-8", "replace")
    return hashlib.sha256(plain).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one, other)
