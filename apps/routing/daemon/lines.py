"""One inbound and one outbound of a project, while a router runs them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from apps.routing.engine import rules
from apps.routing.engine.inbounds.base import Inbound
from apps.routing.engine.life import expects_result
from apps.routing.engine.outbounds.base import Outbound, Outcome, Sent, Sociable, Verdict, away
from apps.routing.engine.tokens import Tokens
from yardkit.backoff import Backoff
from yardkit.clock import Clock

logger = logging.getLogger(__name__)

# First pause between two tries of an unreachable target; it doubles.
FIRST_PROBE_SECONDS: Final = 0.5
LONGEST_PROBE_SECONDS: Final = 10.0
# The depth of a queue with a ``max_lag`` is asked no oftener.
DEPTH_SECONDS: Final = 0.5
WHOLE: Final = "*"


class InLine:
    """An inbound that runs. Several versions of the rules may share it, one after the other."""

    def __init__(self, rule: rules.Inbound, inbound: Inbound) -> None:
        self.rule = rule
        self.inbound = inbound
        # Batches of it that are worked on, and when the last of them began (monotonic seconds).
        # Both are guarded by the lock of the polling.
        self.in_work = 0
        self.begun_at = 0.0
        self.depth: int | None = None
        self.findings: tuple[tuple[str, str], ...] = ()
        self.problem = ""
        self.problem_at: datetime | None = None
        # Only added to, by the threads that hold a batch; a count lost in a race is accepted.
        self.taken = self.filtered = self.poison = 0

    def is_for(self, rule: rules.Inbound) -> bool:
        """Whether it can go on as it is under this rule."""
        return (self.rule.name, self.rule.cls, self.rule.init) == (rule.name, rule.cls, rule.init)


class Lane:
    """An outbound that runs, and whether it takes an item now. Threads may share it."""

    def __init__(
        self, rule: rules.Outbound, outbound: Outbound, tokens: Tokens, clock: Clock
    ) -> None:
        self.rule = rule
        self.outbound = outbound
        self.tokens = tokens
        self.expects_result = expects_result(rule, outbound.default_expects_result)
        self.sociable = outbound if isinstance(outbound, Sociable) else None
        # Those of one server are sent together.
        self.server: Hashable = self.sociable.server if self.sociable else rule.name
        is_limited = rule.token_per_second > 0
        self.is_scoped = is_limited and rule.token_scope != WHOLE
        # What comes now waits behind what is parked, or that would never have its turn. Where only
        # an outage was the reason, both go on together.
        self.keeps_line = (is_limited and not self.is_scoped) or rule.max_lag >= 0
        self._clock = clock
        self._lock = threading.Lock()
        # Why its target cannot be reached; "" when it can, or is untried.
        self.away = ""
        self.away_at: datetime | None = None
        self._is_told = False
        self.probe_at = 0.0
        self._probes = Backoff(FIRST_PROBE_SECONDS, LONGEST_PROBE_SECONDS)
        # Items are parked for it: those that come now wait behind them.
        self.has_parked = False
        # How many items of all routers were parked for it a moment ago.
        self.parked = 0
        # When the parked ones are looked at again.
        self.look_at = 0.0
        self.depth: int | None = None
        self._depth_at = float("-inf")
        # Items that were let through since the depth was asked.
        self._let_through = 0
        self.sent = self.refused = 0

    def is_for(self, rule: rules.Outbound) -> bool:
        """Whether it can go on as it is under this rule; who is sent there is no matter of it."""
        return _without_words(self.rule) == _without_words(rule)

    # --- room -------------------------------------------------------------------------------------

    def is_full(self) -> bool:
        """Whether it has its ``max_lag`` messages waiting; if not, one item is let through."""
        if self.rule.max_lag < 0 or self.away:
            return False
        with self._lock:
            if self._room() <= 0:
                return True
            self._let_through += 1
            return False

    def room(self, most: int) -> int:
        """How many items it takes now, ``most`` at most; lets nothing through."""
        if self.rule.max_lag < 0:
            return most
        with self._lock:
            return max(0, min(most, self._room()))

    @property
    def shows_full(self) -> bool:
        """The same as ``is_full`` by what is known already, for people."""
        depth = self.depth
        return 0 <= self.rule.max_lag <= (depth if depth is not None else -1)

    def ask_depth(self) -> None:
        """Ask its target how many messages wait."""
        with self._lock:
            self._ask_depth()

    def _room(self) -> int:
        if self._clock.monotonic() >= self._depth_at + DEPTH_SECONDS:
            self._ask_depth()
        return self.rule.max_lag - (self.depth or 0) - self._let_through

    def _ask_depth(self) -> None:
        self._let_through = 0
        self.depth = self.outbound.depth()
        self._depth_at = self._clock.monotonic()

    # --- sending ----------------------------------------------------------------------------------

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        """Send, and take note of how the target is."""
        return self.noted(self._send(batch))

    def noted(self, outcomes: list[Outcome]) -> list[Outcome]:
        """The same outcomes; they say how the target is."""
        if not outcomes:
            return outcomes
        lost = next((each for each in outcomes if each.verdict is Verdict.AWAY), None)
        delivered = sum(1 for each in outcomes if each.verdict is Verdict.DELIVERED)
        refused = sum(1 for each in outcomes if each.verdict is Verdict.REFUSED)
        with self._lock:
            self.sent += delivered
            self.refused += refused
            if lost is None:
                self._is_back()
            else:
                self._is_away(lost)
            self._tell()
        return outcomes

    def _send(self, batch: Sequence[Sent]) -> list[Outcome]:
        try:
            outcomes = self.outbound.send(batch)
            if len(outcomes) != len(batch):
                raise ValueError(f"{len(outcomes)} outcomes for {len(batch)} messages")
        except Exception as error:  # noqa: BLE001 - a stranger's class
            return self.failed(error, len(batch))
        return outcomes

    def failed(self, error: Exception, messages: int) -> list[Outcome]:
        """Treat an exception of a plug-in class as an outage: its items wait until it is fixed."""
        logger.error("the outbound %s fails", self.rule.name, exc_info=error)
        reason = f"{self.rule.cls} fails: {type(error).__name__}: {error}"
        return [away("defect", reason)] * messages

    def is_back(self) -> None:
        """Its target is to be tried again by whatever comes."""
        with self._lock:
            self._is_back()

    def _is_back(self) -> None:
        self.away, self.away_at = "", None
        self._probes.reset()

    def _is_away(self, outcome: Outcome) -> None:
        if not self.away:
            self.away_at = self._clock.now()
        self.away = outcome.reason or outcome.code or "away"
        self.has_parked = True
        self.probe_at = self._clock.monotonic() + self._probes.seconds()

    def _tell(self) -> None:
        """Log it once that the target is away, and once that it is back."""
        if self.away and not self._is_told:
            logger.warning("the target of %s is away: %s", self.rule.name, self.away)
        elif self._is_told and not self.away:
            logger.info("the target of %s answers again", self.rule.name)
        self._is_told = bool(self.away)

    def scope_value(self, item: object) -> str:
        """Which bucket of tokens an item draws from."""
        if not self.is_scoped or not isinstance(item, dict):
            return WHOLE
        value = item.get(self.rule.token_scope)
        return value if isinstance(value, str) else repr(value)

    def close(self) -> None:
        """Let go of the target."""
        self.outbound.close()
        self.tokens.close()


def send_together(batches: Sequence[tuple[Lane, Sequence[Sent]]]) -> list[list[Outcome]]:
    """``send`` for each of these lanes of one server, in one go where it can do that."""
    first = batches[0][0].sociable
    if len(batches) == 1 or first is None:
        return [lane.send(batch) for lane, batch in batches]
    try:
        outcomes = first.send_with([(lane.outbound, batch) for lane, batch in batches])
        if [len(mine) for mine in outcomes] != [len(batch) for _, batch in batches]:
            raise ValueError("there is not one outcome for each message")
    except Exception as error:  # noqa: BLE001 - see Lane._send
        outcomes = [lane.failed(error, len(batch)) for lane, batch in batches]
    return [lane.noted(mine) for (lane, _), mine in zip(batches, outcomes, strict=True)]


def _without_words(rule: rules.Outbound) -> rules.Outbound:
    return replace(rule, selector=(), note="", place="")
