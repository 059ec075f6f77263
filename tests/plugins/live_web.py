"""The web that a test with ``live_server`` runs in threads of its own.

They all share the test's connection to a database in memory. Two that use it at once can wait for
each other for ever: one has SQLite's lock and wants Python's, to call one of Django's functions;
the other has Python's and wants to read a column. No signal reaches either.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from django.core.servers.basehttp import ThreadedWSGIServer
from django.test.testcases import LiveServerThread

_turn = threading.Lock()


class _OneAtATime(ThreadedWSGIServer):
    """Many connections, one answer at a time."""

    def set_app(self, application: Callable[..., Iterable[bytes]] | None) -> None:
        def answer(*arguments: Any) -> Iterable[bytes]:
            assert application is not None
            with _turn:
                return application(*arguments)

        super().set_app(answer)


LiveServerThread.server_class = _OneAtATime
