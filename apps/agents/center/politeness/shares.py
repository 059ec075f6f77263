"""How several centers keep one limit: each asks once a second for its share of it.

A host has one ledger, in a store that all centers see. ``settle`` is the whole arithmetic; an
adapter only reads ledgers, calls it and writes them back, so that no other center does the same
in between. ``tests/agents/politeness/test_shares.py`` holds for every adapter.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

# The center renews its share every second; one that is gone for this long has none any more.
LEASE_SECONDS: Final = 5.0
BLOCK_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 3600.0
# So far ahead no number of centers reserves: the store's clock was set back.
_FARTHEST_BLOCKS: Final = 64


class SharesUnavailable(Exception):
    """The store cannot be asked just now; the text says why."""


class ShareRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one center wants for one host.

    ``rate`` (requests a second) and ``concurrency`` are the limits, 0 for none. ``requests``: how
    many it would send soon. ``wanted``: how many at once, of which ``in_flight`` are under way.
    ``pause_seconds`` and ``strikes`` report that the host was too busy; ``calm`` that it is not
    any more.
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
        """This ask where ``earlier`` has not been answered yet: no pause is forgotten."""
        if self.pause_seconds > 0 or self.calm:
            return self
        return msgspec.structs.replace(
            self, pause_seconds=earlier.pause_seconds, calm=earlier.calm, strikes=earlier.strikes
        )


class ShareGrant(msgspec.Struct, frozen=True, kw_only=True):
    """What it gets.

    ``requests`` may be sent, the first in ``start_seconds``, each ``spacing_seconds`` after the
    one before. At most ``concurrency`` may be under way. Nothing may be sent for
    ``pause_seconds``. ``centers`` are alive and busy with this host, this one among them.
    """

    requests: int = 0
    start_seconds: float = 0.0
    spacing_seconds: float = 0.0
    concurrency: int = 0
    pause_seconds: float = 0.0
    strikes: int = 0
    centers: int = 1


class ShareLease(msgspec.Struct):
    """How many requests one center may have under way at a host, until when (Unix seconds)."""

    slots: int
    wanted: int
    expires_at: float


class ShareTable(msgspec.Struct):
    """What all centers together have taken of one host. Times are Unix seconds of the store."""

    next_at: float = 0.0
    blocked_until: float = 0.0
    strikes: int = 0
    leases: dict[str, ShareLease] = {}


class HostShares(Protocol):
    """The store of the ledgers."""

    def exchange(self, center: str, asks: Sequence[ShareRequest]) -> dict[str, ShareGrant]:
        """Settle all of ``asks`` (one a host); the answers by host.

        Raises:
            SharesUnavailable: nothing was granted.
        """

    def leave(self, center: str, hosts: Sequence[str]) -> None:
        """The center gives back what it has of these hosts. Raises ``SharesUnavailable``."""


def settle(ledger: ShareTable, ask: ShareRequest, center: str, now: float) -> ShareGrant:
    """Grant ``center`` its share of one host and write that into the ledger."""
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
    """(how many, in how many seconds, how far apart): one line of moments for all centers."""
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
    """How many the center may have under way, so that all of them stay below the limit.

    Where others go without their fair share, more than one's own is given back. With fewer slots
    than centers one that holds a slot lets it go after its request, and the others get it next.
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
    # What is under way stays counted even where nothing more may be sent.
    held = max(granted, ask.in_flight)
    ledger.leases[center] = ShareLease(held, ask.wanted, now + LEASE_SECONDS)
    return granted


class MemoryShares:
    """For one center, or for one that cannot reach the others."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._ledgers: dict[str, ShareTable] = {}

    def exchange(self, center: str, asks: Sequence[ShareRequest]) -> dict[str, ShareGrant]:
        """See ``HostShares``."""
        now = self._now()
        with self._lock:
            self._forget(now)
            return {
                ask.host: settle(self._ledgers.setdefault(ask.host, ShareTable()), ask, center, now)
                for ask in asks
            }

    def leave(self, center: str, hosts: Sequence[str]) -> None:
        """See ``HostShares``."""
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
    """What a center may ask itself for when it cannot reach the other ones."""
    return msgspec.structs.replace(
        ask,
        rate=ask.rate / centers,
        concurrency=max(1, ask.concurrency // centers) if ask.concurrency else 0,
    )


def settle_all(
    ledgers: Mapping[str, ShareTable], asks: Sequence[ShareRequest], center: str, now: float
) -> dict[str, ShareGrant]:
    """``settle`` for every ask, in ledgers that an adapter has read."""
    return {ask.host: settle(ledgers[ask.host], ask, center, now) for ask in asks}
