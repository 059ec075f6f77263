"""Interface of record API clients. All of them run in one event loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


class BadAnswer(Exception):
    """The response violates the API's contract; the request is retried. The text has no secret."""


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A page of records in the API's order; ``total`` is None if the API does not state it."""

    records: list[Any]
    total: int | None


@dataclass(frozen=True, slots=True)
class Secrets:
    """Decrypted values of a ``Credential``."""

    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)


class RecordClient(Protocol):
    """Client of one source. Every method but ``close`` raises ``ApiFailed``."""

    @property
    def latency(self) -> float:
        """Average response time in seconds."""

    async def total(self) -> int:
        """Return the number of records."""

    async def batch(self, offset: int, size: int) -> RecordPage:
        """Return the records from ``offset`` on; fewer than ``size`` only at the end."""

    async def top(self, size: int) -> RecordPage:
        """Return the first records that are not marked as exported."""

    async def mark(self) -> None:
        """Mark the records of the last ``top`` call as exported."""

    async def close(self) -> None:
        """Close all connections."""


def whole(value: Any, name: str) -> int:
    """Return a count from a response. Raises ``BadAnswer``."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise BadAnswer(f"{name} is no count: {type(value).__name__}")
    return value
