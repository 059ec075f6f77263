"""Create, change and delete retention policies."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from apps.access.models import User
from apps.access.services import changes, record, snapshot
from apps.joblogs.models import LogPolicy


@transaction.atomic
def add_policy(*, actor: User | None, **values: Any) -> LogPolicy:
    """Create a retention policy for a job, or for a project's other jobs.

    Raises:
        ValidationError: the policy contradicts itself, or one exists already.
    """
    policy = LogPolicy(**values)
    policy.full_clean()
    policy.save(force_insert=True)
    record(actor=actor, action="joblogs.add_logpolicy", obj=policy, after=snapshot(policy))
    return policy


@transaction.atomic
def change_policy(*, policy: LogPolicy, actor: User | None, **values: Any) -> LogPolicy:
    """Change days or size; project and job stay. Raises ``ValidationError``."""
    rows = LogPolicy.objects.select_for_update(of=("self",)).select_related("project", "job")
    row = rows.get(pk=policy.pk)
    before = snapshot(row)
    for name, value in values.items():
        setattr(row, name, value)
    row.full_clean()
    row.save(update_fields=list(values))
    was, is_now = changes(before, snapshot(row))
    if is_now:
        record(actor=actor, action="joblogs.change_logpolicy", obj=row, before=was, after=is_now)
    return row


@transaction.atomic
def remove_policy(*, policy: LogPolicy, actor: User | None) -> None:
    """Delete a policy; the project's policy or the settings apply again."""
    record(actor=actor, action="joblogs.delete_logpolicy", obj=policy, before=snapshot(policy))
    policy.delete()
