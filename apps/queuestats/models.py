"""Counters of runs and centers, time series, and states of queues.

A counter report is cumulative since the start of its sender's incarnation (``boot``), so a repeated
or late one changes nothing: only a higher ``seq`` is written. Totals are sums over incarnations.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.jobs.models import Job, Run
from apps.projects.models import Project
from apps.queuestats.querysets import (
    FailedRequestQuerySet,
    JobDayQuerySet,
    QueueStateQuerySet,
    RunStatsQuerySet,
    SeriesQuerySet,
)

# Longer labels are truncated and end in a digest.
LABEL_CHARACTERS = 200


class RunCounter(models.Model):
    """Newest counter report of one execution (``boot``) of a run.

    ``yardkit.protocol.RunCounters`` defines the counters and the two equations between them.
    """

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    owner = models.CharField(_("owner"), max_length=100)
    boot = models.CharField(max_length=32)
    seq = models.BigIntegerField(default=0)
    total = models.BigIntegerField(_("total"), default=0)
    success = models.BigIntegerField(_("success"), default=0)
    failed = models.BigIntegerField(_("failed"), default=0)
    sent = models.BigIntegerField(_("sent"), default=0)
    returned = models.BigIntegerField(_("returned"), default=0)
    retried = models.BigIntegerField(_("retried"), default=0)
    skipped = models.BigIntegerField(_("skipped"), default=0)
    timed_out = models.BigIntegerField(_("timed out"), default=0)
    refused = models.BigIntegerField(_("refused"), default=0)
    cancelled = models.BigIntegerField(_("cancelled"), default=0)
    out = models.BigIntegerField(_("awaiting response"), default=0)
    held = models.BigIntegerField(_("deferred"), default=0)
    duplicates = models.BigIntegerField(_("duplicates"), default=0)
    filtered = models.BigIntegerField(_("filtered duplicates"), default=0, db_default=0)
    pages = models.BigIntegerField(_("pages"), default=0)
    items = models.BigIntegerField(_("items"), default=0)
    bytes_received = models.BigIntegerField(_("bytes"), default=0)
    queued = models.BigIntegerField(_("queued"), default=0)
    in_flight = models.BigIntegerField(_("in flight"), default=0)
    agents = models.JSONField(_("answers by Agent"), default=dict)
    # By agent: responses that the spider judged failed, and total download time in ms.
    agent_failed = models.JSONField(default=dict, null=True)
    agent_ms = models.JSONField(default=dict, null=True)
    callback_ms = models.BigIntegerField(default=0, db_default=0)
    # By item field: number of items in which it had a value.
    fields = models.JSONField(_("items by field"), default=dict)
    # By reason: items that the run gave up before it sent them.
    dropped = models.JSONField(_("dropped items"), default=dict, db_default={})
    final = models.BooleanField(_("final"), default=False)
    updated_at = models.DateTimeField(_("updated at"))

    class Meta:
        verbose_name = _("run counter")
        verbose_name_plural = _("run counters")
        constraints = [
            models.UniqueConstraint(fields=["owner", "boot"], name="queuestats_one_per_boot")
        ]
        indexes = [
            # No column that a report changes: PostgreSQL could not use heap-only updates then.
            models.Index(fields=["owner"], name="queuestats_open_books", condition=Q(final=False))
        ]

    def __str__(self) -> str:
        return f"{self.owner} {self.boot}"


class JobCounter(models.Model):
    """Counters of all runs of a job, increased as the runs report."""

    job = models.OneToOneField(Job, on_delete=models.CASCADE, primary_key=True, related_name="+")
    total = models.BigIntegerField(_("total"), default=0)
    success = models.BigIntegerField(_("success"), default=0)
    failed = models.BigIntegerField(_("failed"), default=0)
    pages = models.BigIntegerField(_("pages"), default=0)
    items = models.BigIntegerField(_("items"), default=0)
    bytes_received = models.BigIntegerField(_("bytes"), default=0)
    updated_at = models.DateTimeField(_("updated at"))

    class Meta:
        verbose_name = _("job counter")
        verbose_name_plural = _("job counters")

    def __str__(self) -> str:
        return f"job:{self.job_id}"


class JobDay(models.Model):
    """Figures of one job on one day in UTC, without runs on kept pages.

    Requests, items and bytes count on the day on which they are reported, runs on that of their
    end, with the outcome that they have then.
    """

    job = models.ForeignKey(Job, on_delete=models.CASCADE, db_index=False, related_name="+")
    day = models.DateField(_("day"))
    success = models.BigIntegerField(_("success"), default=0)
    failed = models.BigIntegerField(_("failed"), default=0)
    pages = models.BigIntegerField(_("pages"), default=0)
    items = models.BigIntegerField(_("items"), default=0)
    bytes_received = models.BigIntegerField(_("bytes"), default=0)
    runs_succeeded = models.BigIntegerField(default=0)
    runs_with_errors = models.BigIntegerField(default=0)
    runs_failed = models.BigIntegerField(default=0)
    runs_cancelled = models.BigIntegerField(default=0)
    run_seconds = models.BigIntegerField(default=0)

    objects = JobDayQuerySet.as_manager()

    class Meta:
        verbose_name = _("day of a job")
        verbose_name_plural = _("days of jobs")
        constraints = [
            models.UniqueConstraint(fields=["job", "day"], name="queuestats_one_per_job_and_day")
        ]
        indexes = [models.Index(fields=["day"], name="queuestats_days")]

    def __str__(self) -> str:
        return f"job:{self.job_id} {self.day}"


class CenterCounter(models.Model):
    """Counters of one center for one run, since the start of the center."""

    owner = models.CharField(_("owner"), max_length=100)
    boot = models.CharField(max_length=32)
    seq = models.BigIntegerField(default=0)
    received = models.BigIntegerField(_("received"), default=0)
    dispatched = models.BigIntegerField(_("dispatched"), default=0)
    skipped = models.BigIntegerField(_("skipped"), default=0)
    expired = models.BigIntegerField(_("expired"), default=0)
    refused = models.BigIntegerField(_("refused"), default=0)
    held = models.BigIntegerField(_("deferred"), default=0)
    updated_at = models.DateTimeField(_("updated at"))

    class Meta:
        verbose_name = _("center counter")
        verbose_name_plural = _("center counters")
        constraints = [
            models.UniqueConstraint(fields=["owner", "boot"], name="queuestats_one_per_center")
        ]

    def __str__(self) -> str:
        return f"{self.owner} {self.boot}"


class PageCounter(models.Model):
    """Pages of one run that one agent was to keep, since the agent's first page of it."""

    owner = models.CharField(_("owner"), max_length=100)
    boot = models.CharField(max_length=32)
    seq = models.BigIntegerField(default=0)
    chosen = models.BigIntegerField(_("chosen"), default=0)
    # By reason.
    not_kept = models.JSONField(_("not kept"), default=dict)
    updated_at = models.DateTimeField(_("updated at"))

    class Meta:
        verbose_name = _("page counter")
        verbose_name_plural = _("page counters")
        constraints = [
            models.UniqueConstraint(fields=["owner", "boot"], name="queuestats_one_per_keeper")
        ]

    def __str__(self) -> str:
        return f"{self.owner} {self.boot}"


