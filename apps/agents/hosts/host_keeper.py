"""Politeness work of the center's main thread: loads rules, saves states."""

from __future__ import annotations

from typing import Final

from django.conf import settings

from apps.agents.center.gate import PolitenessGate
from apps.agents.center.politeness.limits import Defaults, HostRuleLimits, HostRules
from apps.agents.center.politeness.shares import HostShares
from apps.agents.hosts.services import forget_states, load_rules, save_states
from apps.agents.hosts.shares import DatabaseShares, forget_ledgers
from yardkit.clock import Clock

# A thousand busy hosts are saved every five seconds: writing them must not slow the dispatch.
SHOWN_PER_SECOND: Final = 200


def default_limits() -> Defaults:
    """Return the limits of the settings."""
    return Defaults(
        requests_per_second=settings.HOST_REQUESTS_PER_SECOND,
        concurrency=settings.HOST_CONCURRENCY,
        robots_cache_seconds=settings.ROBOTS_CACHE_SECONDS,
        held_limit=settings.HELD_LIMIT,
    )


def host_shares() -> HostShares:
    """Return the store through which the centers share hosts."""
    if settings.REDIS_URL:
        # Imported here: every process reads this module, and the client takes a tenth of its start.
        from apps.agents.center.politeness.redis_shares import RedisShares

        return RedisShares(settings.REDIS_URL, settings.REDIS_PREFIX)
    return DatabaseShares()


class HostKeeper:
    """Updates the gate's rules and saves the states of hosts. Uses the database."""

    def __init__(self, *, gate: PolitenessGate, center: str, clock: Clock) -> None:
        self._gate = gate
        self._center = center
        self._clock = clock
        self._defaults = default_limits()
        self._found: list[HostRuleLimits] = []
        self._shown = False
        self._save_at = 0.0

    def refresh_rules(self) -> None:
        """Load changed rules. One query.

        Rules are compared by content: their timestamps come from the clocks of several servers.
        """
        found = load_rules()
        if found != self._found:
            self._gate.set_rules(HostRules.of(self._defaults, found))
            self._found = found

    def save_states(self) -> None:
        """Save which hosts are busy; nothing is written while none is.

        The more there are, the less often, see ``SHOWN_PER_SECOND``.
        """
        now = self._clock.monotonic()
        if now < self._save_at:
            return
        views = self._gate.views()
        self._save_at = now + len(views) / SHOWN_PER_SECOND
        if views or self._shown:
            save_states(center=self._center, views=views, now=self._clock.now())
        self._shown = bool(views)

    def sweep(self) -> None:
        """Delete states of centers that are gone."""
        forget_states(self._clock.now())
        forget_ledgers(self._clock.now())
