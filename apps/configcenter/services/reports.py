"""Reports of processes about the versions they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from apps.configcenter.models import ConfigSubscription, RunningVersion
from apps.runtime.daemon import Identity
from apps.runtime.models import Daemon

MAX_PROBLEM = 500


@dataclass(frozen=True, slots=True)
class VersionReport:
    """Version that runs for one configuration; ``number`` 0 is no version."""

    configuration_id: int
    number: int
    applied_at: datetime
    problem: str = ""


@transaction.atomic
def report_running(
    *,
    identity: Identity,
    kind: str,
    project_id: int | None,
    reports: Sequence[VersionReport],
    now: datetime,
) -> bool:
    """Store which versions the process runs; False if another process owns its heartbeat row.

    The first report of a process deletes the reports of its predecessor of the same name.
    """
    daemons = Daemon.objects.filter(kind=identity.kind, name=identity.name, boot=identity.boot)
    daemon = daemons.first()
    if daemon is None:
        return False
    mine = {"boot": identity.boot, "project_id": project_id, "since": now}
    following, created = ConfigSubscription.objects.get_or_create(
        daemon=daemon, kind=kind, defaults=mine
    )
    if not created and following.boot != identity.boot:
        RunningVersion.objects.filter(following=following).delete()
        ConfigSubscription.objects.filter(pk=following.pk).update(**mine)
    RunningVersion.objects.bulk_create(
        [
            RunningVersion(
                following=following,
                configuration_id=report.configuration_id,
                number=report.number,
                applied_at=report.applied_at,
                problem=report.problem[:MAX_PROBLEM],
            )
            for report in reports
        ],
        batch_size=500,
        update_conflicts=True,
        unique_fields=["following", "configuration"],
        update_fields=["number", "applied_at", "problem"],
    )
    return True
