"""Reports and accounting of the stores, so that pages need not query the stores.

The requests themselves are in the storage nodes (``stores``). These rows hold the totals of
deleted requests, and reports that are a few seconds old.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.projects.models import Project
from apps.requeststore.querysets import OfBizQuerySet, ReextractionQuerySet
from apps.requeststore.states import RebalanceState, ReextractionState


class ShardReport(models.Model):
    """Report of a shard at ``reported_at``.

    ``by_flag`` counts requests in the store that belong to no closed slice; with the slices it is
    the accounting of the biz.
    """

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    biz = models.CharField(_("request group"), max_length=32)
    node = models.CharField(_("node"), max_length=32)
    database = models.CharField(_("database"), max_length=63)
    collection = models.CharField(_("collection"), max_length=63)
    by_flag = models.JSONField(_("requests by flag"), default=dict)
    oldest_new_at = models.DateTimeField(_("oldest new request"), null=True, blank=True)
    # New and leased requests that expire within 5 min, 1 h, 6 h and 24 h of the report.
    expiring = models.JSONField(_("expiring soon"), default=dict)
    size_bytes = models.PositiveBigIntegerField(_("size"), default=0)
    # Requests with a ts before it are in closed slices.
    closed_until = models.DateTimeField(_("accounting closed until"), null=True, blank=True)
    orphans = models.PositiveBigIntegerField(_("re-queued orphans"), default=0)
    overdue = models.PositiveBigIntegerField(_("leases past their deadline"), default=0)
    problem = models.CharField(_("problem"), max_length=500, blank=True, default="")
    reported_at = models.DateTimeField(_("reported at"), default=timezone.now)

    objects = OfBizQuerySet["ShardReport"].as_manager()

    class Meta:
        verbose_name = _("shard")
        verbose_name_plural = _("shards")
        ordering: ClassVar = ["project", "biz", "node", "collection"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["node", "database", "collection"], name="requeststore_one_report_a_shard"
            )
        ]

    def __str__(self) -> str:
        return f"{self.node}:{self.database}.{self.collection}"


class ClosedSlice(models.Model):
    """Final counts of the requests of one shard whose ``ts`` is in one span of time.

    Written when all of them are final, before the store may delete any; later only merged into
    longer spans.
    """

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    biz = models.CharField(_("request group"), max_length=32)
    node = models.CharField(_("node"), max_length=32)
    database = models.CharField(_("database"), max_length=63)
    collection = models.CharField(_("collection"), max_length=63)
    start_at = models.DateTimeField(_("from"))
    seconds = models.PositiveIntegerField(_("seconds"))
    processed = models.PositiveBigIntegerField(_("processed"), default=0)
    expired = models.PositiveBigIntegerField(_("expired unprocessed"), default=0)
    by_flag = models.JSONField(_("requests by flag"), default=dict)

    objects = OfBizQuerySet["ClosedSlice"].as_manager()

    class Meta:
        verbose_name = _("closed slice")
        verbose_name_plural = _("closed slices")
        ordering: ClassVar = ["-start_at", "pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["node", "database", "collection", "start_at"],
                name="requeststore_slice_closed_once",
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["project", "biz", "start_at"], name="requeststore_slices_of_biz")
        ]

    def __str__(self) -> str:
        return f"{self.node}:{self.database}.{self.collection} {self.start_at:%Y-%m-%d %H:%M}"


class QueueReport(models.Model):
    """Report of a biz's queue at ``reported_at``."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    biz = models.CharField(_("request group"), max_length=32)
    name = models.CharField(_("queue"), max_length=255)
    waiting = models.PositiveBigIntegerField(_("waiting"), default=0)
    taken = models.PositiveBigIntegerField(_("leased"), null=True, blank=True)
    memory_bytes = models.PositiveBigIntegerField(_("memory"), null=True, blank=True)
    problem = models.CharField(_("problem"), max_length=500, blank=True, default="")
    reported_at = models.DateTimeField(_("reported at"), default=timezone.now)

    objects = OfBizQuerySet["QueueReport"].as_manager()

    class Meta:
        verbose_name = _("request queue")
        verbose_name_plural = _("request queues")
        ordering: ClassVar = ["project", "biz"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project", "biz"], name="requeststore_one_queue_report_a_biz"
            )
        ]

    def __str__(self) -> str:
        return self.name


