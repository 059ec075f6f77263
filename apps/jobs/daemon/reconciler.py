"""Reconciliation of rows and executions: takeover, adoption, lost runs, cleanup."""

from __future__ import annotations

import logging

from django.conf import settings
from django.utils.translation import gettext as _

from apps.jobs.daemon import timing
from apps.jobs.daemon.context import RunnerContext
from apps.jobs.daemon.finisher import RunFinisher
from apps.jobs.daemon.folders import remove_old_folders
from apps.jobs.models import Run
from apps.jobs.runners.base import RunHandle
from apps.jobs.services import (
    WATCH_LEASE_SECONDS,
    adopt_run,
    note_recovery,
    reap_lost_runs,
    remind_runs,
    watch_runs,
)
from apps.jobs.states import FINAL, HostKind, RunState

logger = logging.getLogger(__name__)


class RunReconciler:
    """Brings the rows of runs and the executions on this host into agreement."""

    def __init__(self, here: RunnerContext, ender: RunFinisher) -> None:
        self._here = here
        self._ender = ender
        self.watched = 0.0
        self.reap_at = 0.0

    def take_stock(self) -> None:
        """Ship the rest of old logs and take over the runs of this host; called at the start."""
        here = self._here
        ours = list(Run.objects.on_host(here.host).select_related("job__project"))
        current = {(run.pk, run.boot) for run in ours}
        for run, boot in here.shipper.unfinished():
            if (run, boot) not in current:
                here.follow(run, boot, here.folder_of(run))
                here.shipper.finish(run=run)
        for each in ours:
            self._reconcile(each)

    def watch(self) -> None:
        """Renew the lease of the runs of this host."""
        here = self._here
        now = here.now()
        watch_runs(host=here.host, now=now)
        remind_runs(host=here.host, now=now)
        monotonic = here.clock.monotonic()
        if monotonic - self.watched > timing.WATCH_GAP_SECONDS:
            self.reap_at = monotonic + WATCH_LEASE_SECONDS
        self.watched = monotonic

    def see_after_all(self) -> None:
        """Take over runs of this host that are not watched; adopt or reap those of silent hosts."""
        here = self._here
        # A claim may have been committed although its answer was lost.
        known = [*here.handles, *(run.pk for run in here.claimed)]
        for run in (
            Run.objects.on_host(here.host).exclude(pk__in=known).select_related("job__project")
        ):
            self._reconcile(run)
        if here.clock.monotonic() >= self.reap_at:
            self._see_after_others()

    def _see_after_others(self) -> None:
        here = self._here
        now = here.now()
        stale = Run.objects.stale(now=now, lease_seconds=WATCH_LEASE_SECONDS)
        in_container = here.runner.kind == HostKind.DOCKER
        for run in stale.select_related("job__project"):
            if bool(run.image_digest) != in_container:
                continue
            # The runner that started it had another name on this machine. A matching pid alone
            # proves nothing: it may belong to a process of another machine.
            handle = self._find(run)
            if handle is not None and adopt_run(run=run, host=here.host, now=now):
                self._take_over(run, handle)
        reap_lost_runs(now=now)

    def tidy(self) -> None:
        """Remove ended containers, unwanted executions, accounts and old folders (seed S1.14)."""
        here = self._here
        if not here.timers.due("tidy", timing.TIDY_EVERY_SECONDS):
            return
        known = dict(Run.objects.on_host(here.host).values_list("pk", "boot"))
        gone = here.runner.tidy(now=here.clock.now(), known=known)
        if gone:
            logger.info("%d ended containers removed", gone)
        self._close_accounts()
        gone = remove_old_folders(here, days=settings.LOG_DAYS)
        if gone:
            logger.info("the folders of %d old runs removed", gone)

    def _close_accounts(self) -> None:
        """Remove broker accounts of ended runs whose own runner could not, on whatever host."""
        accounts = self._here.accounts
        if accounts is None:
            return
        # List accounts before runs: an account made meanwhile belongs to a row that exists already.
        made = accounts.made()
        if made:
            rows = Run.objects.filter(pk__in={run for run, _boot in made}).exclude(state__in=FINAL)
            gone = accounts.keep_only(set(rows.values_list("pk", "boot")), made)
            if gone:
                logger.info("the broker accounts of %d ended runs removed", gone)

    def _reconcile(self, run: Run) -> None:
        here = self._here
        folder = here.folder_of(run.pk)
        handle = self._find(run)
        if handle is not None:
            self._take_over(run, handle)
        elif run.state == RunState.STARTING and not here.runner.may_have_begun(
            run=run.pk, boot=run.boot, folder=folder
        ):
            here.claimed.append(run)
            self._note(run, _("taken over by the runner of %(host)s before it began"))
        else:
            here.runner.sweep(run=run.pk, boot=run.boot)
            here.close_account(run.pk, run.boot)
            here.follow(run.pk, run.boot, folder)
            here.shipper.finish(run=run.pk)
            self._note(run, _("its end was found by the runner of %(host)s"))
            self._ender.finish(run, here.runner.ended(run=run.pk, boot=run.boot, folder=folder))

    def _find(self, run: Run) -> RunHandle | None:
        ours = run.host == self._here.host
        return self._here.runner.find(
            run=run.pk,
            boot=run.boot,
            folder=self._here.folder_of(run.pk),
            pid=(run.pid or 0) if ours else 0,
            started=run.process_started or 0.0,
        )

    def _take_over(self, run: Run, handle: RunHandle) -> None:
        if run.state == RunState.STARTING:
            self._here.unrecorded[run.pk] = run
        self._here.add(run, handle)
        self._note(run, _("taken over by the runner of %(host)s"))
        logger.info("run %s: taken over", run.pk)

    def _note(self, run: Run, text: str) -> None:
        host = self._here.host
        note_recovery(run=run, host=host, text=text % {"host": host}, now=self._here.now())
