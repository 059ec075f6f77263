"""Saving of versions; a saved version has no effect until it is activated."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.access.models import User
from apps.access.services import label_of, record
from apps.configcenter.engine.diffs import DataChange
from apps.configcenter.engine.kinds import Problem
from apps.configcenter.engine.plain import compact, digest_of
from apps.configcenter.errors import PlatformNotSupported, SaveConflict
from apps.configcenter.models import MAX_NOTE, Configuration, ConfigVersion
from apps.configcenter.services.kinds import (
    errors_of,
    kind_named,
    problems_of,
    refuse_errors,
    shown_by,
)


@dataclass(frozen=True, slots=True)
class SaveResult:
    """Result of a save; ``created`` is False if the newest version was equal."""

    version: ConfigVersion
    created: bool
    warnings: tuple[Problem, ...] = ()


def configuration_of(*, kind: str, project_id: int | None) -> Configuration:
    """Return the configuration, locked until the end of the transaction; create it on first use.

    Raises ``UnknownKind``, ``PlatformNotSupported``.
    """
    if project_id is None and not kind_named(kind).platform:
        raise PlatformNotSupported(fields={"project": [PlatformNotSupported.detail]})
    of: dict[str, Any] = {"kind": kind, "project_id": project_id}
    Configuration.objects.get_or_create(**of)
    return Configuration.objects.select_for_update().get(**of)


@transaction.atomic
def save_version(
    *,
    kind: str,
    project_id: int | None,
    data: object,
    actor: User | None,
    now: datetime,
    note: str = "",
    based_on: int | None = None,
    actor_label: str = "",
) -> SaveResult:
    """Save ``data`` as the next version of this kind in ``project`` (None: the platform's).

    ``based_on`` is the number of the newest version that the caller has read (0: none); None skips
    this check. Data equal to the newest version creates no version.

    Raises ``UnknownKind``, ``PlatformNotSupported``, ``BadConfig``, and ``SaveConflict`` if a newer
    version than ``based_on`` has other data.
    """
    problems = problems_of(kind_named(kind), data)
    refuse_errors(problems)
    configuration = configuration_of(kind=kind, project_id=project_id)
    problems += change_problems(configuration, data, now)
    refuse_errors(problems)
    warnings = tuple(problem for problem in problems if problem.warning)
    digest = digest_of(data)
    newest = newest_of(configuration)
    if newest is not None and newest.digest == digest:
        return SaveResult(newest, created=False, warnings=warnings)
    if based_on is not None and based_on != configuration.newest:
        raise SaveConflict(fields={"based_on": [str(configuration.newest)]})
    version = _add(configuration, data, digest, actor, actor_label, note, now)
    record(
        actor=actor,
        action="configcenter.save_version",
        obj=version,
        actor_label=actor_label,
        after={"number": version.number, "values_sha256": digest, "summary": version.summary},
        note=version.note,
    )
    return SaveResult(version, created=True, warnings=warnings)


@dataclass(frozen=True, slots=True)
class ConfigCheck:
    """Result of a check: problems, and differences if there are no errors."""

    problems: tuple[Problem, ...]
    changes: tuple[DataChange, ...] = ()
    # The newest version is equal: a save would create none.
    same: bool = False

    @property
    def valid(self) -> bool:
        """True if the data could be saved."""
        return not errors_of(self.problems)


def check_data(*, kind_name: str, data: object, configuration: Configuration | None) -> ConfigCheck:
    """Check ``data`` and compare it with the newest version; changes nothing."""
    kind = shown_by(kind_name)
    problems = tuple(problems_of(kind, data))
    if errors_of(problems) or not isinstance(data, dict):
        return ConfigCheck(problems)
    if configuration is not None:
        problems += tuple(change_problems(configuration, data, timezone.now()))
    newest = newest_of(configuration) if configuration is not None else None
    changes = tuple(kind.diff(newest.data if newest is not None else {}, data))
    return ConfigCheck(problems, changes, newest is not None and newest.digest == digest_of(data))


def change_problems(configuration: Configuration, data: object, now: datetime) -> list[Problem]:
    """Return the kind's problems of replacing the active version by the valid ``data``."""
    if configuration.active is None or not isinstance(data, dict):
        return []
    kind = shown_by(configuration.kind)
    return list(kind.check_change(configuration.active.data, data, now))


def newest_of(configuration: Configuration) -> ConfigVersion | None:
    """Return the newest version, or None."""
    return (
        ConfigVersion.objects.filter(configuration=configuration, number=configuration.newest)
        .select_related("configuration__project")
        .first()
    )


def _add(
    configuration: Configuration,
    data: object,
    digest: str,
    actor: User | None,
    actor_label: str,
    note: str,
    now: datetime,
) -> ConfigVersion:
    number = configuration.newest + 1
    content = compact(data)
    version = ConfigVersion(
        configuration=configuration,
        number=number,
        content=content,
        digest=digest,
        author=actor,
        author_label=label_of(actor, actor_label),
        note=note[:MAX_NOTE],
        created_at=now,
    )
    version.summary = kind_named(configuration.kind).summary(version.data)[:200]
    version.save()
    # Under the lock that ``configuration_of`` took, so numbers are unique.
    Configuration.objects.filter(pk=configuration.pk).update(newest=number, changed_at=now)
    configuration.newest, configuration.changed_at = number, now
    return version
