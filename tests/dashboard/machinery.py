"""Messages, processes and periodic tasks to test with."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any

from django.utils import timezone

from apps.runtime.models import Daemon, DeadLetter, OutboxMessage

_numbers = count(1)


def make_letter(**fields: Any) -> DeadLetter:
    """A message that died in the queue ``statistics``."""
    values: dict[str, Any] = {
        "message_id": f"m{next(_numbers)}",
        "queue": "statistics",
        "reason": "nobody understands it",
        "body": b'{"password": "hunter2", "n": 1}',
        "body_size": 31,
        "headers": {"token": "hush", "n": 1},
        "died_at": timezone.now(),
    }
    return DeadLetter.objects.create(**(values | fields))


def make_outgoing(**fields: Any) -> OutboxMessage:
    """A message that could not be sent, and is tried again later."""
    values: dict[str, Any] = {
        "message_id": f"m{next(_numbers)}",
        "key": "events",
        "body": b"[1]",
        "error": "no queue wants it",
        "attempts": 3,
        "next_try_at": timezone.now() + timedelta(hours=1),
    }
    return OutboxMessage.objects.create(**(values | fields))


def make_daemon(**fields: Any) -> Daemon:
    """A process that has been silent for an hour."""
    values: dict[str, Any] = {
        "kind": "router",
        "name": f"router-{next(_numbers)}",
        "host": "north",
        "pid": 7,
        "boot": "b1",
        "state": "running",
        "beat_at": timezone.now() - timedelta(hours=1),
    }
    return Daemon.objects.create(**(values | fields))


def make_periodic_task(**fields: Any) -> Any:
    """A wake-up every minute."""
    from django_celery_beat.models import IntervalSchedule, PeriodicTask

    interval, _made = IntervalSchedule.objects.get_or_create(every=60, period="seconds")
    values: dict[str, Any] = {
        "name": f"task {next(_numbers)}",
        "task": "runtime.prune",
        "interval": interval,
        "queue": "celery.tasks",
    }
    return PeriodicTask.objects.create(**(values | fields))
