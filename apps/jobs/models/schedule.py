"""Models of schedules and planned runs."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.jobs.engine.cron import validate_cron, validate_time_zone
from apps.jobs.querysets import PlannedRunQuerySet
from apps.jobs.states import MisfirePolicy, OverlapPolicy, PlanOutcome


class ScheduleOptions(models.Model):
    """Job fields for the schedule."""

    cron = models.CharField(
        _("cron"),
        max_length=100,
        blank=True,
        validators=[validate_cron],
        help_text=_(
            "minute hour day month weekday, such as 0 6 * * 1-5; leave empty for no schedule."
        ),
    )
    time_zone = models.CharField(
        _("time zone"),
        max_length=50,
        default="UTC",
        validators=[validate_time_zone],
        help_text=_("Such as Asia/Shanghai."),
    )
    overlap = models.CharField(
        _("overlap policy"),
        max_length=10,
        choices=OverlapPolicy.choices,
        default=OverlapPolicy.SKIP,
        help_text=_("What happens to a planned run while an earlier one is active."),
    )
    misfire = models.CharField(
        _("misfire policy"),
        max_length=10,
        choices=MisfirePolicy.choices,
        default=MisfirePolicy.ONCE,
        help_text=_("What happens to planned runs that could not be started in time."),
    )

    class Meta:
        abstract = True


class Schedule(models.Model):
    """State of a job's cron schedule.

    Each planned time up to ``planned_through`` has a row of ``PlannedRun``, so that it is started
    once or listed as missed even if a process dies.
    """

    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="schedule")
    # Expression that ``next_at`` was computed with; after a change planning restarts from now.
    cron = models.CharField(max_length=100)
    time_zone = models.CharField(max_length=50)
    planned_through = models.DateTimeField()
    # Next planned time; null while the job is disabled or has no cron expression.
    next_at = models.DateTimeField(_("next run at"), null=True, blank=True, db_index=True)
    # Row of Celery beat that wakes a worker. Not a foreign key: daemons would have to load Celery.
    periodic_task_id = models.BigIntegerField(null=True, blank=True, unique=True, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")

    def __str__(self) -> str:
        return f"{self.cron} {self.time_zone}"


class PlannedRun(models.Model):
    """Planned time of a schedule, and its outcome."""

    schedule = models.ForeignKey(Schedule, on_delete=models.CASCADE, related_name="planned_runs")
    planned_at = models.DateTimeField(_("planned at"))
    outcome = models.CharField(_("outcome"), max_length=10, choices=PlanOutcome.choices)
    reason = models.TextField(_("reason"), blank=True)
    run = models.OneToOneField(
        "jobs.Run", null=True, blank=True, on_delete=models.SET_NULL, related_name="plan"
    )
    decided_at = models.DateTimeField(_("decided at"))

    objects = PlannedRunQuerySet.as_manager()

    class Meta:
        verbose_name = _("planned run")
        verbose_name_plural = _("planned runs")
        ordering = ["-planned_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["schedule", "planned_at"], name="jobs_planned_once"),
            models.CheckConstraint(
                condition=Q(outcome__in=PlanOutcome.values), name="jobs_planned_outcome_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.planned_at:%Y-%m-%d %H:%M} {self.outcome}"
