"""What every client of a record API offers. All of it runs in one event loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


class BadAnswer(Exception):
    """An answer that is not what the API promises: asked again. The text holds no secret."""


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Records in the API's order, and how many it has in all; None where it does not say."""

    records: list[Any]
    total: int | None


@dataclass(frozen=True, slots=True)
class Secrets:
    """What a ``Credential`` holds, opened."""

    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)


class RecordClient(Protocol):
    """One source's client. Every method but ``close`` raises ``ApiFailed``."""

    @property
    def latency(self) -> float:
        """Seconds an answer takes, averaged."""

    async def total(self) -> int:
        """How many records there are (seed S0.3)."""

    async def batch(self, offset: int, size: int) -> RecordPage:
        """The records from ``offset`` on; fewer than ``size`` only where there are no more."""

    async def top(self, size: int) -> RecordPage:
        """The first records that were not exported (seed S0.39)."""

    async def mark(self) -> None:
        """Mark the records of the last ``top`` as exported."""

    async def close(self) -> None:
        """Let go of every connection."""


def whole(value: Any, name: str) -> int:
    """A count in an answer. Raises ``BadAnswer``."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise BadAnswer(f"{name} is no count: {type(value).__name__}")
    return value
