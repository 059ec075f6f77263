"""Who guessed too often, and letting them try again.

Not among the names of ``services``: daemons, which import those, run without these tables.
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
    """Forget the wrong passwords for ``username``, from ``address`` or from everywhere.

    Returns how many rows were forgotten; 0 when there was nothing to unlock.
    """
    about = AccessAttempt(username=username, ip_address=address)
    removed = int(reset(ip=address, username=username))
    if removed:
        after = {"username": username, "address": address or ""}
        record(actor=actor, action="access.unlock", obj=about, after=after, actor_label=actor_label)
    return removed
