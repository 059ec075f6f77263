"""Writing of the audit trail."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Field, JSONField, Model

from apps.access.models import AuditRecord, User
from apps.access.services.request_ids import current_request_id
from apps.access.services.roles import project_id_of
from apps.runtime.fields import SealedText, SecretTextField

MASK = "•••"
MAX_TEXT = 2_000
_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|pwd|secret|credential|token|digest|cookie|authorization"
    r"|(api|access|private|signing|ssh)[_-]?key|session",
    re.IGNORECASE,
)
# Exceptions: names that match the pattern above but are not secret.
_PLAIN_NAMES = frozenset({"must_change_password", "token_scope", "token_per_second"})

Snapshot = dict[str, Any]


def label_of(actor: User | None, label: str = "") -> str:
    """Return the actor's name, which is stored in case the user is deleted."""
    return (label or (actor.get_username() if actor is not None else "system"))[:150]


def record(
    *,
    actor: User | None,
    action: str,
    obj: Model,
    project: Model | int | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    note: str = "",
    actor_label: str = "",
) -> AuditRecord:
    """Add one audit record, in the caller's transaction.

    ``action`` is ``"<app>.<verb>"``. ``actor`` None means the platform itself; name the daemon
    in ``actor_label``. ``project`` is derived from ``obj`` when it is not given. ``before`` and
    ``after`` are flat mappings as ``snapshot`` makes them; values under names that sound secret
    are masked, but a caller must not pass secrets at all.
    """
    project_id = project.pk if isinstance(project, Model) else project
    if project_id is None:
        project_id = project_id_of(obj)
    token = actor.acting_token if actor is not None else None
    entry = AuditRecord(
        actor=actor,
        actor_label=label_of(actor, actor_label),
        token=token,
        action=action[:80],
        object_type=obj._meta.label_lower,
        object_id="" if obj.pk is None else str(obj.pk)[:64],
        object_label=str(obj)[:200],
        project_id=project_id,
        before=None if before is None else mask(before),
        after=None if after is None else mask(after),
        request_id=current_request_id(),
        note=note,
    )
    entry.save(force_insert=True)
    return entry


def snapshot(obj: Model) -> Snapshot:
    """Return the stored fields of ``obj`` as JSON values; relations as ids, long texts truncated.

    Secrets are included: pass the result only to ``changes`` or ``record``.
    """
    values: Snapshot = {}
    for field in obj._meta.concrete_fields:
        if getattr(field, "auto_now", False):
            # The record has its own time; this field would make every save look like a change.
            continue
        value = field.value_from_object(obj)
        values[field.attname] = _sealed(value) if _is_secret(field) else _plain(field, value)
    return values


def changes(before: Snapshot, after: Snapshot) -> tuple[Snapshot, Snapshot]:
    """Return the differing fields of two snapshots."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return (
        {name: before[name] for name in names if name in before},
        {name: after[name] for name in names if name in after},
    )


def mask(values: Mapping[str, Any]) -> Snapshot:
    """Return a copy with values under secret-sounding names masked, at any depth."""
    return {str(name): _masked(str(name), value) for name, value in values.items()}


def _masked(name: str, value: Any) -> Any:
    if isinstance(value, _SealedValue) or _sounds_secret(name):
        return MASK if value not in (None, "", [], {}, False) else value
    if isinstance(value, Mapping):
        return mask(value)
    if isinstance(value, list | tuple):
        return [_masked("", entry) for entry in value]
    return _jsonable(value)


def _sounds_secret(name: str) -> bool:
    # "token_id" and "token_type" are not secrets.
    if name in _PLAIN_NAMES or name.endswith(("_id", "_at", "_type", "_count", "_seconds")):
        return False
    return bool(_SECRET_NAME.search(name))


class _SealedValue:
    """Wraps a value that must never be shown, yet can be compared with its successor."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _SealedValue):
            return self._value == other._value
        return self._value == other

    def __hash__(self) -> int:
        return hash(str(self._value))

    def __repr__(self) -> str:
        return MASK


def _is_secret(field: Field[Any, Any]) -> bool:
    return isinstance(field, SecretTextField)


def _sealed(value: object) -> object:
    # Represented by its ciphertext: the same row compares equal, a new secret does not.
    return _SealedValue(value.sealed) if isinstance(value, SealedText) else value


def _plain(field: Field[Any, Any], value: object) -> Any:
    if isinstance(field, JSONField):
        return _jsonable(value)
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + "…"
    return _jsonable(value)


def _jsonable(value: object) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    try:
        return cast(Any, json.loads(json.dumps(value, cls=DjangoJSONEncoder)))
    except (TypeError, ValueError):
        return str(value)[:MAX_TEXT]
