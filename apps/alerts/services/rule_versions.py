"""Changes of single rules; each saves and activates a new version of the configuration
``alerts``."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from apps.access.models import User
from apps.alerts.errors import NoSuchRule, RuleExists
from apps.alerts.queries.rules import KIND
from apps.configcenter.models import Configuration
from apps.configcenter.services import SaveResult, activate, save_version
from apps.configcenter.services.activation import ANY


def active_data(project_id: int | None) -> tuple[dict[str, Any], int, int]:
    """Return the active data of a project (None: platform), its version, and the newest version."""
    row = Configuration.objects.filter(kind=KIND, project=project_id).first()
    if row is None:
        return {}, 0, 0
    if row.active is None:
        return {}, 0, row.newest
    return copy.deepcopy(row.active.data), row.active.number, row.newest


def entry_named(data: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return the configuration entry of a rule."""
    for entry in data.get("rules") or []:
        if entry.get("name") == name:
            return dict(entry)
    return None


@transaction.atomic
def save_rule(
    *,
    project_id: int | None,
    entry: Mapping[str, Any],
    actor: User | None,
    now: datetime,
    instead_of: str = "",
    based_on: int | None = None,
    note: str = "",
) -> SaveResult:
    """Add a rule, or replace the rule ``instead_of``; active within seconds.

    ``based_on`` is the active version that the user edited; a newer one is not overwritten. Raises
    ``RuleExists``, ``NoSuchRule``, and the errors of ``save_version`` and ``activate``.
    """
    data, _active, _newest = active_data(project_id)
    rules = list(data.get("rules") or [])
    places = {entry.get("name"): place for place, entry in enumerate(rules)}
    name = entry.get("name")
    if name != instead_of and name in places:
        raise RuleExists(fields={"name": [RuleExists.detail]})
    if instead_of in places:
        rules[places[instead_of]] = dict(entry)
    elif instead_of:
        raise NoSuchRule
    else:
        rules.append(dict(entry))
    return _save(project_id, data | {"rules": rules}, actor, now, based_on, note)


@transaction.atomic
def remove_rule(
    *,
    project_id: int | None,
    name: str,
    actor: User | None,
    now: datetime,
    based_on: int | None = None,
    note: str = "",
) -> SaveResult:
    """Remove a rule; a platform or built-in rule of the same name applies again.

    Raises ``NoSuchRule``, and the errors of ``save_version`` and ``activate``.
    """
    data, _active, _newest = active_data(project_id)
    rules = [entry for entry in data.get("rules") or [] if entry.get("name") != name]
    if len(rules) == len(data.get("rules") or []):
        raise NoSuchRule
    return _save(project_id, data | {"rules": rules}, actor, now, based_on, note)


def _save(
    project_id: int | None,
    data: Mapping[str, Any],
    actor: User | None,
    now: datetime,
    based_on: int | None,
    note: str,
) -> SaveResult:
    saved = save_version(
        kind=KIND, project_id=project_id, data=dict(data), actor=actor, now=now, note=note
    )
    # A version that another user activated meanwhile is not overwritten silently.
    version, instead_of = saved.version, ANY if based_on is None else based_on
    if version.configuration.active_id != version.pk:
        activate(version=version, actor=actor, now=now, note=note, instead_of=instead_of)
    return saved
