"""The log store of this process."""

from __future__ import annotations

import os
import threading
import time

from django.conf import settings

from apps.joblogs.stores.base import LogStore, LogStoreUnavailable
from apps.joblogs.stores.factory import open_log_store


class _SharedLogStore:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.store: LogStore | None = None
        # Why it could not be opened, and when that was known, of the monotonic clock.
        self.failure: LogStoreUnavailable | None = None
        self.failed_at = 0.0


_shared = _SharedLogStore()


def _forget_after_fork() -> None:
    # The parent's connections are not ours.
    global _shared
    _shared = _SharedLogStore()


os.register_at_fork(after_in_child=_forget_after_fork)


def log_store() -> LogStore:
    """The store that ``LOGS_URL`` names, opened and set up at the first use. Thread-safe.

    Raises:
        LogStoreUnavailable: it does not answer; the next call tries again.
    """
    shared = _shared
    store = shared.store
    if store is not None:
        return store
    asked_at = time.monotonic()
    with shared.lock:
        if shared.store is None:
            if shared.failure is not None and shared.failed_at >= asked_at:
                # Callers share one attempt: in turn, each would wait for the attempts before it.
                raise LogStoreUnavailable(str(shared.failure))
            try:
                shared.store = _opened()
            except LogStoreUnavailable as error:
                shared.failure, shared.failed_at = error, time.monotonic()
                raise
        return shared.store


def close_log_store() -> None:
    """Let go of it, if it is open; the next use opens it again."""
    shared = _shared
    with shared.lock:
        store, shared.store = shared.store, None
    if store is not None:
        store.close()


def _opened() -> LogStore:
    store = open_log_store(settings.LOGS_URL)
    try:
        store.setup()
    except BaseException:
        store.close()
        raise
    return store
