"""Rate limits: never more than the rate plus one burst, with any number of callers."""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from apps.routing.engine.tokens import LocalBuckets, RateLimiter, burst_of
from tests.routing.engine.outbounds.targets import through
from tests.yardkit.broker_proxy import Proxy
from tools.requirement_marks import ROOT
from yardkit.clock import ManualClock

MakeTokens = Callable[..., RateLimiter]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def prefix() -> str:
    return f"tokens-{secrets.token_hex(4)}"


@pytest.fixture(params=["local", pytest.param("redis", marks=pytest.mark.services)])
def make(request: pytest.FixtureRequest, clock: ManualClock, prefix: str) -> Iterator[MakeTokens]:
    """Create a rate limiter with a stopped clock, in this process or in Redis."""
    url = "" if request.param == "local" else request.getfixturevalue("redis_url")
    with contextlib.ExitStack() as stack:

        def build(rate: float, name: str = "own") -> RateLimiter:
            tokens = RateLimiter(
                name,
                rate,
                redis_url=url,
                prefix=prefix,
                clock=clock,
                redis_clock=clock,
                timeout_seconds=60,
            )
            stack.callback(tokens.close)
            return tokens

        yield build


def granted(tokens: RateLimiter, number: int, value: str = "*") -> int:
    return tokens.take([value] * number).count(0.0)


@pytest.mark.covers("S2.31")
def test_a_second_has_as_many_tokens_as_the_rate(make: MakeTokens, clock: ManualClock) -> None:
    tokens = make(5.0)
    assert granted(tokens, 20) == 5
    for _ in range(10):
        clock.advance(0.2)
        assert granted(tokens, 20) == 1
        clock.advance(0.1)
        assert granted(tokens, 20) == 0
        clock.advance(0.1)
        assert granted(tokens, 20) == 1
    clock.advance(3600)
    assert granted(tokens, 20) == 5


@pytest.mark.covers("S2.31")
def test_every_value_has_its_own_bucket(make: MakeTokens) -> None:
    tokens = make(2.0)
    odd = ["北京", "", "*", "a b", "\ud800", "x" * 100_000, "{a}", "0"]
    waits = tokens.take([value for value in odd for _ in range(3)])
    assert [wait == 0 for wait in waits] == [True, True, False] * len(odd)
    assert granted(make(2.0, "another"), 3) == 2


def test_the_wait_is_what_it_takes(make: MakeTokens, clock: ManualClock) -> None:
    tokens = make(4.0)
    waits = tokens.take(["*"] * 7)
    assert waits[:4] == [0.0] * 4
    assert waits[4:] == pytest.approx([0.25, 0.5, 0.75])
    clock.advance(waits[5] - 0.001)
    assert granted(tokens, 3) == 1
    clock.advance(0.001)
    assert granted(tokens, 3) == 1


def test_a_rate_may_be_a_fraction(make: MakeTokens, clock: ManualClock) -> None:
    tokens = make(0.1)
    assert tokens.take(["*", "*"]) == [0.0, pytest.approx(10.0)]
    clock.advance(9.9)
    assert tokens.take(["*"]) == [pytest.approx(0.1)]
    clock.advance(0.2)
    assert granted(tokens, 2) == 1
    two_and_a_half = make(2.5, "half")
    total = 0
    for _ in range(100):
        total += granted(two_and_a_half, 10)
        clock.advance(0.4)
    assert total == 2 + 99


def test_no_rate_is_no_limit(make: MakeTokens) -> None:
    assert make(0).take(["*"] * 1000) == [0.0] * 1000
    assert make(1).take([]) == []


