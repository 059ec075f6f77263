"""Periodic check of accounts at their provider."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef

from apps.access.models import ApiToken, ExternalIdentity, LoginSession
from apps.access.services.sign_on import ldap
from apps.access.services.sign_on.identities import (
    ProviderAway,
    Refused,
    SignedIn,
    confirm,
    lock_out,
    tokens_of,
)
from apps.access.services.sign_on.oidc import OidcProvider

logger = logging.getLogger(__name__)
AT_ONCE: Final = 200


def check_identities(*, now: datetime) -> int:
    """Check active users with a session or an API token whose last check is
    ``SSO_CHECK_SECONDS`` old; lock out those whom the provider refuses; return their number.

    While the provider is unreachable nobody is locked out.
    """
    before = now - timedelta(seconds=settings.SSO_CHECK_SECONDS)
    session = LoginSession.objects.filter(user=OuterRef("user"), expire_date__gt=now)
    token = ApiToken.objects.filter(user=OuterRef("user"), revoked_at=None)
    rows = ExternalIdentity.objects.filter(
        Exists(session) | Exists(token),
        # Of a provider that the settings no longer name nothing can be known.
        issuer__in=(settings.LDAP_URL, settings.OIDC_URL),
        user__is_active=True,
        checked_at__lt=before,
    )
    locked, away = 0, set[str]()
    provider = OidcProvider() if settings.OIDC_URL else None
    for identity in rows.select_related("user").order_by("checked_at")[:AT_ONCE]:
        if identity.source in away:
            continue
        # Another worker's check may overlap: refresh tokens are good for one use.
        claimed = ExternalIdentity.objects.filter(pk=identity.pk, checked_at=identity.checked_at)
        if not claimed.update(checked_at=now):
            continue
        try:
            account = _asked(identity, provider)
        except ProviderAway as error:
            away.add(identity.source)
            logger.warning("sign-on provider %s unreachable: %s", identity.source, error)
        except Refused as error:
            logger.info("user %s locked out: %s", identity.user_id, error)
            lock_out(identity, now=now)
            locked += 1
        except Exception:
            # One account must not keep the others from being checked.
            logger.exception("check of the account of user %s", identity.user_id)
        else:
            with transaction.atomic():
                confirm(identity, account, now=now)
    return locked


def _asked(identity: ExternalIdentity, provider: OidcProvider | None) -> SignedIn:
    if identity.source == ExternalIdentity.Source.LDAP:
        return ldap.check(identity, tokens_of(identity))
    if provider is None:
        raise ProviderAway("OIDC_URL is not set")
    return provider.check(identity, tokens_of(identity))
