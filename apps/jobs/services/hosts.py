"""Services of hosts: heartbeats of runners, and mode changes by users."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record, snapshot
from apps.jobs.engine.vitals import HostBeat, HostDescription
from apps.jobs.errors import HostOnline
from apps.jobs.models import Host
from apps.jobs.states import HostMode

# Action names in the audit trail.
VERBS: Final[dict[str, str]] = {
    HostMode.ENABLED: "enable",
    HostMode.DRAINING: "drain",
    HostMode.DISABLED: "disable",
}


@transaction.atomic
def register_host(*, name: str, about: HostDescription, beat: HostBeat, now: datetime) -> Host:
    """Store the description of a host whose runner has started; the mode is kept."""
    described: dict[str, Any] = {**asdict(about), **asdict(beat), "beat_at": now}
    host, _created = Host.objects.update_or_create(
        name=name, defaults=described | {"registered_at": now}
    )
    return host


def beat_host(*, name: str, about: HostDescription, beat: HostBeat, now: datetime) -> None:
    """Store a heartbeat; register the host again if its row was deleted."""
    if not Host.objects.filter(name=name, boot=about.boot).update(**asdict(beat), beat_at=now):
        # The row was deleted while the host was silent, or another runner used its name.
        register_host(name=name, about=about, beat=beat, now=now)


@transaction.atomic
def switch_host(*, host: Host, mode: HostMode, actor: User | None) -> bool:
    """Set the mode of a host, which controls new runs; return False if nothing changed.

    Active runs continue. Draining and disabled have the same effect; draining announces that the
    host will return.
    """
    stored = Host.objects.select_for_update().filter(pk=host.pk).exclude(mode=mode)
    before = stored.values_list("mode", flat=True).first()
    host.mode = mode
    if before is None:
        return False
    Host.objects.filter(pk=host.pk).update(mode=mode)
    record(
        actor=actor,
        action=f"jobs.{VERBS[mode]}_host",
        obj=host,
        before={"mode": before},
        after={"mode": mode.value},
    )
    return True


@transaction.atomic
def forget_host(*, host: Host, actor: User | None, now: datetime) -> None:
    """Delete the row of a host that is gone permanently.

    Raises:
        HostOnline: its runner still sends heartbeats, and would register again.
    """
    host = Host.objects.select_for_update().get(pk=host.pk)
    if host.is_online(now):
        raise HostOnline(_("Host %(host)s is online; stop its runner first.") % {"host": host})
    record(actor=actor, action="jobs.delete_host", obj=host, before=snapshot(host))
    host.delete()
