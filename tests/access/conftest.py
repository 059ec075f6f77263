"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.cache import cache


@pytest.fixture(autouse=True)
def _no_requests_counted() -> Iterator[None]:
    """Throttles count in the cache, which outlives a test."""
    cache.clear()
    yield
    cache.clear()
