"""Operator actions on messages, daemons and periodic tasks, each with an audit record.

Here because apps.runtime must not import users and the audit trail.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from django.db import transaction

from apps.access.models import User
from apps.access.services import record
from apps.runtime import services as runtime
from apps.runtime.deferral import defer
from apps.runtime.errors import DaemonIsAlive
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage
from apps.runtime.states import DeadLetterState
from yardkit import topology

if TYPE_CHECKING:
    from django_celery_beat.models import PeriodicTask


@transaction.atomic
def requeue_dead_letter(*, letter: DeadLetter, actor: User | None) -> None:
    """Return a dead letter to its queue. Raises as ``runtime.requeue_dead_letter``."""
    runtime.requeue_dead_letter(letter=letter, actor_label=_label(actor))
    _record_letter(letter, "runtime.requeue_dead_letter", actor)


@transaction.atomic
def drop_dead_letter(*, letter: DeadLetter, actor: User | None) -> None:
    """Discard a dead letter. Raises ``DeadLetterResolved``."""
    runtime.drop_dead_letter(letter=letter, actor_label=_label(actor))
    _record_letter(letter, "runtime.drop_dead_letter", actor)


@transaction.atomic
def retry_outbox_message(*, message: OutboxMessage, actor: User | None) -> None:
    """Publish an outbox message now instead of at its next try. Raises ``OutboxMessageGone``."""
    before = {"next_try_at": message.next_try_at}
    runtime.retry_outbox_message(message=message)
    record(
        actor=actor,
        action="runtime.retry_outbox_message",
        obj=message,
        before=before,
        after={"next_try_at": None},
        note=message.error[:200],
    )


@transaction.atomic
def drop_outbox_message(*, message: OutboxMessage, actor: User | None) -> None:
    """Delete an unsent outbox message. Raises ``OutboxMessageGone``."""
    runtime.drop_outbox_message(message=message)
    record(
        actor=actor,
        action="runtime.drop_outbox_message",
        obj=message,
        before={"exchange": message.exchange, "key": message.key, "attempts": message.attempts},
        note=message.error[:200],
    )


@transaction.atomic
def forget_daemon(*, daemon: Daemon, actor: User | None) -> None:
    """Delete the row of a stopped process. Raises ``DaemonIsAlive``."""
    before = {"state": daemon.state, "host": daemon.host, "pid": daemon.pid}
    if not runtime.forget_daemon(daemon=daemon):
        raise DaemonIsAlive
    record(actor=actor, action="runtime.forget_daemon", obj=daemon, before=before)


@transaction.atomic
def run_periodic_task(*, task: PeriodicTask, actor: User | None) -> None:
    """Run a periodic task once now; its schedule does not change."""
    defer(task.task, queue=task.queue or topology.TASKS, **json.loads(task.kwargs or "{}"))
    record(actor=actor, action="dashboard.run_periodic_task", obj=task)


def _label(actor: User | None) -> str:
    return "" if actor is None else actor.get_username()


def _record_letter(letter: DeadLetter, action: str, actor: User | None) -> None:
    record(
        actor=actor,
        action=action,
        obj=letter,
        before={"state": DeadLetterState.HELD},
        after={"state": letter.state, "queue": letter.queue, "size": letter.body_size},
        note=letter.reason[:200],
    )