@pytest.mark.parametrize("rate", [-1, float("inf"), float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="a rate is"):
        RateLimiter("own", rate)


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("rate", [0.3, 1.0, 7.7, 1234.5])
def test_never_more_than_rate_and_burst(make: MakeTokens, clock: ManualClock, rate: float) -> None:
    chance = random.Random(str(rate))
    tokens = make(rate)
    total, started = 0, clock.monotonic()
    for _ in range(400):
        total += granted(tokens, chance.randrange(1, 2 + int(rate / 50)))
        clock.advance(chance.random() * 2 / rate)
        assert total <= rate * (clock.monotonic() - started) + burst_of(rate) + 1e-6
    # Not far less either: one that always asks gets all.
    clock.advance(2 / rate)
    assert granted(tokens, 2) >= 1


def test_a_clock_that_is_set_back_gives_nothing_and_takes_nothing(
    make: MakeTokens, clock: ManualClock
) -> None:
    tokens = make(2.0)
    assert granted(tokens, 5) == 2
    clock.jump(-3600)
    assert granted(tokens, 5) == 0
    clock.advance(0.5)
    assert granted(tokens, 5) == 1


# --- in this process ------------------------------------------------------------------------------


def test_any_number_of_values_stays_in_bounds(clock: ManualClock) -> None:
    buckets = LocalBuckets(1.0, clock, most_values=100)
    drawn = buckets.draw({f"v{number}": 1 for number in range(1000)})
    assert len(buckets) == 100
    # 100 of their own, and one of the bucket that the others share.
    assert sum(number for number, _ in drawn.values()) == 101
    clock.advance(1.0)
    drawn = buckets.draw({f"w{number}": 1 for number in range(50)})
    assert sum(number for number, _ in drawn.values()) == 50
    assert len(buckets) == 50


def test_a_value_keeps_its_bucket_in_a_flood_of_others(clock: ManualClock) -> None:
    buckets = LocalBuckets(1.0, clock, most_values=10)
    assert buckets.draw({"mine": 1})["mine"][0] == 1
    buckets.draw({f"v{number}": 1 for number in range(1000)})
    assert buckets.draw({"mine": 1})["mine"][0] == 0


# --- in Redis -------------------------------------------------------------------------------------


@pytest.mark.slow("1 s")
@pytest.mark.services
@pytest.mark.covers("S2.31")
def test_two_routers_together_get_no_more_than_one(redis_url: str, prefix: str) -> None:
    rate = 200.0
    client: Any = redis.Redis.from_url(redis_url)

    def server_time() -> float:
        seconds, microseconds = client.time()
        return float(seconds + microseconds / 1e6)

    with client, contextlib.ExitStack() as stack:
        workers = []
        for _ in range(2):
            worker = subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).with_name("token_worker.py")),
                    redis_url,
                    prefix,
                    str(rate),
                ],
                env={"PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(worker.kill)
            workers.append(worker)
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        began = server_time()
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(f"{began + 1.5}\n")
            worker.stdin.flush()
        answers = [worker.communicate(timeout=100)[0].split(" ", 1) for worker in workers]
        ended = server_time()
    assert [how for _, how in answers] == ["shared\n"] * 2
    total = sum(int(number) for number, _ in answers)
    # Both by the clock of the server, so the load of the machine does not matter.
    assert 0 < total <= rate * (ended - began) + burst_of(rate)


@pytest.mark.services
def test_keys_expire_and_are_few(redis_url: str, prefix: str) -> None:
    tokens = RateLimiter("own", 2.0, redis_url=redis_url, prefix=prefix, timeout_seconds=60)
    with contextlib.closing(tokens), redis.Redis.from_url(redis_url) as client:
        tokens.take([f"v{number}" for number in range(2500)] * 2)
        keys = list(client.scan_iter(f"*{prefix}:tokens*", count=1000))
        assert len(keys) == 2500
        assert {0 < client.pttl(key) <= 2000 for key in keys[:50]} == {True}
        assert len(keys[0]) < 100


@pytest.mark.services
def test_many_values_are_one_round_trip(redis_url: str, prefix: str) -> None:
    tokens = RateLimiter("own", 2.0, redis_url=redis_url, prefix=prefix, timeout_seconds=60)
    with contextlib.closing(tokens), redis.Redis.from_url(redis_url) as client:
        tokens.take(["warm"])
        for key in client.scan_iter(f"*{prefix}*"):
            client.delete(key)
        shared: Any = tokens._shared
        calls = []
        script = shared._script
        shared._script = lambda **words: calls.append(1) or script(**words)
        tokens.take([f"v{number}" for number in range(1000)])
        assert len(calls) == 1


@pytest.mark.services
@pytest.mark.parametrize("junk", ["nonsense", "nan 5", "-7 1", "9e999 1", "1 99999999999999999999"])
def test_junk_in_a_bucket_gives_one_burst_at_most(
    redis_url: str, prefix: str, junk: str, clock: ManualClock
) -> None:
    tokens = RateLimiter(
        "own", 3.0, redis_url=redis_url, prefix=prefix, redis_clock=clock, timeout_seconds=60
    )
    with contextlib.closing(tokens), redis.Redis.from_url(redis_url) as client:
        tokens.take(["*"])
        [key] = client.scan_iter(f"*{prefix}:tokens*")
        client.set(key, junk)
        assert granted(tokens, 10) <= 3
        assert granted(tokens, 10) == 0
        clock.advance(1.0)
        assert granted(tokens, 10) == 3
        assert tokens.degraded == ""


@pytest.mark.slow("2 s")
@pytest.mark.services
@pytest.mark.parametrize("how", ["gone", "hung"])
def test_without_redis_each_router_goes_on_with_its_share(
    redis_url: str, prefix: str, clock: ManualClock, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="apps.routing.engine.tokens")
    port = urlsplit(redis_url).port
    assert port is not None
    with Proxy("127.0.0.1", port) as proxy, contextlib.ExitStack() as stack:
        tokens = RateLimiter(
            "7:captcha",
            4.0,
            redis_url=through(proxy, redis_url),
            prefix=prefix,
            share=0.5,
            # Only a server that hangs is waited for: the other answers at once or not at all.
            timeout_seconds=60 if how == "gone" else 6,
            clock=clock,
            redis_clock=clock,
        )
        stack.callback(tokens.close)
        assert granted(tokens, 10) == 4
        if how == "gone":
            proxy.shut()
        else:
            proxy.freeze(frozen=True)
        # Nothing at first, as the common bucket was empty a moment ago; then half of the rate.
        assert granted(tokens, 10) == 0
        assert tokens.degraded
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "7:captcha" in caplog.text
        clock.advance(0.4)
        proxy.freeze(frozen=False)
        proxy.open()
        # Not asked again so soon.
        assert tokens.take(["*"]) == [pytest.approx(0.1)]
        clock.advance(1.0)
        assert granted(tokens, 10) == 4
        assert tokens.degraded == ""
        assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_share_that_is_none_is_refused() -> None:
    tokens = RateLimiter("own", 1.0)
    for share in (0.0, -1.0, 1.1):
        with pytest.raises(ValueError, match="a share is"):
            tokens.share = share
