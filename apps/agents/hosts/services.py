"""Writes of host rules and states."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from apps.access.models import User
from apps.access.services import changes, record, snapshot
from apps.agents.center.politeness.engine import HostView
from apps.agents.center.politeness.limits import HostRuleLimits
from apps.agents.hosts.models import HostRule, HostState

# A center that has not reported for this long is gone, and its states are obsolete.
STALE = timedelta(seconds=10)


def load_rules() -> list[HostRuleLimits]:
    """Return every rule for the politeness engine, ordered by host. One query."""
    rows = HostRule.objects.order_by("host").values_list(
        "host", "requests_per_second", "concurrency", "stopped", "obey_robots"
    )
    return [HostRuleLimits(*row) for row in rows]


@transaction.atomic
def create_rule(*, actor: User | None, **values: Any) -> HostRule:
    """Create a rule from validated ``values``."""
    rule = HostRule.objects.create(**values)
    record(actor=actor, action="agents.add_hostrule", obj=rule, after=snapshot(rule))
    return rule


@transaction.atomic
def change_rule(*, rule: HostRule, actor: User | None, **values: Any) -> HostRule:
    """Change the fields in ``values``."""
    return _change(rule, actor, "agents.change_hostrule", values)


@transaction.atomic
def delete_rule(*, rule: HostRule, actor: User | None) -> None:
    """Delete a rule: the settings apply again."""
    record(actor=actor, action="agents.delete_hostrule", obj=rule, before=snapshot(rule))
    rule.delete()


@transaction.atomic
def stop_host(*, host: str, actor: User | None) -> bool:
    """Hold all requests to ``host``, of all runs; False when it was stopped already.

    Raises:
        ValidationError: invalid host name.
    """
    rule = HostRule.objects.select_for_update().filter(host=host).first()
    if rule is None:
        rule = HostRule(host=host)
        rule.full_clean()
        rule.save()
    if rule.stopped:
        return False
    _change(rule, actor, "agents.stop_host", {"stopped": True})
    return True


@transaction.atomic
def resume_host(*, host: str, actor: User | None) -> bool:
    """Release requests to ``host``; False when it was not stopped.

    A rule without other fields is deleted: the button had created it.
    """
    rule = HostRule.objects.select_for_update().filter(host=host, stopped=True).first()
    if rule is None:
        return False
    _change(rule, actor, "agents.resume_host", {"stopped": False})
    if rule.says_nothing:
        rule.delete()
    return True


def _change(rule: HostRule, actor: User | None, action: str, values: dict[str, Any]) -> HostRule:
    old = snapshot(rule)
    for name, value in values.items():
        setattr(rule, name, value)
    rule.save()
    before, after = changes(old, snapshot(rule))
    before.pop("updated_at", None)
    after.pop("updated_at", None)
    if before or after:
        record(actor=actor, action=action, obj=rule, before=before, after=after)
    return rule


@transaction.atomic
def save_states(*, center: str, views: Sequence[HostView], now: datetime) -> None:
    """Save the busy hosts of ``center``; those not named are idle."""
    HostState.objects.filter(center=center).exclude(host__in=[v.host for v in views]).delete()
    rows = [
        HostState(
            host=view.host[:253],
            center=center,
            held=view.held,
            in_flight=view.in_flight,
            stopped=view.stopped,
            blocked_until=now + timedelta(seconds=view.blocked_seconds)
            if view.blocked_seconds > 0
            else None,
            reason=view.reason[:500],
            robots=view.robots,
            reported_at=now,
        )
        for view in views
    ]
    HostState.objects.bulk_create(
        rows,
        batch_size=500,
        update_conflicts=True,
        unique_fields=["host", "center"],
        update_fields=[
            "held",
            "in_flight",
            "stopped",
            "blocked_until",
            "reason",
            "robots",
            "reported_at",
        ],
    )


def forget_states(now: datetime) -> None:
    """Delete states of centers that are gone."""
    HostState.objects.filter(reported_at__lt=now - STALE).delete()
