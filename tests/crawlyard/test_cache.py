"""The cache in Redis: whoever writes there runs nothing in the web server."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache.backends.redis import RedisCache

from crawlyard.settings.cache import caches

pytestmark = pytest.mark.services


class Attack:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def test_what_a_stranger_wrote_there_is_not_run(redis_url: str, tmp_path: Path) -> None:
    options = dict(caches(redis_url, "yard")["default"])
    assert options.pop("BACKEND").endswith(".RedisCache")
    cache = RedisCache(options.pop("LOCATION"), options)
    server = redis.Redis.from_url(redis_url)
    for value in (0, 7, "文", "", True, None, 1.5, {"a": [1, None]}):
        cache.set("value", value)
        assert cache.get("value") == value
    cache.set("count", 3)
    assert cache.incr("count") == 4
    folder = tmp_path / "made"
    for raw in (pickle.dumps(Attack(folder)), b"\xff", b"[" * 100_000):
        server.set(cache.make_and_validate_key("value"), raw)
        assert cache.get("value", "absent") in (None, "absent")
        assert not folder.exists()