class NodeReport(models.Model):
    """Report of a storage node or queue server at ``reported_at``."""

    name = models.CharField(_("node"), max_length=32, unique=True)
    kind = models.CharField(_("kind"), max_length=20)
    version = models.CharField(_("version"), max_length=100, blank=True, default="")
    storage_bytes = models.PositiveBigIntegerField(_("storage"), null=True, blank=True)
    memory_bytes = models.PositiveBigIntegerField(_("memory"), null=True, blank=True)
    connections = models.PositiveIntegerField(_("connections"), null=True, blank=True)
    members = models.JSONField(_("members"), default=list)
    slow = models.JSONField(_("slow operations"), default=list)
    problem = models.CharField(_("problem"), max_length=500, blank=True, default="")
    since_at = models.DateTimeField(_("state since"), default=timezone.now)
    reported_at = models.DateTimeField(_("reported at"), default=timezone.now)

    class Meta:
        verbose_name = _("storage node")
        verbose_name_plural = _("storage nodes")
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class FetcherSlot(models.Model):
    """Identity of a fetcher process at the center for one biz: owner ``fetcher:<pk>``, run -pk."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    biz = models.CharField(_("request group"), max_length=32)
    name = models.CharField(_("process"), max_length=200)
    seen_at = models.DateTimeField(_("last seen"), default=timezone.now)

    class Meta:
        verbose_name = _("fetcher at the center")
        verbose_name_plural = _("fetchers at the center")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project", "biz", "name"], name="requeststore_one_slot_a_process"
            )
        ]

    def __str__(self) -> str:
        return f"{self.biz} {self.name}"


class Rebalance(models.Model):
    """Move of requests from older epochs to their places under the newest one."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    biz = models.CharField(_("request group"), max_length=32)
    state = models.CharField(
        _("state"), max_length=16, choices=RebalanceState.choices, default=RebalanceState.RUNNING
    )
    config_version = models.PositiveIntegerField(_("version of the settings"))
    # Progress: see ``services.rebalance_plan.Cursor``.
    cursor = models.JSONField(_("cursor"), default=dict)
    moved = models.PositiveBigIntegerField(_("moved"), default=0)
    stayed = models.PositiveBigIntegerField(_("already in place"), default=0)
    problem = models.CharField(_("problem"), max_length=500, blank=True, default="")
    created_by = models.CharField(_("started by"), max_length=150, blank=True, default="")
    created_at = models.DateTimeField(_("started at"), default=timezone.now)
    stepped_at = models.DateTimeField(_("last step at"), default=timezone.now)
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    objects = OfBizQuerySet["Rebalance"].as_manager()

    class Meta:
        verbose_name = _("re-balance")
        verbose_name_plural = _("re-balances")
        ordering: ClassVar = ["-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project", "biz"],
                name="requeststore_one_rebalance_a_biz",
                condition=models.Q(state=RebalanceState.RUNNING),
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=RebalanceState.values),
                name="requeststore_rebalance_state_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.biz} #{self.pk}"


