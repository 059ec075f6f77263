"""Every test of logs has a store of its own."""

from __future__ import annotations

import pytest

from apps.joblogs.stores.base import LogStore


@pytest.fixture(autouse=True)
def own_log_store(log_store: LogStore) -> LogStore:
    """Nobody else's lines."""
    return log_store
