"""Interface of the transport of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from yardkit.protocol import (
    Dispatched,
    DownloadResults,
    DownloadsHeld,
    DownloadsRefused,
    Lifecycle,
    LifecycleAnswer,
    RequestItem,
    RunCounters,
    Skipped,
)

# Results of agents, and what the center does with requests.
Answer: TypeAlias = DownloadResults | Skipped | DownloadsRefused | DownloadsHeld | Dispatched


@dataclass(frozen=True, slots=True)
class AgentAllocation:
    """The agents of a run, and a warning if they are fewer than asked for."""

    agents: list[str]
    warning: str = ""


class RunTransport(Protocol):
    """One run's connection to its agents.

    ``chained``: a request made from a page goes back to the agent that fetched the page.
    ``away``: the connection is lost at the moment; it may come back by itself.
    """

    run: int
    incarnation: str
    chained: bool

    @property
    def away(self) -> bool: ...

    async def allocate(self) -> AgentAllocation:
        """Allocate agents. Raises ``RunFailed`` when there are none."""

    def send(self, items: Sequence[RequestItem]) -> None:
        """Send without waiting; a permanent loss ends ``receive``."""

    async def receive(self) -> Sequence[Answer]:
        """Wait for answers. Raises ``RunFailed`` when none can come any more."""

    def listen(self, on_command: Callable[[Lifecycle], None]) -> None:
        """Call ``on_command``, in the loop's thread, with the commands to the run.

        Called before ``allocate``; commands may come from then on.
        """

    def answer_command(self, answer: LifecycleAnswer) -> None:
        """Send an answer without waiting; it is repeated until it is confirmed."""

    def withdraw(self) -> None:
        """Ask the center to return what it holds; it comes back as ``Skipped``."""

    async def report(self, counters: RunCounters) -> None:
        """Publish counters; returns when they are confirmed. Raises ``ReportLost``."""

    async def close(self) -> None:
        """Send the last answers, release the agents and disconnect, within two seconds."""
