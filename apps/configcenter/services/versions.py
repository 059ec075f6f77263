"""A save makes a version; nothing runs it before it is activated."""

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
from apps.configcenter.errors import NotOfPlatform, SavedMeanwhile
from apps.configcenter.models import MAX_NOTE, Configuration, ConfigVersion
from apps.configcenter.services.kinds import (
    errors_of,
    kind_named,
    problems_of,
    refuse_errors,
    shown_by,
)


@dataclass(frozen=True, slots=True)
class Saved:
    """The version that holds the data; ``created`` is False when the newest was equal."""

    version: ConfigVersion
    created: bool
    warnings: tuple[Problem, ...] = ()


def configuration_of(*, kind: str, project_id: int | None) -> Configuration:
    """The configuration, locked until the transaction ends; made at its first use.

    Raises ``UnknownKind``, ``NotOfPlatform``.
    """
    if project_id is None and not kind_named(kind).platform:
        raise NotOfPlatform(fields={"project": [NotOfPlatform.detail]})
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
) -> Saved:
    """Keep ``data`` as the next version of this kind in this project (None: of the platform).

    ``based_on`` is the number of the newest version when the caller began (0: none yet); None
    does not mind what others have saved. Data equal to the newest makes no new version.

    Raises:
        UnknownKind: no app has registered the kind.
        NotOfPlatform: only projects have configurations of this kind.
        BadConfig: the data has problems.
        SavedMeanwhile: there is a newer version than ``based_on``, with other data.
    """
    found = problems_of(kind_named(kind), data)
    refuse_errors(found)
    configuration = configuration_of(kind=kind, project_id=project_id)
    found += change_problems(configuration, data, now)
    refuse_errors(found)
    warnings = tuple(each for each in found if each.warning)
    digest = digest_of(data)
    newest = newest_of(configuration)
    if newest is not None and newest.digest == digest:
        return Saved(newest, created=False, warnings=warnings)
    if based_on is not None and based_on != configuration.newest:
        raise SavedMeanwhile(fields={"based_on": [str(configuration.newest)]})
    version = _add(configuration, data, digest, actor, actor_label, note, now)
    record(
        actor=actor,
        action="configcenter.save_version",
        obj=version,
        actor_label=actor_label,
        after={"number": version.number, "values_sha256": digest, "summary": version.summary},
        note=version.note,
    )
    return Saved(version, created=True, warnings=warnings)


@dataclass(frozen=True, slots=True)
class Tried:
    """What is wrong with data, and what it would change; none when it has errors."""

    problems: tuple[Problem, ...]
    changes: tuple[DataChange, ...] = ()
    # The newest version holds the same: a save would make none.
    same: bool = False

    @property
    def valid(self) -> bool:
        """It could be saved; REST shows it."""
        return not errors_of(self.problems)


def try_data(*, kind_name: str, data: object, configuration: Configuration | None) -> Tried:
    """Check ``data`` and compare it with the newest version, if any; nothing is changed."""
    kind = shown_by(kind_name)
    problems = tuple(problems_of(kind, data))
    if errors_of(problems) or not isinstance(data, dict):
        return Tried(problems)
    if configuration is not None:
        problems += tuple(change_problems(configuration, data, timezone.now()))
    newest = newest_of(configuration) if configuration is not None else None
    changes = tuple(kind.diff(newest.data if newest is not None else {}, data))
    return Tried(problems, changes, newest is not None and newest.digest == digest_of(data))


def change_problems(configuration: Configuration, data: object, now: datetime) -> list[Problem]:
    """What the kind says of ``data``, which it accepts, in place of the active version."""
    if configuration.active is None or not isinstance(data, dict):
        return []
    kind = shown_by(configuration.kind)
    return list(kind.check_change(configuration.active.data, data, now))


def newest_of(configuration: Configuration) -> ConfigVersion | None:
    """The newest version, if there is any."""
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
