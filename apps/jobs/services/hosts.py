"""Hosts: what their runners report, and what people decide about them."""

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

# As the trail names them: the verb, not the state.
VERBS: Final[dict[str, str]] = {
    HostMode.ENABLED: "enable",
    HostMode.DRAINING: "drain",
    HostMode.DISABLED: "disable",
}


@transaction.atomic
def register_host(*, name: str, about: HostDescription, beat: HostBeat, now: datetime) -> Host:
    """A runner has started: its host is described anew; what people have decided of it stays."""
    described: dict[str, Any] = {**asdict(about), **asdict(beat), "beat_at": now}
    host, _created = Host.objects.update_or_create(
        name=name,
        defaults=described | {"registered_at": now},
    )
    return host


def beat_host(*, name: str, about: HostDescription, beat: HostBeat, now: datetime) -> None:
    """The runner is still there, and this is how its host is."""
    if not Host.objects.filter(name=name, boot=about.boot).update(**asdict(beat), beat_at=now):
        # A person has forgotten it while it was silent, or another runner had its name.
        register_host(name=name, about=about, beat=beat, now=now)


@transaction.atomic
def switch_host(*, host: Host, mode: HostMode, actor: User | None) -> bool:
    """Let a host get new runs, or not; those it has go on. False when it was so already.

    Draining and disabled differ in what they tell people: one comes back, the other does not.
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
    """Delete the row of a host that will not come back.

    Raises:
        HostOnline: its runner still reports, and would only register again.
    """
    host = Host.objects.select_for_update().get(pk=host.pk)
    if host.is_online(now):
        raise HostOnline(_("Host %(host)s is online; stop its runner first.") % {"host": host})
    record(actor=actor, action="jobs.delete_host", obj=host, before=snapshot(host))
    host.delete()
