"""Celery's tasks as files, each of which is there only once it is whole.

Kombu's own transport opens a file under its last name and then writes it. A worker that takes it in
between finds it empty and ends, and the task is gone.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from pathlib import Path
from queue import Empty
from typing import Any, Final

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.json import dumps

# The scheme of its URL.
NAME: Final = "files"

_ending = threading.Event()
_turn = threading.Lock()
_last_moment = 0


def hand_out_no_more() -> None:
    """From a worker that ends: what it puts into a queue is for the next one.

    Celery goes on reading for up to 4 s after it was asked to stop, and a worker taking one as its
    process ends takes the task with it.
    """
    _ending.set()


def _next_moment() -> int:
    """Nanoseconds since 1970, in this process greater with each call."""
    global _last_moment
    with _turn:
        _last_moment = max(_last_moment + 1, time.time_ns())
        return _last_moment


class Channel(filesystem.Channel):
    """Writes under another name first; workers only read names that end with the queue's."""

    def _get(self, queue: Any, timeout: Any = None) -> Any:
        if _ending.is_set():
            raise Empty
        return super()._get(queue)  # type: ignore[no-untyped-call]

    # Kombu calls the second argument "message" in one class and "payload" in the next.
    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        # Names sort in the order of the queue. Kombu's own have milliseconds since the machine was
        # started: tasks of one millisecond change places, and those of before a restart come last.
        name = f"{_next_moment()}_{uuid.uuid4()}.{queue}.msg"
        path = Path(self.data_folder_out, name)
        part = path.with_name(f"{name}.part")
        try:
            part.write_text(dumps(payload), encoding="utf-8")  # type: ignore[no-untyped-call]
            os.replace(part, path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise ChannelError(f"cannot write {path}: {error}") from error


class Transport(filesystem.Transport):
    """Kombu's with that channel."""

    Channel = Channel


TRANSPORT_ALIASES[NAME] = f"{__name__}:Transport"
