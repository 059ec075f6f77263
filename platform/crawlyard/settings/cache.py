"""What the cache keeps in Redis: JSON and numbers, never pickles.

To read a pickle is to run what is in it: who can write one key of that Redis would be the web
server. What stands there and is no JSON counts as absent.
"""

from __future__ import annotations

import json
from typing import Any


def caches(redis_url: str, prefix: str) -> dict[str, dict[str, Any]]:
    """``CACHES``: Redis where there is one, else the memory of each process."""
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
    """For ``django.core.cache.backends.redis``; whole numbers stay such, for Redis adds to them."""

    def dumps(self, value: Any) -> bytes | int:
        """Raises ``TypeError`` for what JSON has no form of."""
        if type(value) is int:
            return value
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def loads(self, data: bytes) -> Any:
        """None for what is no JSON."""
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            return None
