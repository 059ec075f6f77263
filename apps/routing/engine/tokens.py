"""Rate limits of outbounds: one token bucket for each outbound and scope value.

The buckets are in Redis, so that all routers share them and one clock. Without a Redis URL they are
in this process. While Redis is unreachable, each router continues with its share of the rate: the
total may be below the limit, and exceeds it by one burst at most.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import redis

from apps.routing.engine.outbounds.redis_client import connect, outcome_of
from yardkit.clock import Clock, SystemClock
from yardkit.outage import Outage

logger = logging.getLogger(__name__)

# Scope values come from items, so their number is unbounded; see ``LocalBuckets``.
MOST_LOCAL_VALUES: Final = 20_000
_SWEEP_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 2.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 10.0
_MOST_KEYS: Final = 1000

# ARGV: rate, burst, time in microseconds or "", then the number of tokens wanted for each of KEYS.
# Returns (granted, tokens left) for each key. A full bucket equals a missing one, so keys expire
# when they are full. If the clock is set back, no tokens are added or removed.
_TAKE: Final = """
local rate, burst, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local answer = {}
for i = 1, #KEYS do
  local wanted, tokens = tonumber(ARGV[i + 3]), burst
  local kept, at = string.match(redis.call('GET', KEYS[i]) or '', '^([^ ]+) (%d+)$')
  kept, at = tonumber(kept or ''), tonumber(at or '')
  if kept and at and kept > -1 then
    tokens = math.min(burst, kept + math.max(0, now - at) * rate / 1000000)
  end
  local granted = math.min(wanted, math.floor(tokens + 0.000000001))
  -- a hair below 0 where rounding gave one: it is paid back
  tokens = tokens - granted
  local text = string.format('%.17g', tokens)
  local life = math.min(math.ceil((burst - tokens) / rate * 1000) + 1000, 10000000000)
  redis.call('SET', KEYS[i], text .. ' ' .. string.format('%.0f', now), 'PX',
    string.format('%.0f', life))
  answer[2 * i - 1] = granted
  answer[2 * i] = text
end
return answer
"""


class BucketsUnreachable(Exception):
    """Raised when the buckets in Redis cannot be reached; the message has the reason."""


class Buckets(Protocol):
    """Store of the token buckets of one outbound."""

    def draw(self, wanted: Mapping[str, int]) -> dict[str, tuple[int, float]]:
        """Take up to ``wanted`` tokens for each scope value.

        Returns (tokens granted, tokens left) by value. Raises ``BucketsUnreachable``.
        """


class RedisBuckets:
    """Buckets in Redis, shared by all routers; the clock of the Redis server is used."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        name: str,
        rate: float,
        timeout_seconds: float,
        clock: Clock | None = None,
    ) -> None:
        """``clock`` replaces the clock of the Redis server in tests."""
        self._url = url
        self._client: Any = connect(url, timeout_seconds)
        self._script = self._client.register_script(_TAKE)
        # Hash tag in braces: a Redis Cluster keeps all buckets of an outbound in one slot.
        self._prefix = f"{{{prefix}:tokens:{_short(name)}}}:"
        self._rate = rate
        self._burst = burst_of(rate)
        self._clock = clock

    def draw(self, wanted: Mapping[str, int]) -> dict[str, tuple[int, float]]:
        """See ``Buckets.draw``; one round trip for each ``_MOST_KEYS`` values."""
        now = "" if self._clock is None else f"{self._clock.time() * 1e6:.0f}"
        values = list(wanted)
        drawn: dict[str, tuple[int, float]] = {}
        for start in range(0, len(values), _MOST_KEYS):
            part = values[start : start + _MOST_KEYS]
            arguments: list[str | int] = [repr(self._rate), repr(self._burst), now]
            arguments += [wanted[bucket] for bucket in part]
            try:
                answer = self._script(
                    keys=[self._prefix + _short(value) for value in part], args=arguments
                )
            except (redis.RedisError, OSError) as error:
                raise BucketsUnreachable(outcome_of(error, self._url).reason) from error
            for number, value in enumerate(part):
                drawn[value] = int(answer[2 * number]), float(answer[2 * number + 1])
        return drawn

    def close(self) -> None:
        """Close the connections to Redis."""
        self._client.close()


class LocalBuckets:
    """Buckets in the memory of this process. Not thread-safe.

    At most ``most_values`` buckets are kept. Full buckets are evicted, because they equal missing
    ones. If none is full, further values share one bucket, so their rate may be lower than the
    limit but never higher.
    """

    def __init__(
        self,
        rate: float,
        clock: Clock,
        *,
        is_empty: bool = False,
        most_values: int = MOST_LOCAL_VALUES,
    ) -> None:
        """Create full buckets, or with ``is_empty`` buckets that are empty now."""
        self.rate = rate
        self._burst = burst_of(rate)
        self._clock = clock
        self._most = most_values
        self._made_at = clock.monotonic() if is_empty else -math.inf
        self._swept_at = -math.inf
        self._buckets: dict[str, tuple[float, float]] = {}
        self._shared = (0.0, self._made_at)

    def __len__(self) -> int:
        return len(self._buckets)

    def draw(self, wanted: Mapping[str, int]) -> dict[str, tuple[int, float]]:
        """See ``Buckets.draw``."""
        now = self._clock.monotonic()
        drawn = {}
        for value, number in wanted.items():
            own = value in self._buckets or self._has_room(now)
            kept, at = self._buckets.get(value, (0.0, self._made_at)) if own else self._shared
            tokens = min(self._burst, kept + (now - at) * self.rate)
            granted = min(number, math.floor(tokens + 1e-9))
            left = tokens - granted
            if own:
                self._buckets[value] = left, now
            else:
                self._shared = left, now
            drawn[value] = granted, left
        return drawn

    def _has_room(self, now: float) -> bool:
        if len(self._buckets) < self._most:
            return True
        # Limit the sweeps: one scan of all buckets for each new value would be expensive.
        if now - self._swept_at < _SWEEP_SECONDS:
            return False
        self._swept_at = now
        self._buckets = {
            value: (kept, at)
            for value, (kept, at) in self._buckets.items()
            if kept + (now - at) * self.rate < self._burst
        }
        return len(self._buckets) < self._most