class FailedRequest(models.Model):
    """A request that failed permanently, with the reason."""

    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="+", verbose_name=_("project")
    )
    owner = models.CharField(_("owner"), max_length=100)
    boot = models.CharField(max_length=32)
    seq = models.BigIntegerField()
    url = models.TextField(_("address"))
    status = models.PositiveIntegerField(_("status"), default=0)
    reason = models.TextField(_("reason"))
    at = models.DateTimeField(_("at"))

    objects = FailedRequestQuerySet.as_manager()

    class Meta:
        verbose_name = _("failed request")
        verbose_name_plural = _("failed requests")
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "boot", "seq"], name="queuestats_failure_once")
        ]

    def __str__(self) -> str:
        return self.url


class RunStats(models.Model):
    """Statistics that a run's own framework keeps, such as Scrapy's, of its newest execution."""

    run = models.OneToOneField(
        Run, on_delete=models.CASCADE, related_name="+", verbose_name=_("run")
    )
    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="+", verbose_name=_("project")
    )
    boot = models.CharField(max_length=32)
    seq = models.BigIntegerField()
    # By name: numbers, texts, booleans, nulls.
    stats = models.JSONField(_("statistics"), default=dict)
    updated_at = models.DateTimeField(_("updated at"))

    objects = RunStatsQuerySet.as_manager()

    class Meta:
        verbose_name = _("run statistics")
        verbose_name_plural = _("run statistics")
        ordering = ["-run"]

    def __str__(self) -> str:
        return f"run:{self.run_id}"


class SeriesKind(models.TextChoices):
    """How readings of a series are combined: summed, or averaged."""

    SUM = "sum", _("sum")
    GAUGE = "gauge", _("gauge")


