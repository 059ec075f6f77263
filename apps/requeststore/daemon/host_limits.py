"""Politeness of direct downloads: limits for each host, in each process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from apps.agents.center.politeness.limits import HostRules

# Longest pause (seconds); a host may ask for hours.
LONGEST_PAUSE: Final = 300.0
_MAX_HOSTS: Final = 10_000


@dataclass(slots=True)
class _Host:
    next_at: float = 0.0
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class HostThrottle:
    """Rate and concurrency limits by host. Belongs to one event loop, whose clock is ``now``.

    ``rules``: HOST_REQUESTS_PER_SECOND, HOST_CONCURRENCY and the rules of the hosts page, without
    robots.txt, which only the center follows. Replaced when the rules change.
    """

    def __init__(self, rules: HostRules, now: Callable[[], float]) -> None:
        self.rules = rules
        self._now = now
        self._hosts: dict[str, _Host] = {}

    def passes(self, host: str, networks: Sequence[str]) -> bool:
        """Return whether the host is exempt: this machine, where the project may reach it."""
        return self.rules.passes(host, networks)

    async def enter(self, host: str, *, until: float) -> str:
        """Wait for permission to send a request to ``host``; return "" or why not before
        ``until``.

        After "" the caller must call ``leave``.
        """
        limits = self.rules.limits(host)
        if limits.stopped:
            return f"requests to {host} are stopped"
        host_state = self._hosts.get(host)
        if host_state is None:
            self._forget()
            host_state = self._hosts[host] = _Host()
        host_state.running += 1
        try:
            if not await self._place(host_state, limits.concurrency, until):
                self.leave(host)
                return f"{host} had no place in time"
            at = max(self._now(), host_state.next_at)
            if at >= until:
                self.leave(host)
                return f"{host} is to be spared until later"
            if limits.requests_per_second:
                host_state.next_at = at + 1.0 / limits.requests_per_second
            await asyncio.sleep(at - self._now())
        except asyncio.CancelledError:
            self.leave(host)
            raise
        return ""

    async def _place(self, one: _Host, most: int, until: float) -> bool:
        while most and one.running - len(one.waiting) > most:
            turn = asyncio.get_running_loop().create_future()
            one.waiting.append(turn)
            try:
                async with asyncio.timeout(max(0.0, until - self._now())):
                    await turn
            except TimeoutError:
                return False
            finally:
                if turn in one.waiting:
                    one.waiting.remove(turn)
        return True

    def leave(self, host: str) -> None:
        """Note the end of a request."""
        host_state = self._hosts.get(host)
        if host_state is None or not host_state.running:
            return
        host_state.running -= 1
        while host_state.waiting:
            turn = host_state.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break

    def spare(self, host: str, seconds: float) -> None:
        """Pause the host, which has answered with Retry-After."""
        host_state = self._hosts.setdefault(host, _Host())
        host_state.next_at = max(host_state.next_at, self._now() + min(seconds, LONGEST_PAUSE))

    def _forget(self) -> None:
        if len(self._hosts) >= _MAX_HOSTS:
            now = self._now()
            self._hosts = {
                name: host_state
                for name, host_state in self._hosts.items()
                if host_state.running or host_state.next_at > now
            }


def pause_of(headers: Sequence[tuple[str, str]]) -> float:
    """Return the seconds of Retry-After; 1 without a number."""
    for name, value in headers:
        if name.lower() == "retry-after" and value.strip().isdecimal():
            return float(value.strip()[:9])
    return 1.0
