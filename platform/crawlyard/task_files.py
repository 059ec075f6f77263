"""File transport of Celery that publishes each task atomically.

Kombu's transport opens a file under its final name and then writes it. A worker that reads it in
between finds it empty and stops, and the task is lost.
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

# URL scheme of the transport.
NAME: Final = "files"

_ending = threading.Event()
_turn = threading.Lock()
_last_moment = 0


def hand_out_no_more() -> None:
    """Stop handing out tasks in a worker that ends.

    Celery continues to read for up to 4 s after a stop request; a task taken while the process
    ends would be lost.
    """
    _ending.set()


def _next_moment() -> int:
    """Return nanoseconds since 1970, strictly rising within this process."""
    global _last_moment
    with _turn:
        _last_moment = max(_last_moment + 1, time.time_ns())
        return _last_moment


class FileChannel(filesystem.Channel):
    """Channel that writes under a temporary name first."""

    def _get(self, queue: Any, timeout: Any = None) -> Any:
        if _ending.is_set():
            raise Empty
        return super()._get(queue)  # type: ignore[no-untyped-call]

    # Kombu's base class and its subclass name the second argument differently.
    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        # Names sort in queue order. Kombu's names have milliseconds since boot: tasks of the same
        # millisecond change places, and tasks from before a reboot come last.
        name = f"{_next_moment()}_{uuid.uuid4()}.{queue}.msg"
        path = Path(self.data_folder_out, name)
        part = path.with_name(f"{name}.part")
        try:
            part.write_text(dumps(payload), encoding="utf-8")  # type: ignore[no-untyped-call]
            os.replace(part, path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise ChannelError(f"cannot write {path}: {error}") from error


class FileTransport(filesystem.Transport):
    """Kombu's transport with the atomic channel."""

    Channel = FileChannel


TRANSPORT_ALIASES[NAME] = f"{__name__}:FileTransport"
