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
        # Last error of opening the store, and its time on the monotonic clock.
        self.failure: LogStoreUnavailable | None = None
        self.failed_at = 0.0


_shared = _SharedLogStore()


def _forget_after_fork() -> None:
    # A forked process must not use the connections of its parent.
    global _shared
    _shared = _SharedLogStore()


os.register_at_fork(after_in_child=_forget_after_fork)


def log_store() -> LogStore:
    """Return the store at ``LOGS_URL``, opened and set up at the first use. Thread-safe.

    Raises:
        LogStoreUnavailable: the next call tries again.
    """
    shared = _shared
    store = shared.store
    if store is not None:
        return store
    asked_at = time.monotonic()
    with shared.lock:
        if shared.store is None:
            if shared.failure is not None and shared.failed_at >= asked_at:
                # Waiting callers share the result of one attempt: retrying one by one would add up
                # their waits.
                raise LogStoreUnavailable(str(shared.failure))
            try:
                shared.store = _opened()
            except LogStoreUnavailable as error:
                shared.failure, shared.failed_at = error, time.monotonic()
                raise
        return shared.store


def close_log_store() -> None:
    """Close the store if it is open; the next use opens it again."""
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
