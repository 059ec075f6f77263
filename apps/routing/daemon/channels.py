"""Open inbounds and outbounds of a router process, with their health and counters."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from apps.routing.engine import rules
from apps.routing.engine.inbounds.base import Inbound
from apps.routing.engine.life import expects_result
from apps.routing.engine.outbounds.base import (
    BatchingOutbound,
    Outbound,
    Outcome,
    SendStatus,
    Sent,
    away,
)
from apps.routing.engine.tokens import RateLimiter
from yardkit.backoff import Backoff
from yardkit.clock import Clock

logger = logging.getLogger(__name__)

# First pause before an unreachable target is tried again; it doubles up to the longest.
FIRST_PROBE_SECONDS: Final = 0.5
LONGEST_PROBE_SECONDS: Final = 10.0
# Shortest interval between two queries of a queue's depth.
DEPTH_SECONDS: Final = 0.5
UNSCOPED: Final = "*"


class InboundChannel:
    """Open inbound with its counters; successive versions of the rules may share it."""

    def __init__(self, rule: rules.Inbound, inbound: Inbound) -> None:
        self.rule = rule
        self.inbound = inbound
        # Number of its batches in progress, and when the last one started (monotonic seconds).
        # Both are guarded by the lock of ``RuleSetRuntime``.
        self.in_work = 0
        self.begun_at = 0.0
        self.depth: int | None = None
        self.findings: tuple[tuple[str, str], ...] = ()
        self.problem = ""
        self.problem_at: datetime | None = None
        # Incremented without a lock by the threads that hold a batch; a lost count is accepted.
        self.taken = self.filtered = self.malformed = 0

    def can_serve(self, rule: rules.Inbound) -> bool:
        """Return whether the open inbound can be reused for a new version of its rule."""
        return (self.rule.name, self.rule.cls, self.rule.init) == (rule.name, rule.cls, rule.init)


class OutboundChannel:
    """Open outbound with its health, free room and counters. Thread-safe."""

    def __init__(
        self, rule: rules.Outbound, outbound: Outbound, tokens: RateLimiter, clock: Clock
    ) -> None:
        self.rule = rule
        self.outbound = outbound
        self.tokens = tokens
        self.expects_result = expects_result(rule, outbound.default_expects_result)
        self.batching = outbound if isinstance(outbound, BatchingOutbound) else None
        # Batches for outbounds of the same server are sent together.
        self.server: Hashable = self.batching.server if self.batching else rule.name
        is_limited = rule.token_per_second > 0
        self.is_scoped = is_limited and rule.token_scope != UNSCOPED
        # Whether new items queue behind parked ones. With a rate limit or a maximum lag they must,
        # or parked items would starve; after a mere outage all are sent together.
        self.keeps_order = (is_limited and not self.is_scoped) or rule.max_lag >= 0
        self._clock = clock
        self._lock = threading.Lock()
        # Why its target cannot be reached; "" when it can, or was not tried yet.
        self.unreachable = ""
        self.unreachable_at: datetime | None = None
        self._is_logged = False
        self.probe_at = 0.0
        self._probes = Backoff(FIRST_PROBE_SECONDS, LONGEST_PROBE_SECONDS)
        # Items may be parked for it, so that new items wait behind them; see ``keeps_order``.
        self.has_parked = False
        # Number of items parked for it by all routers, about a second old.
        self.parked = 0
        # When parked items are sent again (monotonic seconds).
        self.offer_at = 0.0
        self.depth: int | None = None
        self._depth_at = float("-inf")
        # Items let through since the depth was queried.
        self._sent_since_query = 0
        self.sent = self.refused = 0

    def can_serve(self, rule: rules.Outbound) -> bool:
        """Return whether the open outbound can be reused for a new version of its rule.

        Selector, note and place may differ: they do not change how messages are sent.
        """
        return _sending_part(self.rule) == _sending_part(rule)

    # --- room -------------------------------------------------------------------------------------

    def is_full(self) -> bool:
        """Return whether ``max_lag`` messages wait in its queue; if not, reserve a place."""
        if self.rule.max_lag < 0 or self.unreachable:
            return False
        with self._lock:
            if self._room() <= 0:
                return True
            self._sent_since_query += 1
            return False

    def room(self, most: int) -> int:
        """Return how many items fit in now, at most ``most``, without reserving room."""
        if self.rule.max_lag < 0:
            return most
        with self._lock:
            return max(0, min(most, self._room()))

    @property
    def shows_full(self) -> bool:
        """Like ``is_full``, from the last known depth and without reserving room; for reports."""
        depth = self.depth
        return 0 <= self.rule.max_lag <= (depth if depth is not None else -1)

    def query_depth(self) -> None:
        """Query how many messages wait in its queue, and store it in ``depth``."""
        with self._lock:
            self._query_depth()

    def _room(self) -> int:
        if self._clock.monotonic() >= self._depth_at + DEPTH_SECONDS:
            self._query_depth()
        return self.rule.max_lag - (self.depth or 0) - self._sent_since_query

    def _query_depth(self) -> None:
        self._sent_since_query = 0
        self.depth = self.outbound.depth()
        self._depth_at = self._clock.monotonic()

    # --- sending ----------------------------------------------------------------------------------

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        """Send a batch, and update health and counters from its outcomes."""
        return self.record_outcomes(self._send(batch))

    def record_outcomes(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Update health and counters from the outcomes; return them unchanged."""
        if not outcomes:
            return outcomes
        verdicts = Counter(outcome.verdict for outcome in outcomes)
        lost = next((o for o in outcomes if o.verdict is SendStatus.AWAY), None)
        with self._lock:
            self.sent += verdicts[SendStatus.DELIVERED]
            self.refused += verdicts[SendStatus.REFUSED]
            if lost is None:
                self._mark_reachable()
            else:
                self._mark_unreachable(lost)
            self._log_change()
        return outcomes

    def _send(self, batch: Sequence[Sent]) -> list[Outcome]:
        try:
            outcomes = self.outbound.send(batch)
            if len(outcomes) != len(batch):
                raise ValueError(f"{len(outcomes)} outcomes for {len(batch)} messages")
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
            return self.record_failure(error, len(batch))
        return outcomes

    def record_failure(self, error: Exception, messages: int) -> list[Outcome]:
        """Treat an exception of a plug-in class as an outage, so that its items are parked."""
        logger.error("outbound failed: name=%s", self.rule.name, exc_info=error)
        reason = f"{self.rule.cls} fails: {type(error).__name__}: {error}"
        return [away("defect", reason)] * messages

    def mark_reachable(self) -> None:
        """Mark the target as reachable, so that the next item is sent to it."""
        with self._lock:
            self._mark_reachable()

    def _mark_reachable(self) -> None:
        self.unreachable, self.unreachable_at = "", None
        self._probes.reset()

    def _mark_unreachable(self, outcome: Outcome) -> None:
        if not self.unreachable:
            self.unreachable_at = self._clock.now()
        self.unreachable = outcome.reason or outcome.code or "away"
        self.has_parked = True
        self.probe_at = self._clock.monotonic() + self._probes.seconds()

    def _log_change(self) -> None:
        """Log once when the target becomes unreachable, and once when it is back."""
        if self.unreachable and not self._is_logged:
            logger.warning(
                "outbound unreachable: name=%s error=%s", self.rule.name, self.unreachable
            )
        elif self._is_logged and not self.unreachable:
            logger.info("outbound reachable again: name=%s", self.rule.name)
        self._is_logged = bool(self.unreachable)

    def scope_value(self, item: object) -> str:
        """Return the name of the token bucket of an item: the value of the rule's scope key."""
        if not self.is_scoped or not isinstance(item, dict):
            return UNSCOPED
        value = item.get(self.rule.token_scope)
        return value if isinstance(value, str) else repr(value)

    def close(self) -> None:
        self.outbound.close()
        self.tokens.close()


def send_together(batches: Sequence[tuple[OutboundChannel, Sequence[Sent]]]) -> list[list[Outcome]]:
    """Send batches to several outbounds of one server, in one call where the class supports it."""
    first = batches[0][0].batching
    if len(batches) == 1 or first is None:
        return [channel.send(batch) for channel, batch in batches]
    try:
        outcomes = first.send_with([(channel.outbound, batch) for channel, batch in batches])
        if [len(part) for part in outcomes] != [len(batch) for _, batch in batches]:
            raise ValueError("send_with did not return one outcome per message")
    except Exception as error:  # noqa: BLE001 - see OutboundChannel._send
        outcomes = [channel.record_failure(error, len(batch)) for channel, batch in batches]
    return [
        channel.record_outcomes(part) for (channel, _), part in zip(batches, outcomes, strict=True)
    ]


def _sending_part(rule: rules.Outbound) -> rules.Outbound:
    return replace(rule, selector=(), note="", place="")
