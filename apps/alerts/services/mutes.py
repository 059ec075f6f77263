"""Muting of rules."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction

from apps.access.models import User
from apps.access.services import record
from apps.alerts.errors import SnoozeOutOfRange
from apps.alerts.models import RuleMute

LONGEST: Final = timedelta(days=30)


@transaction.atomic
def mute_rule(
    *,
    rule: str,
    project_id: int | None,
    until: datetime,
    actor: User,
    now: datetime,
    note: str = "",
) -> RuleMute:
    """Mute a rule's notifications until ``until``; ``project_id=None`` mutes it in every project.

    Incidents still open. A second call replaces the first. Raises ``SnoozeOutOfRange``.
    """
    if not now < until <= now + LONGEST:
        raise SnoozeOutOfRange(fields={"until": [SnoozeOutOfRange.detail]})
    of: dict[str, Any] = {"project_id": project_id, "rule": rule}
    mute, _made = RuleMute.objects.update_or_create(
        **of, defaults={"until": until, "by": actor.get_username()[:150], "note": note[:500]}
    )
    record(
        actor=actor,
        action="alerts.mute_rule",
        obj=mute,
        after={"rule": rule, "until": until.isoformat()},
        note=note[:500],
    )
    return mute


@transaction.atomic
def unmute_rule(*, rule: str, project_id: int | None, actor: User) -> bool:
    """Remove a mute; return False if there was none."""
    mute = RuleMute.objects.filter(rule=rule, project=project_id).first()
    if mute is None:
        return False
    record(actor=actor, action="alerts.unmute_rule", obj=mute, before={"rule": rule})
    mute.delete()
    return True
