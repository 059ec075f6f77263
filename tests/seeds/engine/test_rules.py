"""From what somebody adds to what a store takes, and what is refused."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

import pytest

from apps.seeds.engine.errors import BadSeed
from apps.seeds.engine.keys import key_hash, key_resolver
from apps.seeds.engine.rules import FrontierRules
from apps.seeds.engine.seeds import (
    DEFAULT_SEGMENT,
    MAX_EXT_BYTES,
    MAX_RETRY,
    TIMELESS_DUE,
    Outcome,
    ResolvedSeed,
    Seed,
    State,
    after,
)
from apps.seeds.engine.segments import segment_resolver

RULES = FrontierRules()
NOON = 1_780_056_000_000
MIDNIGHT_UTC = 1_780_012_800_000


@pytest.mark.covers("S3.3", "S3.4", "S3.10", "S3.11")
def test_a_seed_without_a_time_goes_to_the_default_segment() -> None:
    assert RULES.resolve(Seed("a")) == ResolvedSeed(
        DEFAULT_SEGMENT, "a", key_hash("a"), TIMELESS_DUE, MAX_RETRY, "a"
    )


@pytest.mark.covers("S3.3", "S3.4")
def test_a_seed_with_a_time_goes_to_its_day() -> None:
    assert RULES.resolve(Seed("a", NOON)).segment == MIDNIGHT_UTC
    assert RULES.resolve(Seed("a", NOON)).due == NOON
    shanghai = FrontierRules(segments=segment_resolver("day", ZoneInfo("Asia/Shanghai")))
    assert shanghai.resolve(Seed("a", NOON)).segment == MIDNIGHT_UTC - 8 * 3_600_000


@pytest.mark.parametrize(
    ("seed", "code", "text"),
    [
        (Seed(""), "empty_data", "empty"),
        (Seed("x" * 70_000), "data_too_large", "65536 are allowed"),
        (Seed("中" * 30_000), "data_too_large", "90000 bytes"),
        (Seed("x" * 9000), "key_too_large", "8192 are allowed"),
        (Seed("a\x00b"), "binary_data", "U\\+0000 at position 2"),
        (Seed("a\nb"), "binary_data", "U\\+000A"),
        (Seed("ab\udcff"), "binary_data", "half a character at position 3"),
        (Seed(b"\xff\xfe"), "binary_data", "bytes, not text"),  # type: ignore[arg-type]
        (Seed("a", -1), "bad_time", "-1"),
        (Seed("a", 1_780_056_000), "bad_time", "in ms"),
        (Seed("a", 10**16), "bad_time", "1973 and 2100"),
        (Seed("a", max_retry=-1), "bad_retry", "0 to 1000"),
        (Seed("a", max_retry=1001), "bad_retry", "1001"),
        (Seed("a", ext={"x": float("nan")}), "bad_ext", "nan"),
        (Seed("a", ext={"x": 2**70}), "bad_ext", "ext"),
        (Seed("a", ext={"x": b"1"}), "bad_ext", "bytes"),
        (Seed("a", ext={1: 2}), "bad_ext", "the name 1"),  # type: ignore[dict-item]
        (Seed("a", ext={"x": "\ud800"}), "bad_ext", "surrogates"),
        (Seed("a", ext={"x": "y" * MAX_EXT_BYTES}), "bad_ext", "allowed"),
        (Seed("a", ext=[1]), "bad_ext", "list, not an object"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_a_seed_that_cannot_be_taken_says_why(seed: Seed, code: str, text: str) -> None:
    with pytest.raises(BadSeed, match=text) as refusal:
        RULES.resolve(seed)
    assert refusal.value.code == code


def test_ext_has_a_depth() -> None:
    ext: dict[str, Any] = {}
    for _ in range(100_000):
        ext = {"x": ext}
    with pytest.raises(BadSeed, match="deeper than 20") as refusal:
        RULES.resolve(Seed("a", ext=ext))
    assert refusal.value.code == "bad_ext"


def test_a_key_that_cannot_be_made_refuses_its_seed_alone() -> None:
    rules = FrontierRules(keys=key_resolver("canonical"))
    good, bad = rules.resolve_all([Seed("http://h/?a=1#x"), Seed("http://[::1/")])
    assert isinstance(good, ResolvedSeed)
    assert (good.key, good.data) == ("http://h/?a=1", "http://h/?a=1#x")
    assert isinstance(bad, BadSeed)
    assert (bad.code, str(bad)) == ("bad_key", "no key: ValueError: Invalid IPv6 URL")


@pytest.mark.parametrize(
    ("key", "code"),
    [("", "empty_key"), ("a\x01", "binary_key"), ("x" * 9000, "key_too_large"), (7, "binary_key")],
    ids=["empty", "control", "large", "number"],
)
def test_what_a_resolver_makes_is_checked(key: Any, code: str) -> None:
    with pytest.raises(BadSeed) as refusal:
        FrontierRules(keys=lambda data: key).resolve(Seed("a"))
    assert refusal.value.code == code


@pytest.mark.parametrize(
    "segment", [-1, 10**15, "x", None, 1.5], ids=["past", "far", "text", "none", "float"]
)
def test_what_a_segment_resolver_makes_is_checked(segment: Any) -> None:
    with pytest.raises(BadSeed) as refusal:
        FrontierRules(segments=lambda time: segment).resolve(Seed("a", NOON))
    assert refusal.value.code == "bad_segment"

    def broken(time: int) -> int:
        raise KeyError(time)

    with pytest.raises(BadSeed, match="KeyError"):
        FrontierRules(segments=broken).resolve(Seed("a", NOON))


@pytest.mark.covers("S3.11", "S3.15", "S3.17")
def test_what_a_finish_makes_of_a_seed() -> None:
    assert [int(state) for state in State][:5] == [0, 1, 2, 3, 4]
    assert after(Outcome.SUCCESS, 2, 3) == (State.SUCCEEDED, 2)
    assert after(Outcome.IGNORED, 0, 3) == (State.IGNORED, 0)
    assert after(Outcome.FAILURE, 0, 3) == (State.RETRY, 1)
    assert after(Outcome.FAILURE, 2, 3) == (State.FAILED, 3)
    assert after(Outcome.FAILURE, 0, 0) == (State.FAILED, 1)
    assert after(Outcome.GIVEN_UP, 0, 3) == (State.FAILED, 1)
