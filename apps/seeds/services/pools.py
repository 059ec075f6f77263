"""Manage resource pools and resources; every change is recorded in the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import changes, record, snapshot
from apps.seeds.engine.resource_files import BadName, BadSecret, checked_name, checked_secret
from apps.seeds.engine.scores import BEST, rank
from apps.seeds.errors import BadResource, NotInThatState
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.states import ResourceState
from yardkit.protocol.resources import MAX_REASON


@transaction.atomic
def create_pool(*, actor: User | None, values: Mapping[str, Any]) -> ResourcePool:
    """Create a pool from validated ``values``."""
    pool = ResourcePool.objects.create(**values)
    record(actor=actor, action="seeds.add_resourcepool", obj=pool, after=snapshot(pool))
    return pool


@transaction.atomic
def change_pool(
    *, pool: ResourcePool, actor: User | None, values: Mapping[str, Any]
) -> ResourcePool:
    """Change the fields in ``values``; current leases keep their terms."""
    return _changed(pool, actor, "seeds.change_resourcepool", values)


@transaction.atomic
def delete_pool(*, pool: ResourcePool, actor: User | None) -> None:
    """Delete a pool with all its resources."""
    record(actor=actor, action="seeds.delete_resourcepool", obj=pool, before=snapshot(pool))
    pool.delete()


@transaction.atomic
def create_resource(
    *, pool: ResourcePool, name: str, secret: object, actor: User | None
) -> Resource:
    """Create a resource. Raises ``BadResource``."""
    name, text = _taken(name, secret)
    if Resource.objects.filter(pool=pool, name=name).exists():
        raise BadResource(fields={"name": [_("The pool already has a resource with this name.")]})
    made = Resource.objects.create(pool=pool, name=name, secret=text)
    record(actor=actor, action="seeds.add_resource", obj=made, after=snapshot(made))
    return made


@transaction.atomic
def change_resource(
    *, resource: Resource, actor: User | None, name: str | None = None, secret: object = None
) -> Resource:
    """Change the name or the secret of a resource. Raises ``BadResource``."""
    values: dict[str, Any] = {}
    if name is not None:
        values["name"] = _name(name)
        others = Resource.objects.filter(pool=resource.pool_id, name=values["name"])
        if others.exclude(pk=resource.pk).exists():
            raise BadResource(
                fields={"name": [_("The pool already has a resource with this name.")]}
            )
    if secret is not None:
        values["secret"] = _secret(secret)
    before = snapshot(resource)
    for field, value in values.items():
        setattr(resource, field, value)
    # Only these columns: a concurrent lease writes the others.
    resource.save(update_fields=list(values))
    _record_changes(resource, actor, "seeds.change_resource", before)
    return resource


@transaction.atomic
def delete_resource(*, resource: Resource, actor: User | None) -> None:
    """Delete a resource, even if it is leased: the holder's return then finds nothing."""
    record(actor=actor, action="seeds.delete_resource", obj=resource, before=snapshot(resource))
    resource.delete()


def ban(*, resource: Resource, actor: User | None, now: datetime, reason: str = "") -> Resource:
    """Exclude a resource from leasing until it is unbanned. The holder may finish; that counts as
    late.
    """
    fields = {"state": ResourceState.BANNED, "banned_at": now, "reason": _reason(reason)}
    allowed = (ResourceState.FREE, ResourceState.LEASED, ResourceState.DISABLED)
    return _move(resource, actor, "seeds.ban_resource", allowed, fields)


def unban(*, resource: Resource, actor: User | None, now: datetime) -> Resource:
    """Lift a ban; the resource is free at once. The score stays, consecutive failures are reset."""
    fields: dict[str, Any] = {"banned_at": None, "reason": "", "failures_in_a_row": 0}
    fields |= {"state": ResourceState.FREE, "available_at": now}
    return _move(resource, actor, "seeds.unban_resource", (ResourceState.BANNED,), fields)


def disable(*, resource: Resource, actor: User | None) -> Resource:
    """Disable a resource. The holder may finish; that counts as late."""
    allowed = (ResourceState.FREE, ResourceState.LEASED)
    fields = {"state": ResourceState.DISABLED}
    return _move(resource, actor, "seeds.disable_resource", allowed, fields)


def enable(*, resource: Resource, actor: User | None, now: datetime) -> Resource:
    """Make a disabled resource available again."""
    fields = {"state": ResourceState.FREE, "available_at": now}
    return _move(resource, actor, "seeds.enable_resource", (ResourceState.DISABLED,), fields)


def release(*, resource: Resource, actor: User | None, now: datetime) -> Resource:
    """End the lease of a resource without counting an outcome."""
    fields = {"state": ResourceState.FREE, "available_at": now}
    return _move(resource, actor, "seeds.release_resource", (ResourceState.LEASED,), fields)


def reset(*, resource: Resource, actor: User | None, now: datetime) -> Resource:
    """Reset score, consecutive failures and cool-down. State and counters stay."""
    fields: dict[str, Any] = {"score": BEST, "failures_in_a_row": 0, "available_at": now}
    return _move(resource, actor, "seeds.reset_resource", tuple(ResourceState), fields)


@transaction.atomic
def _move(
    resource: Resource,
    actor: User | None,
    action: str,
    allowed: tuple[ResourceState, ...],
    fields: Mapping[str, Any],
) -> Resource:
    """Change the state and refresh ``resource``. Raises ``NotInThatState``."""
    locked = Resource.objects.select_for_update().filter(pk=resource.pk)
    locked.first()
    resource.refresh_from_db()
    if resource.state not in allowed:
        words = {"name": resource.name, "state": resource.get_state_display()}
        raise NotInThatState(_("%(name)s is %(state)s, which does not allow this action.") % words)
    before = snapshot(resource)
    written = dict(fields)
    if resource.state == ResourceState.LEASED and "state" in written:
        written |= {"lease": resource.lease + 1, "leased_by": "", "leased_until": None}
    if "score" in written:
        used = resource.last_used_at
        written["rank"] = rank(written["score"], used.timestamp() if used else None)
    for field, value in written.items():
        setattr(resource, field, value)
    resource.save(update_fields=list(written))
    _record_changes(resource, actor, action, before)
    return resource


def _changed(
    pool: ResourcePool, actor: User | None, action: str, values: Mapping[str, Any]
) -> ResourcePool:
    before = snapshot(pool)
    for field, value in values.items():
        setattr(pool, field, value)
    pool.save()
    _record_changes(pool, actor, action, before)
    return pool


def _record_changes(
    obj: Resource | ResourcePool, actor: User | None, action: str, before: dict[str, Any]
) -> None:
    old, new = changes(before, snapshot(obj))
    if old or new:
        record(actor=actor, action=action, obj=obj, before=old, after=new)


def _taken(name: str, secret: object) -> tuple[str, str]:
    return _name(name), _secret(secret)


def _name(name: str) -> str:
    try:
        return checked_name(name)
    except BadName as error:
        raise BadResource(fields={"name": [str(error)]}) from None


def _secret(secret: object) -> str:
    try:
        return checked_secret(secret)
    except BadSecret as error:
        raise BadResource(fields={"secret": [str(error)]}) from None


def _reason(reason: str) -> str:
    return reason.replace("\x00", "").strip()[:MAX_REASON]
