"""What a runner knows of its own host; all of its parts share it."""

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
    """One host.

    Attributes:
        handles: what runs here, by run.
        claimed: ours, and not started yet.
        unrecorded: started, which the rows do not say yet.
        accounts: makes the broker accounts of runs; None: they use the platform's own.
        problem: why the engine starts nothing just now, "" when it does.
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
        """Begin anew: the rows and the engine say what is here."""
        self.handles.clear()
        self.claimed.clear()
        self.unrecorded.clear()

    def now(self) -> datetime:
        """The database's time: a host whose clock is wrong must not judge the others by it."""
        return self.clock.now() + self._database_ahead

    def read_clock(self) -> None:
        """Compare the clocks."""
        self._database_ahead = database_now() - self.clock.now()

    def folder_of(self, run: int) -> Path:
        """Where a run leaves what it makes."""
        return self.folder / str(run)

    def add(self, run: Run, handle: RunHandle) -> None:
        """It runs here: watch it, and ship what it writes."""
        self.handles[run.pk] = handle
        self.follow(run.pk, handle.boot, handle.folder)

    def follow(self, run: int, boot: str, folder: Path) -> None:
        """Ship the log of one execution from its beginning."""
        source = self.runner.log(run=run, boot=boot, folder=folder)
        self.shipper.follow(run=run, boot=boot, source=source)

    def close_account(self, run: int, boot: str) -> None:
        """An execution is over: it may no longer speak to the broker."""
        if self.accounts is not None and boot:
            try:
                self.accounts.close(run, boot)
            except RunnerAway as error:
                # Tidying finds it again.
                logger.warning("the broker account of run %s stays for now: %s", run, error)

    @contextlib.contextmanager
    def engine_may_be_away(self) -> Iterator[None]:
        """While the engine does not answer nothing is started and nothing is judged."""
        try:
            yield
        except RunnerAway as error:
            self.note_problem(str(error))

    def note_problem(self, text: str) -> None:
        """What the host's next beat says; once in the log."""
        if text and not self.problem:
            logger.warning("no run is started here: %s", text)
        elif self.problem and not text:
            logger.info("runs are started here again")
        self.problem = text
