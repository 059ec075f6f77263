"""A router of its own for test_tokens.py: draws until the server's clock says that it is over.

Arguments: URL, prefix, rate. Reads when it is over, in seconds since 1970 by the server's clock.
Draws once at least, and prints how many it got.
"""

from __future__ import annotations

import sys

import redis

from apps.routing.engine.tokens import RateLimiter


def main() -> None:
    """Take tokens until the deadline, always requesting more than are available."""
    url, prefix, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
    tokens = RateLimiter("shared", rate, redis_url=url, prefix=prefix, timeout_seconds=60)
    client = redis.Redis.from_url(url)
    print("ready", flush=True)
    until = float(sys.stdin.readline())
    granted, now = 0, 0.0
    while now < until:
        granted += tokens.take(["*"] * 10).count(0.0)
        seconds, microseconds = client.time()
        now = seconds + microseconds / 1e6
    print(granted, tokens.degraded or "shared", flush=True)


if __name__ == "__main__":
    main()
