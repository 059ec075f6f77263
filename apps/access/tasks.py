"""Celery tasks. Idempotent: the database rows are the truth, an extra task does nothing."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from django.conf import settings

from apps.runtime.queries import database_now


@shared_task(name="access.check_identities")
def check(**_later: Any) -> None:
    """Check users of an identity provider; lock out those who are gone there."""
    if not (settings.OIDC_URL or settings.LDAP_URL):
        return
    from apps.access.services.sign_on.checks import check_identities

    check_identities(now=database_now())
