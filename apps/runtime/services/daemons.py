"""Heartbeats of processes: start, state and last beat.

Times are those of the database server, so that a wrong clock of a host does not matter.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import psutil
from django.db import transaction

from apps.runtime.errors import DaemonReplaced
from apps.runtime.models import Daemon
from apps.runtime.queries import database_now, is_live
from apps.runtime.states import DaemonState


@transaction.atomic
def register_daemon(
    *,
    kind: str,
    name: str,
    boot: str,
    host: str,
    pid: int,
    version: str = "",
    state: str = DaemonState.STARTING,
    detail: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> Daemon:
    """Register the start of a process; it takes over the row of its predecessor of the same name.

    The newest wins: after a SIGKILL the successor must not wait for the old row to expire, and a
    predecessor that was only frozen gets ``DaemonReplaced`` at its next ``beat``.
    """
    now = now or database_now()
    daemon, _created = Daemon.objects.update_or_create(
        kind=kind,
        name=name,
        defaults={
            "boot": boot,
            "host": host,
            "pid": pid,
            "version": version,
            "state": state,
            "started_at": now,
            "beat_at": now,
            "detail": dict(detail or {}),
        },
    )
    return daemon


def beat(
    *,
    kind: str,
    name: str,
    boot: str,
    host: str,
    pid: int,
    version: str = "",
    state: str = DaemonState.RUNNING,
    detail: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> None:
    """Record a heartbeat; without ``detail`` the previous detail stays.

    Raises ``DaemonReplaced`` if a newer process has this name; the caller should exit.
    """
    now = now or database_now()
    changes: dict[str, Any] = {"state": state, "beat_at": now}
    if detail is not None:
        changes["detail"] = dict(detail)
    if Daemon.objects.filter(kind=kind, name=name, boot=boot).update(**changes):
        return
    if Daemon.objects.filter(kind=kind, name=name).exists():
        raise DaemonReplaced
    # The row was deleted, by a person or because the process was frozen for days.
    register_daemon(
        kind=kind,
        name=name,
        boot=boot,
        host=host,
        pid=pid,
        version=version,
        state=state,
        detail=detail,
        now=now,
    )


def free_daemon_name(*, kind: str, host: str, now: datetime | None = None) -> str:
    """Return ``host``, or ``host-2`` and so on while processes of those names are alive.

    A restarted process thus reuses the row of its predecessor, and a second process gets its own.
    """
    now = now or database_now()
    number = 1
    while True:
        name = host if number == 1 else f"{host}-{number}"
        daemon = Daemon.objects.filter(kind=kind, name=name).first()
        if (
            daemon is None
            or not is_live(daemon, now=now)
            or is_gone(daemon.host, daemon.pid, of=host)
        ):
            return name
        number += 1


def forget_daemon(*, daemon: Daemon, now: datetime | None = None) -> bool:
    """Delete the row of a process that will not come back; False while it is alive."""
    silent = Daemon.objects.filter(pk=daemon.pk, beat_at=daemon.beat_at)
    return not is_live(daemon, now=now) and bool(silent.delete()[0])


def is_gone(host: str, pid: int, *, of: str) -> bool:
    """Return whether an earlier process of this host, ``of``, has ended; False of other hosts."""
    if host != of:
        return False
    # Our own pid: the predecessor in a container, where each first process has the same pid.
    return pid == os.getpid() or not psutil.pid_exists(pid)