class RateLimiter:
    """Rate limiter of one outbound. Thread-safe; only calls to Redis block."""

    def __init__(
        self,
        name: str,
        rate: float,
        *,
        redis_url: str = "",
        prefix: str = "crawlyard",
        share: float = 1.0,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Clock | None = None,
        redis_clock: Clock | None = None,
    ) -> None:
        """Create a limiter without connecting to Redis yet.

        Args:
            name: name of the outbound, unique in the whole installation, such as "7:captcha".
            rate: tokens per second for each scope value; 0 is unlimited.
            redis_url: "" keeps the buckets in this process.
            share: fraction of the rate that this process uses while Redis is unreachable,
                normally 1 / number of routers. It can be changed later.
            timeout_seconds: timeout of a call to Redis.
            clock: clock of the local buckets.
            redis_clock: replaces the clock of the Redis server in tests.

        Raises:
            ValueError: the rate is negative or not finite, or the share is not in (0, 1].
        """
        if not 0 <= rate < math.inf:
            raise ValueError(f"a rate is 0 or more tokens a second, not {rate}")
        self._name = name
        self._rate = rate
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self.share = share
        self._shared: RedisBuckets | None = None
        self._local: LocalBuckets | None = None
        # Back off after a failure, because a Redis server that hangs would delay every batch.
        self._outage = Outage(
            logger,
            f"rate limit of {name} in Redis (meanwhile a local share of {rate:g} a second)",
            first=_FIRST_PAUSE_SECONDS,
            longest=_LONGEST_PAUSE_SECONDS,
        )
        self._try_at = -math.inf
        if rate > 0 and redis_url:
            self._shared = RedisBuckets(
                redis_url,
                prefix=prefix,
                name=name,
                rate=rate,
                timeout_seconds=timeout_seconds,
                clock=redis_clock,
            )
        elif rate > 0:
            self._local = LocalBuckets(rate, self._clock)

    @property
    def share(self) -> float:
        """Fraction of the rate, in (0, 1], that this process uses while Redis is unreachable."""
        return self._share

    @share.setter
    def share(self, share: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"a share is more than 0 and at most 1, not {share}")
        self._share = share

    @property
    def degraded(self) -> str:
        """Why local buckets replace those in Redis at present; "" if they do not."""
        return self._outage.error

    def take(self, wanted: Sequence[str]) -> list[float]:
        """Take one token for each entry of ``wanted``, in order.

        Entries are scope values, "*" for the whole outbound; a value may occur several times.
        Returns for each entry 0 if the token is granted, else the estimated wait in seconds.
        """
        if self._rate == 0 or not wanted:
            return [0.0] * len(wanted)
        with self._lock:
            drawn, rate = self._draw(Counter(wanted))
        waits: list[float] = []
        refusals: defaultdict[str, int] = defaultdict(int)
        granted = {value: number for value, (number, _) in drawn.items()}
        for value in wanted:
            if granted[value] > 0:
                granted[value] -= 1
                waits.append(0.0)
            else:
                refusals[value] += 1
                # Never 0, which means granted.
                waits.append(max((refusals[value] - drawn[value][1]) / rate, 1e-6))
        return waits

    def close(self) -> None:
        """Close the connections to Redis."""
        if self._shared is not None:
            self._shared.close()

    # --- with the lock held --------------------------------------------------------------------

    def _draw(self, wanted: Mapping[str, int]) -> tuple[dict[str, tuple[int, float]], float]:
        """Return the tokens that were taken, and the refill rate of the buckets used."""
        now = self._clock.monotonic()
        if self._shared is not None and now >= self._try_at:
            try:
                drawn = self._shared.draw(wanted)
            except BucketsUnreachable as error:
                self._try_at = self._clock.monotonic() + self._outage.failed(error)
            else:
                if self._outage.lasting:
                    self._outage.recovered()
                    self._local = None
                return drawn, self._rate
        local = self._local
        if local is None or (self._shared is not None and local.rate != self._rate * self._share):
            # Start empty: tokens that Redis has just granted must not be granted again.
            local = self._local = LocalBuckets(
                self._rate * self._share, self._clock, is_empty=self._shared is not None
            )
        return local.draw(wanted), local.rate


def burst_of(rate: float) -> float:
    """Return the capacity of a bucket: the tokens of one second, at least 1."""
    return max(rate, 1.0)


def _short(text: str) -> str:
    """Return a short hash of a text, because scope values may be long or contain anything."""
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()
