"""What the engine needs of a way to the agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from yardkit.protocol import (
    Dispatched,
    DownloadResults,
    Held,
    Lifecycle,
    LifecycleAnswer,
    Refused,
    RequestItem,
    RunCounters,
    Skipped,
)

# What an agent says of requests, and what the center does.
Answer: TypeAlias = DownloadResults | Skipped | Refused | Held | Dispatched


@dataclass(frozen=True, slots=True)
class Allocation:
    """The agents that serve a run, and what was not quite as asked."""

    agents: list[str]
    warning: str = ""


class Transport(Protocol):
    """One run's way to its agents.

    ``chained``: a request made from a page goes back to the agent that fetched the page
    (seed S1.36). ``away``: there is no connection just now, so that nothing can be sent and no
    answer can come; it may come back by itself.
    """

    run: int
    boot: str
    chained: bool

    @property
    def away(self) -> bool: ...

    async def allocate(self) -> Allocation:
        """Get agents. Raises ``RunFailed`` when there are none."""

    def send(self, items: Sequence[RequestItem]) -> None:
        """Send at once, without waiting; a loss that retries cannot mend ends ``receive``."""

    async def receive(self) -> Sequence[Answer]:
        """Wait for answers. Raises ``RunFailed`` when none can come any more."""

    def listen(self, on_command: Callable[[Lifecycle], None]) -> None:
        """From now on have ``on_command`` called, in the loop's thread, with what the run is told.

        Called before ``allocate``; commands may come from then on.
        """

    def answer_command(self, answer: LifecycleAnswer) -> None:
        """Send an answer at once, without waiting; it is sent again until it is confirmed."""

    def withdraw(self) -> None:
        """Ask for what the center holds; it comes back as ``Skipped``."""

    async def report(self, counters: RunCounters) -> None:
        """Publish counters; returns when they are confirmed. Raises ``ReportLost``."""

    async def close(self) -> None:
        """Send the last answers, give the agents back and let go, within two seconds."""
