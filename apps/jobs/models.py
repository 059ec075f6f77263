"""Jobs, their runs, and each move of a run."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from apps.jobs.querysets import JobQuerySet, RunQuerySet
from apps.jobs.states import ACTIVE, FINAL, RunState
from apps.projects.models import Project


class DownloadPolicy(models.TextChoices):
    """How a run's agents are chosen (seed S1.36)."""

    RANDOM = "random", _("random over all agents")


class Job(models.Model):
    """What to run, and with which arguments."""

    project = models.ForeignKey(
        Project, verbose_name=_("project"), on_delete=models.PROTECT, related_name="jobs"
    )
    name = models.CharField(_("name"), max_length=100)
    spider = models.CharField(
        _("spider"),
        max_length=200,
        help_text=_("module:Class, importable on the runner's host"),
        validators=[
            RegexValidator(
                r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
                _("Write it as module:Class, for example yardspider.site:SiteSpider."),
            )
        ],
    )
    arguments = models.JSONField(
        _("arguments"), default=dict, blank=True, help_text=_("a JSON object the spider receives")
    )
    speed = models.FloatField(
        _("speed"),
        default=1.0,
        validators=[MinValueValidator(0.0)],
        help_text=_("requests a second; 0 is unlimited, 0.1 is one every ten seconds"),
    )
    concurrency = models.PositiveIntegerField(
        _("window"),
        default=100,
        validators=[MinValueValidator(1), MaxValueValidator(10_000)],
        help_text=_("how many requests may be without an answer at once"),
    )
    policy = models.CharField(
        _("download policy"),
        max_length=10,
        choices=DownloadPolicy.choices,
        default=DownloadPolicy.RANDOM,
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    notes = models.TextField(_("notes"), blank=True)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"],
                name="jobs_job_name_once_per_project",
                violation_error_message=_("A job of this name already exists in the project."),
            ),
            models.CheckConstraint(
                condition=Q(policy__in=DownloadPolicy.values), name="jobs_job_policy_known"
            ),
            models.CheckConstraint(condition=Q(speed__gte=0), name="jobs_job_speed_positive"),
        ]

    def __str__(self) -> str:
        return self.name


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
