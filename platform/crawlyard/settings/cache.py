"""Cache in Redis with JSON values instead of pickles.

Unpickling executes code: a client that can write one key of Redis would control the web server.
Values that are not JSON count as absent.
"""

from __future__ import annotations

import json
from typing import Any


def caches(redis_url: str, prefix: str) -> dict[str, dict[str, Any]]:
    """Return ``CACHES``: Redis if configured, else the memory of each process."""
    if not redis_url:
        return {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    return {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": redis_url,
            "KEY_PREFIX": prefix,
            "OPTIONS": {"serializer": JsonSerializer},
        }
    }


class JsonSerializer:
    """Serializer for ``django.core.cache.backends.redis``; integers stay plain for INCR."""

    def dumps(self, value: Any) -> bytes | int:
        """Serialize. Raises ``TypeError`` for values without a form in JSON."""
        if type(value) is int:
            return value
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def loads(self, data: bytes) -> Any:
        """Deserialize; None for anything but JSON."""
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return None
