"""Executions of jobs, and each move of one."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from apps.jobs.models.job import Job
from apps.jobs.querysets import RunQuerySet
from apps.jobs.states import ACTIVE, FINAL, RunState


class Run(models.Model):
    """One execution of a job. ``owner`` is how other apps name it."""

    job = models.ForeignKey(
        Job, verbose_name=_("job"), on_delete=models.PROTECT, related_name="runs"
    )
    state = models.CharField(
        _("state"), max_length=10, choices=RunState.choices, default=RunState.QUEUED
    )
    reason = models.TextField(_("reason"), blank=True)
    arguments = models.JSONField(_("arguments"), default=dict, blank=True)
    requested_by = models.CharField(_("requested by"), max_length=150, blank=True)
    boot = models.CharField(
        max_length=16, blank=True, help_text=_("changes each time the run is started")
    )
    host = models.CharField(_("host"), max_length=200, blank=True)
    pid = models.PositiveIntegerField(null=True, blank=True)
    # With the pid this identifies a process for good: pids are reused.
    process_started = models.FloatField(null=True, blank=True)
    watched_at = models.DateTimeField(null=True, blank=True)
    exit_code = models.IntegerField(_("exit code"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"))
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=RunState.values), name="jobs_run_state_known"
            ),
            models.CheckConstraint(
                condition=Q(state__in=FINAL, ended_at__isnull=False)
                | Q(state__in=ACTIVE, ended_at__isnull=True),
                name="jobs_run_ended_iff_final",
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True) | Q(ended_at__gte=F("created_at")),
                name="jobs_run_ends_after_it_began",
            ),
        ]
        indexes = [
            models.Index(
                fields=["state", "id"], name="jobs_run_active", condition=Q(state__in=ACTIVE)
            ),
            models.Index(fields=["job", "-id"], name="jobs_run_of_job"),
        ]

    def __str__(self) -> str:
        return f"{self.job.name} #{self.pk}"

    @property
    def owner(self) -> str:
        """``run:7``: the name under which allocations and counters belong to this run."""
        return f"run:{self.pk}"

    @property
    def is_active(self) -> bool:
        """Not in a final state."""
        return self.state in ACTIVE


class RunMove(models.Model):
    """One move of a run: when, by whom, why."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="moves")
    from_state = models.CharField(max_length=10, choices=RunState.choices, blank=True)
    to_state = models.CharField(max_length=10, choices=RunState.choices)
    at = models.DateTimeField()
    actor = models.CharField(max_length=150, blank=True)
    reason = models.TextField(blank=True)

    class Meta:
        verbose_name = _("move of a run")
        verbose_name_plural = _("moves of runs")
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.from_state or '-'} → {self.to_state}"
