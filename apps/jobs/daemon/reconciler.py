"""Reconciliation of rows and executions: takeover, adoption, lost runs, cleanup."""

from __future__ import annotations

import logging

from django.conf import settings
from django.utils.translation import gettext as _

from apps.jobs.daemon import intervals
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
    """Reconciles the rows of runs with the executions on this host."""

    def __init__(self, context: RunnerContext, ender: RunFinisher) -> None:
        self._context = context
        self._ender = ender
        self.watched = 0.0
        self.reap_at = 0.0

    def take_stock(self) -> None:
        """Ship unfinished logs and take over the runs of this host; called at the start."""
        context = self._context
        ours = list(Run.objects.on_host(context.host).select_related("job__project"))
        current = {(run.pk, run.boot) for run in ours}
        for run, boot in context.shipper.unfinished():
            if (run, boot) not in current:
                context.follow(run, boot, context.folder_of(run))
                context.shipper.finish(run=run)
        for unwatched in ours:
            self._reconcile(unwatched)

    def watch(self) -> None:
        """Renew the leases of the runs of this host, and repeat unanswered commands."""
        context = self._context
        now = context.now()
        watch_runs(host=context.host, now=now)
        remind_runs(host=context.host, now=now)
        monotonic = context.clock.monotonic()
        if monotonic - self.watched > intervals.WATCH_GAP_SECONDS:
            self.reap_at = monotonic + WATCH_LEASE_SECONDS
        self.watched = monotonic

    def see_after_all(self) -> None:
        """Take over unwatched runs of this host; adopt or reap runs of silent hosts."""
        context = self._context
        # A claim may have been committed although the confirmation was lost.
        known = [*context.handles, *(run.pk for run in context.claimed)]
        rows = Run.objects.on_host(context.host).exclude(pk__in=known)
        for run in rows.select_related("job__project"):
            self._reconcile(run)
        if context.clock.monotonic() >= self.reap_at:
            self._adopt_stale_runs()

    def _adopt_stale_runs(self) -> None:
        context = self._context
        now = context.now()
        stale = Run.objects.stale(now=now, lease_seconds=WATCH_LEASE_SECONDS)
        in_container = context.runner.kind == HostKind.DOCKER
        for run in stale.select_related("job__project"):
            if bool(run.image_digest) != in_container:
                continue
            # Adopt a run whose runner had another name on this machine. A matching pid alone is no
            # proof: the run may have that pid on another machine.
            handle = self._find(run)
            if handle is not None and adopt_run(run=run, host=context.host, now=now):
                self._take_over(run, handle)
        reap_lost_runs(now=now)

    def tidy(self) -> None:
        """Remove ended containers, unwanted executions, accounts and old folders."""
        context = self._context
        if not context.timers.due("tidy", intervals.TIDY_EVERY_SECONDS):
            return
        known = dict(Run.objects.on_host(context.host).values_list("pk", "boot"))
        removed = context.runner.tidy(now=context.clock.now(), known=known)
        if removed:
            logger.info("%d ended containers removed", removed)
        self._close_accounts()
        removed = remove_old_folders(context, days=settings.LOG_DAYS)
        if removed:
            logger.info("the folders of %d old runs removed", removed)

    def _close_accounts(self) -> None:
        """Remove broker accounts of ended runs on any host whose runner could not remove them."""
        accounts = self._context.accounts
        if accounts is None:
            return
        # List accounts before runs: the row of a run exists before its account.
        made = accounts.made()
        if made:
            rows = Run.objects.filter(pk__in={run for run, _boot in made}).exclude(state__in=FINAL)
            removed = accounts.keep_only(set(rows.values_list("pk", "boot")), made)
            if removed:
                logger.info("the broker accounts of %d ended runs removed", removed)

    def _reconcile(self, run: Run) -> None:
        context = self._context
        folder = context.folder_of(run.pk)
        handle = self._find(run)
        if handle is not None:
            self._take_over(run, handle)
        elif run.state == RunState.STARTING and not context.runner.may_have_begun(
            run=run.pk, boot=run.boot, folder=folder
        ):
            context.claimed.append(run)
            self._note(run, _("taken over by the runner of %(host)s before it began"))
        else:
            context.runner.sweep(run=run.pk, boot=run.boot)
            context.close_account(run.pk, run.boot)
            context.follow(run.pk, run.boot, folder)
            context.shipper.finish(run=run.pk)
            self._note(run, _("its end was found by the runner of %(host)s"))
            self._ender.finish(run, context.runner.ended(run=run.pk, boot=run.boot, folder=folder))

    def _find(self, run: Run) -> RunHandle | None:
        ours = run.host == self._context.host
        return self._context.runner.find(
            run=run.pk,
            boot=run.boot,
            folder=self._context.folder_of(run.pk),
            pid=(run.pid or 0) if ours else 0,
            started=run.process_started or 0.0,
        )

    def _take_over(self, run: Run, handle: RunHandle) -> None:
        if run.state == RunState.STARTING:
            self._context.unrecorded[run.pk] = run
        self._context.add(run, handle)
        self._note(run, _("taken over by the runner of %(host)s"))
        logger.info("run %s: taken over", run.pk)

    def _note(self, run: Run, text: str) -> None:
        host = self._context.host
        note_recovery(run=run, host=host, text=text % {"host": host}, now=self._context.now())
