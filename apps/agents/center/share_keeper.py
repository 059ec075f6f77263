"""Thread that requests this center's shares of hosts from the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from apps.agents.center.politeness.shares import (
    HostShares,
    MemoryShares,
    ShareGrant,
    ShareRequest,
    SharesUnavailable,
    divided,
)
from yardkit.outage import Outage

logger = logging.getLogger(__name__)


class ShareKeeper:
    """Batches requests for shares, sends them to the store, and passes the grants to the gate.

    While the store is unreachable, the center keeps to the limit divided by the last known number
    of centers (at least one request at once).
    """

    def __init__(
        self,
        *,
        shares: HostShares,
        center: str,
        granted: Callable[[Mapping[str, ShareGrant]], None],
        now: Callable[[], float],
    ) -> None:
        self._shares = shares
        self._center = center
        self._granted = granted
        self._alone = MemoryShares(now)
        self._lock = threading.Lock()
        self._asks: dict[str, ShareRequest] = {}
        self._asked = threading.Event()
        self._known: set[str] = set()
        self._centers = 1
        self._outage = Outage(logger, "sharing of hosts with other centers")

    def ask(self, asks: list[ShareRequest]) -> None:
        """Queue requests, from the gate's thread; the latest for a host counts."""
        with self._lock:
            for ask in asks:
                earlier = self._asks.get(ask.host)
                self._asks[ask.host] = ask if earlier is None else ask.after(earlier)
        self._asked.set()

    def step(self, timeout: float) -> int:
        """Send the queued requests; return the number of hosts."""
        self._asked.wait(timeout)
        self._asked.clear()
        with self._lock:
            asks, self._asks = list(self._asks.values()), {}
        if asks:
            self._granted(self._exchange(asks))
        return len(asks)

    def wake(self) -> None:
        """Let a waiting ``step`` return."""
        self._asked.set()

    def leave(self) -> None:
        """Give all shares back: the center stops."""
        hosts, self._known = sorted(self._known), set()
        if not hosts or self._outage.lasting:
            return
        try:
            self._shares.leave(self._center, hosts)
        except SharesUnavailable as error:
            logger.warning("shares of hosts could not be given back and expire: %s", error)

    def _exchange(self, asks: list[ShareRequest]) -> Mapping[str, ShareGrant]:
        try:
            answers = self._shares.exchange(self._center, asks)
        except SharesUnavailable as error:
            self._outage.failed(error)
            return self._alone.exchange(self._center, [divided(ask, self._centers) for ask in asks])
        self._outage.recovered()
        self._centers = max(answer.centers for answer in answers.values())
        for ask in asks:
            if ask.wanted > 0 or ask.in_flight > 0:
                self._known.add(ask.host)
            else:
                self._known.discard(ask.host)
        return answers
