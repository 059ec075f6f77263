"""Activation of versions; processes apply a change within a second."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import F

from apps.access.models import User
from apps.access.services import label_of, record
from apps.configcenter.errors import (
    ActivationConflict,
    AlreadyActive,
    NeverActive,
    NotActive,
    NothingToRevert,
)
from apps.configcenter.events import CONFIG_CHANGED
from apps.configcenter.models import MAX_NOTE, Activation, Configuration, ConfigVersion, KindSerial
from apps.configcenter.services.kinds import kind_named, problems_of, refuse_errors
from apps.configcenter.services.versions import change_problems
from apps.runtime.services import emit

# Default of ``instead_of``: do not check which version is active.
ANY: Final = -1


@transaction.atomic
def activate(
    *,
    version: ConfigVersion,
    actor: User | None,
    now: datetime,
    note: str = "",
    instead_of: int = ANY,
    actor_label: str = "",
) -> Activation:
    """Make ``version`` the active one.

    ``instead_of`` is the number that the caller believes to be active (0: none). The data is
    checked again, because the rules of the kind may have changed since it was saved.

    Raises ``AlreadyActive``, ``ActivationConflict``, ``UnknownKind``, ``BadConfig``.
    """
    configuration = _locked(version.configuration_id)
    _expect(configuration, instead_of)
    return _switch(configuration, version, actor, actor_label, note, now, verb="activate")


@transaction.atomic
def revert(
    *,
    configuration: Configuration,
    actor: User | None,
    now: datetime,
    to: int | None = None,
    note: str = "",
    instead_of: int = ANY,
    actor_label: str = "",
) -> Activation:
    """Activate version ``to``, which was active before; None: the previously active one.

    Calling it twice without ``to`` toggles between two versions.

    Raises the errors of ``activate``, ``NothingToRevert``, ``NeverActive``.
    """
    locked = _locked(configuration.pk)
    _expect(locked, instead_of)
    version = _before(locked) if to is None else _once_active(locked, to)
    return _switch(locked, version, actor, actor_label, note, now, verb="revert")


@transaction.atomic
def deactivate(
    *,
    configuration: Configuration,
    actor: User | None,
    now: datetime,
    note: str = "",
    instead_of: int = ANY,
    actor_label: str = "",
) -> Activation:
    """Deactivate the configuration. Raises ``NotActive``, ``ActivationConflict``."""
    locked = _locked(configuration.pk)
    _expect(locked, instead_of)
    if locked.active is None:
        raise NotActive
    return _switch(locked, None, actor, actor_label, note, now, verb="deactivate")


def _locked(pk: int) -> Configuration:
    # Two statements: after waiting for a lock PostgreSQL re-reads the locked row but not
    # the joined one, so a single statement would see the previously active version.
    Configuration.objects.select_for_update().get(pk=pk)
    return Configuration.objects.select_related("active", "project").get(pk=pk)


def _expect(configuration: Configuration, number: int) -> None:
    active = configuration.active.number if configuration.active is not None else 0
    if number not in (ANY, active):
        raise ActivationConflict(fields={"instead_of": [str(active)]})


def _before(configuration: Configuration) -> ConfigVersion:
    last = (
        Activation.objects.filter(configuration=configuration, previous__isnull=False)
        .exclude(previous=configuration.active_id)
        .select_related("previous")
        .first()
    )
    if last is None or last.previous is None:
        raise NothingToRevert
    return last.previous


def _once_active(configuration: Configuration, number: int) -> ConfigVersion:
    versions = ConfigVersion.objects.filter(configuration=configuration, number=number)
    version = versions.filter(activations__isnull=False).distinct().first()
    if version is None:
        raise NeverActive
    return version


def _switch(
    configuration: Configuration,
    version: ConfigVersion | None,
    actor: User | None,
    actor_label: str,
    note: str,
    now: datetime,
    *,
    verb: str,
) -> Activation:
    previous = configuration.active
    if version is not None:
        if previous is not None and previous.pk == version.pk:
            raise AlreadyActive
        refuse_errors(problems_of(kind_named(configuration.kind), version.data))
        refuse_errors(change_problems(configuration, version.data, now))
    activation = Activation(
        configuration=configuration,
        version=version,
        previous=previous,
        actor=actor,
        actor_label=label_of(actor, actor_label),
        note=note[:MAX_NOTE],
        at=now,
    )
    activation.save()
    Configuration.objects.filter(pk=configuration.pk).update(active=version, changed_at=now)
    configuration.active, configuration.changed_at = version, now
    _raise_serial(configuration.kind)
    record(
        actor=actor,
        action=f"configcenter.{verb}",
        obj=configuration,
        actor_label=actor_label,
        before={"active": previous.number if previous is not None else None},
        after={"active": version.number if version is not None else None},
        note=activation.note,
    )
    emit(
        CONFIG_CHANGED,
        project=configuration.project_id,
        payload={
            "kind": configuration.kind,
            "active": version.number if version is not None else None,
        },
    )
    return activation


def notify_watchers() -> None:
    """Make every daemon re-read its configurations, after a project was deleted or restored."""
    KindSerial.objects.update(serial=F("serial") + 1)


def _raise_serial(kind: str) -> None:
    if not KindSerial.objects.filter(kind=kind).update(serial=F("serial") + 1):
        KindSerial.objects.get_or_create(kind=kind)
        KindSerial.objects.filter(kind=kind).update(serial=F("serial") + 1)
