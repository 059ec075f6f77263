"""State shared by the parts of a runner."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from apps.jobs.models import Run
from apps.jobs.runners.accounts import BrokerAccounts
from apps.jobs.runners.base import ExecutionRunner, RunHandle, RunnerAway
from apps.jobs.runners.log_shipper import LogShipper
from apps.runtime.services import database_now
from yardkit.clock import Clock
from yardkit.timers import Timers

logger = logging.getLogger(__name__)


@dataclass
class RunnerContext:
    """State of one runner and its host.

    Attributes:
        handles: executions on this host, by run id.
        claimed: claimed runs that have not been started.
        unrecorded: started runs whose rows do not say so yet.
        accounts: creates broker accounts for runs; None: runs use the platform's account.
        problem: why the container engine starts nothing at the moment, "" when it works.
    """

    host: str
    clock: Clock
    runner: ExecutionRunner
    folder: Path
    shipper: LogShipper
    accounts: BrokerAccounts | None = None
    handles: dict[int, RunHandle] = field(default_factory=dict)
    claimed: deque[Run] = field(default_factory=deque)
    unrecorded: dict[int, Run] = field(default_factory=dict)
    problem: str = ""
    _database_ahead: timedelta = timedelta()
    timers: Timers = field(init=False)

    def __post_init__(self) -> None:
        self.timers = Timers(self.clock.monotonic)

    def forget(self) -> None:
        """Clear all state; it is read again from the database and the engine."""
        self.handles.clear()
        self.claimed.clear()
        self.unrecorded.clear()

    def now(self) -> datetime:
        """Return the database's time.

        Leases of other hosts must not be judged by the clock of this host, which may be wrong.
        """
        return self.clock.now() + self._database_ahead

    def read_clock(self) -> None:
        """Measure the offset between the clocks of this host and of the database."""
        self._database_ahead = database_now() - self.clock.now()

    def folder_of(self, run: int) -> Path:
        """Return the folder of a run that was started by this runner."""
        return self.folder / str(run)

    def add(self, run: Run, handle: RunHandle) -> None:
        """Start to watch an execution and to ship its log."""
        self.handles[run.pk] = handle
        self.follow(run.pk, handle.boot, handle.folder)

    def follow(self, run: int, boot: str, folder: Path) -> None:
        """Ship the log of one execution from its first line."""
        source = self.runner.log(run=run, boot=boot, folder=folder)
        self.shipper.follow(run=run, boot=boot, source=source)

    def close_account(self, run: int, boot: str) -> None:
        """Remove the broker account of an execution that has ended."""
        if self.accounts is not None and boot:
            try:
                self.accounts.close(run, boot)
            except RunnerAway as error:
                # ``RunReconciler.tidy`` removes it later.
                logger.warning("the broker account of run %s stays for now: %s", run, error)

    @contextlib.contextmanager
    def engine_may_be_away(self) -> Iterator[None]:
        """Suppress ``RunnerAway``: while the engine does not answer, no run is started or ended."""
        try:
            yield
        except RunnerAway as error:
            self.note_problem(str(error))

    def note_problem(self, text: str) -> None:
        """Set the problem that the next heartbeat reports; log its beginning and its end."""
        if text and not self.problem:
            logger.warning("host starts no runs: %s", text)
        elif self.problem and not text:
            logger.info("host starts runs again")
        self.problem = text
