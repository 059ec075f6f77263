"""Yield (number of items and requests) of each run, from which a job's baseline is computed."""

from __future__ import annotations

from typing import ClassVar, Final

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.yields import YieldLimits
from apps.alerts.querysets import JobYieldQuerySet, YieldWatchQuerySet
from apps.jobs.models import Job
from apps.jobs.models.execution_rules import validate_finite
from apps.jobs.states import RunState, Trigger
from apps.projects.models import Project

_DEFAULT: Final = YieldLimits()


class JobYield(models.Model):
    """Yield of one finished run. Kept longer than the run itself."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="yields")
    # No foreign key: runs are deleted earlier.
    run = models.BigIntegerField(_("run"), unique=True)
    state = models.CharField(_("state"), max_length=16, choices=RunState.choices)
    trigger = models.CharField(_("trigger"), max_length=16, choices=Trigger.choices)
    started_at = models.DateTimeField(_("started at"), null=True)
    ended_at = models.DateTimeField(_("ended at"))
    recorded_at = models.DateTimeField(_("recorded at"))
    # None: neither this run nor an earlier one of the job reported items.
    items = models.BigIntegerField(_("items"), null=True)
    pages = models.BigIntegerField(_("pages"), default=0)
    success = models.BigIntegerField(_("successful requests"), default=0)
    failed = models.BigIntegerField(_("failed requests"), default=0)
    # Number of items with a non-empty value, by field.
    fields = models.JSONField(_("fields"), default=dict)
    # True if compared with earlier runs, and part of the baseline of later ones.
    judged = models.BooleanField(_("compared"), default=False)
    # Baseline at that time, see engine.yields.Baseline; {} if there were too few runs.
    usual = models.JSONField(_("usual"), default=dict)
    # Anomalies: [{"kind": "drop", "items": 10, "usual": 1000, ...}].
    findings = models.JSONField(_("anomalies"), default=list)

    objects = JobYieldQuerySet["JobYield"].as_manager()

    class Meta:
        verbose_name = _("run yield")
        verbose_name_plural = _("run yields")
        ordering: ClassVar = ["-ended_at", "-run"]
        indexes: ClassVar = [
            models.Index(fields=["job", "-ended_at"], name="alerts_yields_of_job"),
            models.Index(fields=["-ended_at"], name="alerts_newest_yields"),
        ]

    def __str__(self) -> str:
        return f"run:{self.run}"


# Fields of a policy that are limits.
LIMITS: Final = ("drop_below", "rise_above", "coverage_fall", "failures_rise", "stale_times")
_SHARE: Final = (MinValueValidator(0.01), MaxValueValidator(1.0), validate_finite)


class YieldPolicy(models.Model):
    """Anomaly detection settings of one job; a job without a row uses the defaults."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="yield_policy")
    enabled = models.BooleanField(_("watched"), default=True)
    drop_below = models.FloatField(
        _("too few items"),
        null=True,
        blank=True,
        default=_DEFAULT.drop_below,
        validators=_SHARE,
        help_text=_(
            "Alert when the number of items falls below this share of the usual number. Leave"
            " empty to disable."
        ),
    )
    rise_above = models.FloatField(
        _("too many items"),
        null=True,
        blank=True,
        default=_DEFAULT.rise_above,
        validators=[MinValueValidator(1.1), MaxValueValidator(1000.0), validate_finite],
        help_text=_(
            "Alert when the number of items exceeds the usual number by this factor. Leave "
            "empty to disable."
        ),
    )
    coverage_fall = models.FloatField(
        _("missing fields"),
        null=True,
        blank=True,
        default=_DEFAULT.coverage_fall,
        validators=_SHARE,
        help_text=_(
            "Alert when the share of items with a value falls by this. Leave empty to disable."
        ),
    )
    failures_rise = models.FloatField(
        _("failed requests"),
        null=True,
        blank=True,
        default=_DEFAULT.failures_rise,
        validators=_SHARE,
        help_text=_(
            "Alert when the failure rate exceeds the usual rate by this amount. Leave empty "
            "to disable."
        ),
    )
    stale_times = models.FloatField(
        _("no new items"),
        null=True,
        blank=True,
        default=_DEFAULT.stale_times,
        validators=[MinValueValidator(1.0), MaxValueValidator(100.0), validate_finite],
        help_text=_(
            "Alert when no run returned items for this many usual intervals. Leave empty to "
            "disable."
        ),
    )
    # Runs that ended earlier are not part of the baseline (it was reset, for example after the site
    # changed).
    learn_from = models.DateTimeField(_("baseline since"), null=True, blank=True)
    updated_at = models.DateTimeField(_("changed at"), auto_now=True)

    class Meta:
        verbose_name = _("yield policy")
        verbose_name_plural = _("yield policies")

    def __str__(self) -> str:
        return str(self.job)

    @property
    def limits(self) -> YieldLimits:
        """Return the limits as the engine's type."""
        return YieldLimits(
            drop_below=self.drop_below,
            rise_above=self.rise_above,
            coverage_fall=self.coverage_fall,
            failures_rise=self.failures_rise,
            stale_times=self.stale_times,
        )


class YieldWatch(models.Model):
    """Current yield status of a job in one row, which rules poll every few seconds."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="yield_watch")
    # Newest compared run and its anomalies; "since" of each is when the anomaly first appeared
    # without a break.
    run = models.BigIntegerField(_("run"), null=True)
    run_ended_at = models.DateTimeField(_("ended at"), null=True)
    findings = models.JSONField(_("anomalies"), default=list)
    unusual = models.BooleanField(_("anomaly"), default=False)
    # Newest successful run that returned items.
    good_run = models.BigIntegerField(_("last good run"), null=True)
    good_at = models.DateTimeField(_("last good run at"), null=True)
    # Usual seconds between such runs, and when the job becomes stale; None if unknown.
    usual_seconds = models.FloatField(_("usual interval"), null=True)
    stale_at = models.DateTimeField(_("stale at"), null=True, db_index=True)

    objects = YieldWatchQuerySet["YieldWatch"].as_manager()

    class Meta:
        verbose_name = _("yield status")
        verbose_name_plural = _("yield statuses")
        indexes: ClassVar = [
            models.Index(
                fields=["job"], name="alerts_unusual_yields", condition=models.Q(unusual=True)
            )
        ]

    def __str__(self) -> str:
        return str(self.job)
