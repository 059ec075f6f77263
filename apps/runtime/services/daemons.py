"""Heartbeats: which processes are there, since when, and how they are.

Times are those of the database server, so that a process whose own clock is wrong is judged
like the others.
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
    """A process has started; it takes over the row of the one of that name before it.

    The newest wins: after a SIGKILL the successor must not wait for the dead one's row to age,
    and a predecessor that was only frozen learns of it at its next ``beat``.
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
    """The process is still there. Without ``detail`` the last one stays.

    Raises:
        DaemonReplaced: a newer process has this name; the caller should end.
    """
    now = now or database_now()
    changes: dict[str, Any] = {"state": state, "beat_at": now}
    if detail is not None:
        changes["detail"] = dict(detail)
    if Daemon.objects.filter(kind=kind, name=name, boot=boot).update(**changes):
        return
    if Daemon.objects.filter(kind=kind, name=name).exists():
        raise DaemonReplaced
    # The row was cleaned away, by a person or because the process was frozen for days.
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
    """``host``, or ``host-2`` and so on while the processes of those names are alive.

    So a restart takes over the row of its predecessor, and a second process gets its own.
    """
    now = now or database_now()
    number = 1
    while True:
        name = host if number == 1 else f"{host}-{number}"
        daemon = Daemon.objects.filter(kind=kind, name=name).first()
        if daemon is None or not is_live(daemon, now=now) or _is_gone(daemon, host):
            return name
        number += 1


def forget_daemon(*, daemon: Daemon, now: datetime | None = None) -> bool:
    """Delete the row of a process that will not come back; False while it is alive."""
    silent = Daemon.objects.filter(pk=daemon.pk, beat_at=daemon.beat_at)
    return not is_live(daemon, now=now) and bool(silent.delete()[0])


def _is_gone(daemon: Daemon, host: str) -> bool:
    """Whether a process of this host that looks alive was killed a moment ago."""
    if daemon.host != host:
        return False
    # Ours: the one before in a container, where each first process has the same number.
    return daemon.pid == os.getpid() or not psutil.pid_exists(daemon.pid)