class Reextraction(models.Model):
    """Extraction of records from kept pages by the rules of now, without a download.

    seen = done + failed + not kept. One batch of requests after another: its records are stored,
    then the counts and the place of the next one, so that a repeated batch changes nothing.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    biz = models.CharField(_("request group"), max_length=32)
    state = models.CharField(
        _("state"),
        max_length=16,
        choices=ReextractionState.choices,
        default=ReextractionState.RUNNING,
    )
    # {"ids": [...]}, or {"flag": 2, "since": .., "until": ..} in Unix ms.
    selection = models.JSONField(_("selection"), default=dict)
    # The next batch: [ts, ID] of the last request, or the number of IDs already read.
    place = models.JSONField(_("place"), default=list)
    # Requests of the selection, as counted at the start; None: unknown.
    total = models.PositiveBigIntegerField(_("total"), null=True, blank=True)
    done = models.PositiveBigIntegerField(_("done"), default=0)
    failed = models.PositiveBigIntegerField(_("failed"), default=0)
    not_kept = models.PositiveBigIntegerField(_("not kept"), default=0)
    records = models.PositiveBigIntegerField(_("records"), default=0)
    # Requests by reason: {"missing: title": 3}.
    reasons = models.JSONField(_("reasons"), default=dict)
    config_version = models.PositiveIntegerField(_("version of the settings"))
    problem = models.CharField(_("problem"), max_length=500, blank=True, default="")
    created_by = models.CharField(_("started by"), max_length=150, blank=True, default="")
    created_at = models.DateTimeField(_("started at"), default=timezone.now)
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)
    # Lease of the worker.
    owner = models.CharField(max_length=200, blank=True, default="")
    leased_until = models.DateTimeField(default=timezone.now)
    generation = models.BigIntegerField(default=0)

    objects = ReextractionQuerySet["Reextraction"].as_manager()

    class Meta:
        verbose_name = _("re-extraction")
        verbose_name_plural = _("re-extractions")
        ordering: ClassVar = ["-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project", "biz"],
                name="requeststore_one_reextraction_a_biz",
                condition=models.Q(state=ReextractionState.RUNNING),
            ),
            models.CheckConstraint(
                condition=models.Q(state__in=ReextractionState.values),
                name="requeststore_reextraction_state_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.biz} #{self.pk}"

    @property
    def seen(self) -> int:
        """Return the number of requests that were looked at."""
        return self.done + self.failed + self.not_kept


class ScaleState(models.Model):
    """Single row: wanted fetchers, measured capacities, and delivery to the webhook."""

    # Needed fetchers of the last minutes: [[Unix seconds, number], ...].
    needs = models.JSONField(default=list)
    # Requests per second of one fetcher under load, by "project/biz".
    capacities = models.JSONField(default=dict)
    wanted = models.PositiveIntegerField(_("recommended"), default=1)
    running = models.PositiveIntegerField(_("running"), default=0)
    decided_at = models.DateTimeField(_("decided at"), null=True, blank=True)
    changed_at = models.DateTimeField(_("changed at"), null=True, blank=True)
    # Number that SCALE_WEBHOOK_URL acknowledged last.
    told = models.PositiveIntegerField(_("acknowledged number"), null=True, blank=True)
    told_at = models.DateTimeField(_("acknowledged at"), null=True, blank=True)
    tries = models.PositiveIntegerField(_("tries"), default=0)
    next_try_at = models.DateTimeField(_("next try"), null=True, blank=True)
    problem = models.CharField(_("problem"), max_length=500, blank=True, default="")

    class Meta:
        verbose_name = _("number of fetchers")
        verbose_name_plural = _("numbers of fetchers")
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(pk=1), name="requeststore_one_scale_state")
        ]

    def __str__(self) -> str:
        return f"{self.running}/{self.wanted}"


class SamplePage(models.Model):
    """Page stored to test extraction rules; pages are not stored otherwise."""

    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="+", verbose_name=_("project")
    )
    biz = models.CharField(_("request group"), max_length=32)
    # Rule for this page; "" for the default rule.
    rule = models.CharField(_("rule"), max_length=64, blank=True, default="")
    url = models.TextField(_("URL"))
    status = models.PositiveSmallIntegerField(_("status"), default=200)
    headers = models.JSONField(_("headers"), default=list)
    body = models.BinaryField(_("body"))
    truncated = models.BooleanField(_("truncated"), default=False)
    fetched = models.BooleanField(_("downloaded"), default=False)
    created_by = models.CharField(_("created by"), max_length=150, blank=True, default="")
    created_at = models.DateTimeField(_("created at"), default=timezone.now)

    objects = OfBizQuerySet["SamplePage"].as_manager()

    class Meta:
        verbose_name = _("sample page")
        verbose_name_plural = _("sample pages")
        ordering: ClassVar = ["-pk"]
        indexes: ClassVar = [
            models.Index(fields=["project", "biz", "rule"], name="requeststore_samples_of_rule")
        ]

    def __str__(self) -> str:
        return f"{self.biz} {self.url[:100]}"
