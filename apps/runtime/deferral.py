"""Celery tasks by name, sent when the transaction commits.

A task is only a wake-up: its row says what to do, and a sweep finds rows that no wake-up reached.
An unreachable broker therefore delays work and never loses it.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.utils.module_loading import import_string

from apps.runtime.engine.background import BackgroundWorker

logger = logging.getLogger(__name__)

# While the broker is unreachable the oldest are dropped first; sweeps find their rows.
WAITING_TASKS: Final = 1000
RETRY_SECONDS: Final = 2.0

_waiting: deque[tuple[str, str, dict[str, Any]]] = deque(maxlen=WAITING_TASKS)
# The parent process sends the tasks that it has queued.
os.register_at_fork(after_in_child=_waiting.clear)


def defer(name: str, *, queue: str, **arguments: Any) -> None:
    """Queue the Celery task ``name`` on commit.

    Raises TypeError or ValueError if the arguments are not plain data.
    """
    json.dumps(arguments, allow_nan=False)
    transaction.on_commit(lambda: _send(name, queue, arguments))


def _send(name: str, queue: str, arguments: dict[str, Any]) -> None:
    _waiting.append((name, queue, arguments))
    try:
        _worker.wake()
    except RuntimeError:
        logger.warning("task %s waits for its sweep: no thread can be started", name)


def _celery() -> Any:
    # Imported in the sending thread: most daemons never send, and Celery doubles the start time.
    return import_string(settings.DEFERRED_TASKS_APP)


def _send_waiting() -> float | None:
    from amqp.exceptions import AMQPError
    from kombu.exceptions import KombuError

    while _waiting:
        # Removed before it is sent: a full queue may drop its head meanwhile.
        name, queue, arguments = task = _waiting.popleft()
        try:
            _celery().send_task(
                name, kwargs=arguments, queue=queue, retry=False, ignore_result=True
            )
        except (KombuError, AMQPError, OSError) as error:
            if len(_waiting) < WAITING_TASKS:
                _waiting.appendleft(task)
            logger.warning("tasks wait for the broker: %s", error)
            return RETRY_SECONDS
    return None


_worker = BackgroundWorker("deferred-tasks", _send_waiting)


def stop_deferring(timeout: float) -> None:
    """Send queued tasks for at most ``timeout`` seconds; later ones are left to their sweeps."""
    _worker.stop(timeout)
