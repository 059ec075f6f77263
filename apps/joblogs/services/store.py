"""The log store of this process."""

from __future__ import annotations

import os
import threading
import time

from django.conf import settings

from apps.joblogs.stores.base import LogStore, StoreUnavailable
from apps.joblogs.stores.opening import open_log_store


class _Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.store: LogStore | None = None
        # Why it could not be opened, and when that was known, of the monotonic clock.
        self.failure: StoreUnavailable | None = None
        self.failed_at = 0.0


_shared = _Shared()


def _forget_after_fork() -> None:
    # The parent's connections are not ours.
    global _shared
    _shared = _Shared()


os.register_at_fork(after_in_child=_forget_after_fork)


def log_store() -> LogStore:
    """The store that ``LOGS_URL`` names, opened and set up at the first use. Thread-safe.

    Raises:
        StoreUnavailable: it does not answer; the next call tries again.
    """
    shared = _shared
    store = shared.store
    if store is not None:
        return store
    asked_at = time.monotonic()
    with shared.lock:
        if shared.store is None:
            if shared.failure is not None and shared.failed_at >= asked_at:
                # Waited for with whoever tried: many who try in turn would wait for each other.
                raise StoreUnavailable(str(shared.failure))
            try:
                shared.store = _opened()
            except StoreUnavailable as error:
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
