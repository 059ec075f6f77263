"""How several centers keep one limit: each requests its share once a second.

A host has one share table, in a store common to all centers. ``settle`` is the whole arithmetic; an
adapter only locks and reads tables, calls it and writes them back.
``tests/agents/politeness/test_shares.py`` holds for every adapter.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

# The center renews its share every second; after this long without renewal it expires.
LEASE_SECONDS: Final = 5.0
BLOCK_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 3600.0
# No number of centers reserves this far ahead: the clock of the store was set back.
_FARTHEST_BLOCKS: Final = 64


class SharesUnavailable(Exception):
    """The store is unreachable; the text says why."""


class ShareRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one center wants for one host.

    ``rate`` (requests per second) and ``concurrency`` are the limits, 0 for none. ``requests``:
    number it would send soon. ``wanted``: number at once, of which ``in_flight`` are in flight.
    ``pause_seconds`` and ``strikes`` report that the host was too busy; ``calm`` that it recovered.
    """

    host: str
    rate: float = 0.0
    concurrency: int = 0
    requests: int = 0
    wanted: int = 0
    in_flight: int = 0
    pause_seconds: float = 0.0
    strikes: int = 0
    calm: bool = False

    def after(self, earlier: ShareRequest) -> ShareRequest:
        """Merge with an ``earlier`` unanswered request, so that no pause is lost."""
        if self.pause_seconds > 0 or self.calm:
            return self
        return msgspec.structs.replace(
            self, pause_seconds=earlier.pause_seconds, calm=earlier.calm, strikes=earlier.strikes
        )


class ShareGrant(msgspec.Struct, frozen=True, kw_only=True):
    """Share of one center.

    ``requests`` may be sent, the first in ``start_seconds``, each ``spacing_seconds`` after the
    one before. At most ``concurrency`` may be in flight. Nothing may be sent for
    ``pause_seconds``. ``centers``: number of centers busy with this host, this one included.
    """

    requests: int = 0
    start_seconds: float = 0.0
    spacing_seconds: float = 0.0
    concurrency: int = 0
    pause_seconds: float = 0.0
    strikes: int = 0
    centers: int = 1


class ShareLease(msgspec.Struct):
    """Requests that one center may have in flight at a host, until a time in Unix seconds."""

    slots: int
    wanted: int
    expires_at: float


class ShareTable(msgspec.Struct):
    """What all centers have taken of one host. Times are Unix seconds of the store."""

    next_at: float = 0.0
    blocked_until: float = 0.0
    strikes: int = 0
    leases: dict[str, ShareLease] = {}


class HostShares(Protocol):
    """Store of the share tables."""

    def exchange(self, center: str, asks: Sequence[ShareRequest]) -> dict[str, ShareGrant]:
        """Settle all of ``asks`` (one a host); return the grants by host.

        Raises:
            SharesUnavailable: nothing was granted.
        """

    def leave(self, center: str, hosts: Sequence[str]) -> None:
        """Give back the shares of a center. Raises ``SharesUnavailable``."""


def settle(ledger: ShareTable, ask: ShareRequest, center: str, now: float) -> ShareGrant:
    """Grant ``center`` its share of one host and record it in the table."""
    for name in [name for name, lease in ledger.leases.items() if lease.expires_at <= now]:
        del ledger.leases[name]
    _note_pause(ledger, ask, now)
    concurrency = _lease(ledger, ask, center, now)
    requests, start, spacing = _reserve(ledger, ask, now)
    return ShareGrant(
        requests=requests,
        start_seconds=start,
        spacing_seconds=spacing,
        concurrency=concurrency,
        pause_seconds=max(0.0, ledger.blocked_until - now),
        strikes=ledger.strikes,
        centers=len(ledger.leases.keys() | {center}),
    )


def _note_pause(ledger: ShareTable, ask: ShareRequest, now: float) -> None:
    if ask.pause_seconds > 0:
        ledger.strikes = max(ledger.strikes, ask.strikes)
        ledger.blocked_until = max(ledger.blocked_until, now + ask.pause_seconds)
    elif ask.calm:
        ledger.strikes = 0
    ledger.blocked_until = min(ledger.blocked_until, now + LONGEST_PAUSE_SECONDS)


def _reserve(ledger: ShareTable, ask: ShareRequest, now: float) -> tuple[int, float, float]:
    """Return (number, seconds until the first, spacing): one sequence of moments for all
    centers.
    """
    if ask.rate <= 0 or ask.requests <= 0:
        return 0, 0.0, 0.0
    spacing = 1.0 / ask.rate
    block = max(1, math.ceil(ask.rate * BLOCK_SECONDS))
    if ledger.next_at > now + _FARTHEST_BLOCKS * block * spacing:
        ledger.next_at = now
    count = min(ask.requests, block)
    start = max(now, ledger.next_at)
    ledger.next_at = start + count * spacing
    return count, start - now, spacing


def _lease(ledger: ShareTable, ask: ShareRequest, center: str, now: float) -> int:
    """Return how many requests the center may have in flight, so that the sum keeps the limit.

    If other centers lack their fair share, the excess of this one is given back. With fewer slots
    than centers, a center gives up its slot after each request, and the others get it next.
    """
    if ask.wanted <= 0 and ask.in_flight <= 0:
        ledger.leases.pop(center, None)
        return 0
    limit = ask.concurrency
    mine = ledger.leases.get(center)
    others = [lease for name, lease in ledger.leases.items() if name != center]
    granted = ask.wanted
    if limit > 0:
        fair = limit // (len(others) + 1)
        starving = any(lease.slots < min(lease.wanted, max(1, fair)) for lease in others)
        free = limit - sum(lease.slots for lease in others)
        granted = max(0, min(ask.wanted, free))
        if starving:
            granted = min(granted, fair if fair or (mine and mine.slots) else 1)
    # Requests in flight stay counted even if nothing more may be sent.
    held = max(granted, ask.in_flight)
    ledger.leases[center] = ShareLease(held, ask.wanted, now + LEASE_SECONDS)
    return granted


class MemoryShares:
    """Shares of one center, or of one that cannot reach the store."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._ledgers: dict[str, ShareTable] = {}

    def exchange(self, center: str, asks: Sequence[ShareRequest]) -> dict[str, ShareGrant]:
        now = self._now()
        with self._lock:
            self._forget(now)
            return {
                ask.host: settle(self._ledgers.setdefault(ask.host, ShareTable()), ask, center, now)
                for ask in asks
            }

    def leave(self, center: str, hosts: Sequence[str]) -> None:
        with self._lock:
            for host in hosts:
                if host in self._ledgers:
                    self._ledgers[host].leases.pop(center, None)

    def _forget(self, now: float) -> None:
        if len(self._ledgers) > 10_000:
            self._ledgers = {
                host: ledger
                for host, ledger in self._ledgers.items()
                if ledger.leases or max(ledger.next_at, ledger.blocked_until) > now
            }


def divided(ask: ShareRequest, centers: int) -> ShareRequest:
    """Return the request of a center that cannot reach the store, by the number of centers."""
    return msgspec.structs.replace(
        ask,
        rate=ask.rate / centers,
        concurrency=max(1, ask.concurrency // centers) if ask.concurrency else 0,
    )


def settle_all(
    ledgers: Mapping[str, ShareTable], asks: Sequence[ShareRequest], center: str, now: float
) -> dict[str, ShareGrant]:
    """``settle`` every request, in tables that an adapter has read."""
    return {ask.host: settle(ledgers[ask.host], ask, center, now) for ask in asks}
