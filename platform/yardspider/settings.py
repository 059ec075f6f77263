"""Settings of a spider: speed, limits, timeouts, retries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from yardspider.errors import BadInput


class SpiderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a spider; times in seconds. Defaults are those of seed S1.42 to S1.50, or say so.

    concurrency: most requests out at once. Retries of unanswered requests and requests
        held by the center do not count.
    speed: requests per second, also below 1; 0 is unlimited.
    request_timeout_seconds: time without an answer after which a request is sent again.
    request_timeout_retries: number of these; then the request has failed.
    download_retries: retries after a refused connection, HTTP 429 or 5xx.
    retry_delay_seconds: delay of the first of those, doubled for each further one.
    no_answer_seconds: the run fails when requests are out and nothing comes back.
    held_limit: most requests held by the center; above it no new one is sent.
    agent_gone_seconds: a chained run fails when all of its agents are dead for this time.
    remembered_requests: fingerprints kept to drop duplicates. Beyond that the oldest half is
        forgotten: such a request is fetched again. About 100 bytes each.
    fed_from_outside: ``start`` may wait for input without end; the run ends when empty.
    empty_seconds: how long a run stays empty before it ends. None is 30 for one that is fed from
        outside, 60 for one that takes seeds (S3.20) and 0 for every other. 0: only the end of
        ``start`` ends one that is fed from outside, and only a stop one that takes seeds.
    allocate_seconds: limit for the center's answer and its agents' confirmations.
    statistics_seconds: interval of publishing changed counters. The seed has at least 5; a page
        that is watched live needs 1.
    publish_retries: retries while the broker is unreachable, one a second. The seed has
        28800, 8 hours; after a minute an operator should be notified instead.
    slow_start_seconds: time in which ``concurrency`` grows from 1. 0 is off.
    stop_seconds: how long a stopped run waits for outstanding pages.
    unconfirmed_items: with more items that the broker has not confirmed, nothing new is sent and
        callbacks that yield items wait.
    unconfirmed_bytes: the same for the size of the messages of items and files.
    seeds_ahead: most seeds leased and not begun.
    seed_service_seconds: the run fails when the seed service is unreachable for this time.
    initial_seeds: file with seeds, one a line, added after the start.
    """

    concurrency: int = 100
    speed: float = 1.0
    request_timeout_seconds: float = 15.0
    request_timeout_retries: int = 20
    download_retries: int = 5
    retry_delay_seconds: float = 0.2
    no_answer_seconds: float = 300.0
    held_limit: int = 1000
    agent_gone_seconds: float = 60.0
    remembered_requests: int = 10_000_000
    fed_from_outside: bool = False
    empty_seconds: float | None = None
    allocate_seconds: float = 30.0
    statistics_seconds: float = 1.0
    publish_retries: int = 60
    slow_start_seconds: float = 0.0
    stop_seconds: float = 1.5
    unconfirmed_items: int = 50_000
    unconfirmed_bytes: int = 16 * 1024 * 1024
    seeds_ahead: int = 100
    seed_service_seconds: float = 60.0
    initial_seeds: str | None = None

    @property
    def patience_seconds(self) -> float:
        """``empty_seconds``, or its default for a run that takes no seeds."""
        if self.empty_seconds is not None:
            return self.empty_seconds
        return _FED_EMPTY_SECONDS if self.fed_from_outside else 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None or isinstance(value, str):
                continue
            if not math.isfinite(value) or value < _LEAST.get(name, 0):
                raise ValueError(f"{name} must be at least {_LEAST.get(name, 0)}, not {value}")

    def differences(self, other: SpiderSettings) -> str:
        """Return the settings in which ``other`` differs, as ``name=value (was value)``."""
        names = [
            name for name in self.__struct_fields__ if getattr(self, name) != getattr(other, name)
        ]
        return ", ".join(
            f"{name}={getattr(other, name)} (was {getattr(self, name)})" for name in names
        )

    def changed(self, changes: Mapping[str, Any], *, origin: str) -> SpiderSettings:
        """Return a copy with other values; texts such as ``"2.5"`` are read as numbers.

        Raises ``BadInput`` with the origin, the setting and the error.
        """
        unknown = sorted(set(changes) - set(self.__struct_fields__))
        if unknown:
            known = ", ".join(self.__struct_fields__)
            raise BadInput(f"{origin}: there is no setting {unknown[0]!r}; there are: {known}")
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        try:
            return msgspec.convert({**values, **changes}, SpiderSettings, strict=False)
        except msgspec.ValidationError as error:
            raise BadInput(f"{origin}: {error}") from error


_FED_EMPTY_SECONDS = 30.0
SEEDS_EMPTY_SECONDS = 60.0
_LEAST: dict[str, float] = {
    "concurrency": 1,
    "request_timeout_seconds": 0.1,
    "no_answer_seconds": 1,
    "held_limit": 1,
    "remembered_requests": 2,
    "allocate_seconds": 0.1,
    "statistics_seconds": 0.1,
    "unconfirmed_items": 1,
    "unconfirmed_bytes": 1,
    "seeds_ahead": 1,
}