class Series(models.Model):
    """One time series, such as the length of a queue or the requests created for a biz."""

    # None for series of the platform.
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    name = models.CharField(_("name"), max_length=64)
    label = models.CharField(_("label"), max_length=LABEL_CHARACTERS, blank=True, default="")
    kind = models.CharField(_("kind"), max_length=8, choices=SeriesKind.choices)

    objects = SeriesQuerySet.as_manager()

    class Meta:
        verbose_name = _("series")
        verbose_name_plural = _("series")
        ordering = ["project", "name", "label"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name", "label"], name="queuestats_series_of_project"
            ),
            models.UniqueConstraint(
                fields=["name", "label"],
                condition=Q(project=None),
                name="queuestats_series_of_platform",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=SeriesKind.values), name="queuestats_series_kind_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.label}".rstrip()


class Sample(models.Model):
    """A series in one period: ``step`` seconds (1, 60 or 3600) from the Unix second ``second``.

    For a sum, ``value`` is the sum of the period. For a gauge it is the sum of ``count`` readings,
    and ``highest`` is the highest reading. Each report is added at all three resolutions in one
    transaction, so late reports are complete at each; finer resolutions have a shorter retention.
    """

    pk = models.CompositePrimaryKey("series_id", "step", "second")
    series = models.ForeignKey(Series, on_delete=models.CASCADE, db_index=False, related_name="+")
    step = models.PositiveSmallIntegerField(_("seconds"))
    second = models.PositiveBigIntegerField(_("Unix seconds"))
    value = models.FloatField(_("value"), default=0)
    count = models.PositiveBigIntegerField(_("readings"), default=0)
    highest = models.FloatField(_("highest"), default=0)

    class Meta:
        verbose_name = _("sample")
        verbose_name_plural = _("samples")

    def __str__(self) -> str:
        return f"{self.series_id} {self.second} {self.step} s"


class SampleSender(models.Model):
    """Report numbers received from one incarnation of a counting process, for de-duplication."""

    sender = models.CharField(_("process"), max_length=200)
    boot = models.CharField(max_length=32, unique=True)
    seq = models.PositiveBigIntegerField(default=0)
    missing = models.JSONField(default=list)
    skew_base = models.FloatField(default=0)
    skew_steady = models.PositiveIntegerField(default=0)
    # Negative if the clock is ahead; 0 while the skew is tolerated.
    behind_seconds = models.FloatField(_("clock is behind by"), default=0)
    heard_at = models.DateTimeField(_("heard at"), db_index=True)

    class Meta:
        verbose_name = _("counting process")
        verbose_name_plural = _("counting processes")

    def __str__(self) -> str:
        return self.sender


class CounterMark(models.Model):
    """Last sampled value of a monotonic counter; the increase since then goes into its series."""

    # "<series> <project, or 0> <label>"
    key = models.CharField(max_length=300, primary_key=True)
    value = models.FloatField(_("value"))
    at = models.DateTimeField(_("at"), db_index=True)

    class Meta:
        verbose_name = _("mark of a counter")
        verbose_name_plural = _("marks of counters")

    def __str__(self) -> str:
        return f"{self.key} {self.value}"


class QueueState(models.Model):
    """Last sample of a queue; ``yardkit.queues.QueueReading`` describes the fields."""

    # "<project, or 0> <name>"
    key = models.CharField(max_length=300, primary_key=True)
    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    name = models.CharField(_("queue"), max_length=LABEL_CHARACTERS)
    engine = models.CharField(_("queue system"), max_length=20, blank=True)
    address = models.CharField(_("name in the queue system"), max_length=200, blank=True)
    way = models.CharField(_("direction"), max_length=8)
    waiting = models.BigIntegerField(_("waiting"), null=True, blank=True)
    taken = models.BigIntegerField(_("taken"), null=True, blank=True)
    readers = models.IntegerField(_("readers"), null=True, blank=True)
    oldest_seconds = models.FloatField(_("oldest"), null=True, blank=True)
    in_total = models.BigIntegerField(null=True, blank=True)
    out_total = models.BigIntegerField(null=True, blank=True)
    epoch = models.CharField(max_length=2000, blank=True)
    problem = models.CharField(_("problem"), max_length=500, blank=True)
    at = models.DateTimeField(_("at"), db_index=True)

    objects = QueueStateQuerySet.as_manager()

    class Meta:
        verbose_name = _("queue")
        verbose_name_plural = _("queues")

    def __str__(self) -> str:
        return self.name
