"""Fixtures of the kit's tests."""

from __future__ import annotations

from tests.yardkit.broker_fixtures import broker, brokers, queue, unique_prefix

__all__ = ["broker", "brokers", "queue", "unique_prefix"]
