"""Unlocking of users after failed logins.

Not imported by ``services``: daemons run without these tables.
"""

from __future__ import annotations

from axes.models import AccessAttempt
from axes.utils import reset
from django.db import transaction

from apps.access.models import User
from apps.access.services.audit import record


@transaction.atomic
def unlock(
    *, actor: User | None, username: str, address: str | None = None, actor_label: str = ""
) -> int:
    """Delete failed logins of ``username``, from ``address`` or from all; return their number."""
    about = AccessAttempt(username=username, ip_address=address)
    removed = int(reset(ip=address, username=username))
    if removed:
        after = {"username": username, "address": address or ""}
        record(actor=actor, action="access.unlock", obj=about, after=after, actor_label=actor_label)
    return removed
