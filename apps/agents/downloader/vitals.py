"""Figures of an agent and its host for the heartbeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import psutil

from apps.agents.downloader.options import AgentIdentity
from yardkit.clock import Clock
from yardkit.protocol import DownloaderType, Heartbeat, Register

QPS_SECONDS: Final = 5


@dataclass(slots=True)
class AgentCounters:
    """Counters since the start, in requests; ``refused`` and ``stale`` in messages."""

    finished: int = 0
    expired: int = 0
    missing: int = 0
    discarded: int = 0
    unroutable: int = 0
    dropped: int = 0
    refused: int = 0
    stale: int = 0
    # Objects of bodies written, and those that the store did not take.
    stored: int = 0
    unstored: int = 0

    def __str__(self) -> str:
        facts = [f"{self.finished} downloads"]
        for count, what in (
            (self.expired, "expired"),
            (self.missing, "without downloader"),
            (self.discarded, "discarded with their downloader"),
            (self.unroutable, "answers to runs that are gone"),
            (self.dropped, "answers dropped"),
            (self.refused, "messages refused"),
            (self.stale, "allocations too old"),
            (self.stored, "objects of bodies stored"),
            (self.unstored, "objects of bodies not stored"),
        ):
            if count:
                facts.append(f"{count} {what}")
        return ", ".join(facts)


class Rate:
    """Events per second over the last 5 s, at the cost of one addition an event."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[int, int] = {}

    def add(self) -> None:
        """Count one event."""
        second = int(self._clock.monotonic())
        if second in self._counts:
            self._counts[second] += 1
            return
        self._counts[second] = 1
        for old in [key for key in self._counts if key < second - QPS_SECONDS]:
            del self._counts[old]

    def per_second(self) -> float:
        """Return the mean of the last 5 whole seconds."""
        now = int(self._clock.monotonic())
        recent = range(now - QPS_SECONDS, now)
        return sum(self._counts.get(second, 0) for second in recent) / QPS_SECONDS


class AgentVitals:
    """Makes the registration and the heartbeats of an agent."""

    def __init__(
        self,
        identity: AgentIdentity,
        clock: Clock,
        types: tuple[DownloaderType, ...],
        seal_key: bytes = b"",
    ) -> None:
        self._identity = identity
        self._types = types
        self._seal_key = seal_key
        self._heartbeats = 0
        self._clock = clock
        self.rate = Rate(clock)
        # psutil compares with the previous call: without this one the first heartbeat says 0 %.
        psutil.cpu_percent(interval=None)

    def register(self) -> Register:
        """Return the registration."""
        identity = self._identity
        return Register(
            agent=identity.agent,
            name=identity.name,
            boot=identity.incarnation,
            processors=psutil.cpu_count() or 1,
            total_memory_bytes=psutil.virtual_memory().total,
            labels=identity.labels,
            version=identity.version,
            types=self._types,
            seal_key=self._seal_key,
            sent_at=self._clock.time(),
        )

    def heartbeat(self, downloaders: int, problems: list[str]) -> Heartbeat:
        """Return the next heartbeat."""
        identity = self._identity
        memory = psutil.virtual_memory()
        self._heartbeats += 1
        return Heartbeat(
            agent=identity.agent,
            name=identity.name,
            boot=identity.incarnation,
            total_memory_bytes=memory.total,
            free_memory_bytes=memory.available,
            cpu_percent=psutil.cpu_percent(interval=None),
            downloaders=downloaders,
            qps=self.rate.per_second(),
            labels=identity.labels,
            version=identity.version,
            types=self._types,
            problems=problems,
            heartbeats=self._heartbeats,
        )
