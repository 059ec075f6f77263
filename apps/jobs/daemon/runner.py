"""Runner daemon of one host: life cycle, and the order of work in each step."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from django.conf import settings

from apps.jobs.daemon import intervals
from apps.jobs.daemon.answers import AnswerListener
from apps.jobs.daemon.context import RunnerContext
from apps.jobs.daemon.finisher import RunFinisher
from apps.jobs.daemon.host_report import HostReporter
from apps.jobs.daemon.reconciler import RunReconciler
from apps.jobs.daemon.specs import accounts_for, installation
from apps.jobs.daemon.starter import RunStarter
from apps.jobs.engine.vitals import HostDescription
from apps.jobs.runners.base import ExecutionRunner, RunHandle
from apps.jobs.runners.factory import make_runner
from apps.jobs.runners.log_shipper import LogShipper
from apps.jobs.runners.terminations import Terminations
from apps.runtime.errors import DATABASE_ERRORS
from yardkit import topology
from yardkit.broker import Broker, Subscription
from yardkit.clock import Clock
from yardkit.shared_queues import declare_shared
from yardkit.stop import Stop

logger = logging.getLogger(__name__)

# Folder for the positions of logs that are not shipped completely.
SHIPPING_FOLDER = ".shipping"


class RunnerDaemon:
    """Daemon that starts, watches and ends the runs of one host as their rows request.

    Args:
        stop: returns at shutdown whether the stop was requested; without it every shutdown
            counts as requested.
        runner: by default the runner that ``RUNNER_URL`` names.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        host: str,
        clock: Clock,
        capacity: int,
        folder: Path,
        stop: Stop | None = None,
        labels: Mapping[str, str] | None = None,
        boot: str = "",
        version: str = "",
        runner: ExecutionRunner | None = None,
    ) -> None:
        self.broker = broker
        self.runner = runner or make_runner(
            settings.RUNNER_URL,
            installation=installation(),
            host=host,
            network=settings.RUN_NETWORK,
        )
        shipper = LogShipper(broker, folder / SHIPPING_FOLDER)
        self.context = RunnerContext(
            host=host,
            clock=clock,
            runner=self.runner,
            folder=folder,
            shipper=shipper,
            accounts=accounts_for(self.runner.kind),
        )
        self._stop = stop
        self._endings = Terminations(self.runner, self.context.handles)
        about = HostDescription(
            kind=self.runner.kind,
            capacity=capacity,
            boot=boot,
            version=version,
            labels=dict(labels or {}),
        )
        self.keeper = HostReporter(self.context, about)
        self.ender = RunFinisher(self.context, self._endings)
        self.starter = RunStarter(self.context, self.ender, capacity)
        self.watcher = RunReconciler(self.context, self.ender)
        self.listener = AnswerListener(self.context)
        self._wakeups: list[Subscription] = []
        if stop is not None and not self.runner.outlives_daemon:
            self._endings.watch(
                stop,
                grace_seconds=intervals.SHUTDOWN_GRACE_SECONDS,
                kill_seconds=intervals.KILL_SECONDS,
            )

    @property
    def handles(self) -> Mapping[int, RunHandle]:
        """Executions on this host, by run id."""
        return self.context.handles

    # --- life cycle -------------------------------------------------------------------------------

    def setup(self) -> None:
        """Subscribe to wake-ups and take over the runs of an earlier runner of this name."""
        # Called again after a failure.
        self._close()
        self.context.forget()
        own = topology.runner_wakeups(self.context.host)
        declare_shared(self.broker)
        self.broker.declare(own)
        self._wakeups = [
            self.broker.subscribe(name, prefetch=100) for name in (own.name, topology.RUNNERS.name)
        ]
        self.listener.open(self.broker)
        self.context.read_clock()
        self.keeper.register()
        with self.context.engine_may_be_away():
            self.watcher.take_stock()

    def step(self) -> bool:
        """Do one round of work; return whether there are runs on this host."""
        context = self.context
        woken = self._wait()
        self.listener.step()
        ended = 0
        # After a failure the engine is tried again with the next heartbeat, not in every step.
        if not context.problem:
            with context.engine_may_be_away():
                ended = self.ender.collect()
                self.ender.see_to()
        self.starter.record_started()
        self.starter.place(woken=woken or bool(ended))
        self.starter.claim()
        if not context.problem:
            with context.engine_may_be_away():
                self.starter.start_claimed()
        context.shipper.step()
        if context.timers.due("watch", intervals.WATCH_EVERY_SECONDS):
            self._watch()
        return bool(ended or context.handles or context.claimed)

    def _wait(self) -> bool:
        """Wait for a wake-up, at most ``POLL_SECONDS``; return whether one came."""
        # The content of a wake-up is ignored: the rows are read in any case.
        woken = False
        timeouts = [0.0] * (len(self._wakeups) - 1) + [intervals.POLL_SECONDS]
        for wakeups, timeout in zip(self._wakeups, timeouts, strict=True):
            taken = wakeups.take(100, timeout=0.0 if woken else timeout)
            wakeups.ack(taken)
            woken |= bool(taken)
        return woken

    def _watch(self) -> None:
        self.context.read_clock()
        self.keeper.beat()
        self.watcher.watch()
        if not self.context.problem:
            with self.context.engine_may_be_away():
                self.watcher.see_after_all()
                self.watcher.tidy()

    def teardown(self) -> None:
        """End the executions of this host, so that none continues without a runner.

        Executions continue if they outlive the runner, or if the runner ends because of a failure
        or because another runner has taken its name: the next runner takes them over.
        """
        self._endings.close()
        unasked = self._stop is not None and not self._stop.signal_name
        if unasked or self.runner.outlives_daemon:
            if self.context.handles:
                logger.warning("%d runs go on without this runner", len(self.context.handles))
        else:
            self._end_all()
        self.context.shipper.close(intervals.LOG_CLOSE_SECONDS)
        self.runner.close()
        self._close()

    def _end_all(self) -> None:
        self._endings.end_all(
            grace_seconds=intervals.SHUTDOWN_GRACE_SECONDS, kill_seconds=intervals.KILL_SECONDS
        )
        try:
            self.ender.collect(leaving=True)
        except DATABASE_ERRORS as error:
            logger.warning("how the runs ended is written down at the next start: %s", error)

    def _close(self) -> None:
        for wakeups in self._wakeups:
            wakeups.close()
        self._wakeups = []
        self.listener.close()
