"""How fast a spider goes, how long it waits and how often it tries again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from yardspider.errors import BadInput


class SpiderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a spider; times in seconds. The defaults are those of seed S1.42 to S1.50.

    concurrency: requests out at once; more wait until an answer comes (S1.44).
    speed: requests per second, below 1 too; 0 is as fast as answers come.
    request_timeout_seconds: no answer for so long, and the request is sent again (S1.43).
    request_timeout_retries: so often; then the request has failed.
    download_retries: how often a refused connection, HTTP 429 or 5xx is tried again.
    retry_delay_seconds: wait before the first of those, doubled for each further one.
    no_answer_seconds: requests are out and nothing at all comes back: the run fails (S1.44).
    empty_seconds: how long a run with nothing to do waits for more; 0 ends it at once.
    allocate_seconds: how long the center has to answer, and its agents to confirm (S1.35).
    statistics_seconds: how often the counters are published, when they have changed.
    publish_retries: how often a broker that is gone is tried again, once a second (S1.42).
    """

    concurrency: int = 100
    speed: float = 1.0
    request_timeout_seconds: float = 15.0
    request_timeout_retries: int = 20
    download_retries: int = 5
    retry_delay_seconds: float = 0.2
    no_answer_seconds: float = 300.0
    empty_seconds: float = 0.0
    allocate_seconds: float = 30.0
    statistics_seconds: float = 1.0
    publish_retries: int = 60

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not math.isfinite(value) or value < _LEAST.get(name, 0):
                raise ValueError(f"{name} must be at least {_LEAST.get(name, 0)}, not {value}")

    def changed(self, changes: Mapping[str, Any], *, origin: str) -> SpiderSettings:
        """A copy with other values; texts such as ``"2.5"`` are read as numbers.

        Raises ``BadInput`` that names the origin, the setting and what is wrong with it.
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


_LEAST: dict[str, float] = {
    "concurrency": 1,
    "request_timeout_seconds": 0.1,
    "no_answer_seconds": 1,
    "allocate_seconds": 0.1,
    "statistics_seconds": 0.1,
}
