"""Credentials, progress of sources, imports and record queues.

The settings of a source are in the configuration ``sources`` of its project; its row is created by
its first start and stays when the entry is removed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.projects.models import Project
from apps.runtime.fields import SecretTextField
from apps.sources.querysets import (
    CredentialQuerySet,
    HarvestQuerySet,
    RecordQueueQuerySet,
    SourceStateQuerySet,
)
from apps.sources.states import HarvestState, Reason, SourceActivity
from yardkit.names import SLUG


class Credential(models.Model):
    """Credentials for a record API; sources refer to them by name."""

    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="+", verbose_name=_("project")
    )
    name = models.CharField(
        _("name"), max_length=64, validators=[RegexValidator(rf"^{SLUG.pattern}\Z")]
    )
    username = SecretTextField(_("user name"))
    password = SecretTextField(_("password"))
    token = SecretTextField(_("token"))
    # A JSON object of header names and values.
    headers = SecretTextField(_("headers"))
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    updated_at = models.DateTimeField(_("changed at"), auto_now=True)

    objects = CredentialQuerySet["Credential"].as_manager()

    class Meta:
        verbose_name = _("credentials")
        verbose_name_plural = _("credentials")
        ordering: ClassVar = ["project", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "name"], name="sources_credential_once")
        ]

    def __str__(self) -> str:
        return self.name


class SourceState(models.Model):
    """Progress and lease of a source.

    ``marker`` is the seed's last_start_offset: it moves only when an import is complete. Meanwhile
    ``checkpoint`` is where the import resumes. ``owner`` holds the lease until ``leased_until``,
    and each of its writes names its ``generation``.
    """

    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="+", verbose_name=_("project")
    )
    name = models.CharField(_("source"), max_length=64)
    activity = models.CharField(
        _("activity"), max_length=16, choices=SourceActivity.choices, default=SourceActivity.IDLE
    )
    marker = models.PositiveBigIntegerField(_("last start offset"), null=True, blank=True)
    # Number of records when the last complete import began, all of which were read.
    last_total = models.PositiveBigIntegerField(_("records at the last import"), null=True)
    # Message ids that the last complete import read from ``marker`` on: the overlap.
    overlap = models.JSONField(_("overlap"), default=list, blank=True)
    # Identity of the records that marker and checkpoint refer to (``Source.content``).
    content = models.CharField(max_length=32, blank=True, default="")
    # engine.progress.Checkpoint, or null.
    checkpoint = models.JSONField(_("checkpoint"), null=True, blank=True)
    # [{"from": 0, "to": 49, "why": "seed_rule"}]: records that were never read.
    gaps = models.JSONField(_("never read"), default=list, blank=True)
    generation = models.PositiveBigIntegerField(_("generation"), default=0)
    owner = models.CharField(_("collector"), max_length=200, blank=True, default="")
    leased_until = models.DateTimeField(_("leased until"), null=True, blank=True)
    # Stopped by a user: neither cron nor a restarted collector starts it.
    stopped_at = models.DateTimeField(_("stopped at"), null=True, blank=True)
    stopped_by = models.CharField(_("stopped by"), max_length=150, blank=True, default="")
    asked_at = models.DateTimeField(_("start requested at"), null=True, blank=True)
    asked_by = models.CharField(_("start requested by"), max_length=150, blank=True, default="")
    next_run_at = models.DateTimeField(_("next start"), null=True, blank=True)
    # Settings that next_run_at was computed from; a change makes it void.
    schedule = models.CharField(max_length=200, blank=True, default="")
    # What an active import waits for, such as an unreachable broker; "" if nothing.
    waiting_for = models.CharField(_("waiting for"), max_length=300, blank=True, default="")
    problem = models.CharField(_("problem"), max_length=500, blank=True, default="")
    updated_at = models.DateTimeField(_("changed at"), auto_now=True)

    objects = SourceStateQuerySet["SourceState"].as_manager()

    class Meta:
        verbose_name = _("source")
        verbose_name_plural = _("sources")
        ordering: ClassVar = ["project", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "name"], name="sources_one_state_a_source"),
            models.CheckConstraint(
                condition=Q(activity__in=SourceActivity.values), name="sources_activity_known"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["activity", "leased_until"], name="sources_to_claim"),
            models.Index(fields=["next_run_at"], name="sources_due"),
        ]

    def __str__(self) -> str:
        return self.name


class Harvest(models.Model):
    """One import from a source, until it ended.

    Each record read is counted once: read = published + filtered + re_read + refused. ``bad_dates``
    counts those among them whose date is unreadable or in the future.
    """

    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="+", verbose_name=_("project")
    )
    source = models.CharField(_("source"), max_length=64)
    state = models.CharField(
        _("state"), max_length=16, choices=HarvestState.choices, default=HarvestState.RUNNING
    )
    reason = models.CharField(
        _("reason"), max_length=16, choices=Reason.choices, blank=True, default=""
    )
    collector = models.CharField(_("collector"), max_length=200, blank=True, default="")
    asked_by = models.CharField(_("started by"), max_length=150, blank=True, default="")
    # True if it resumed an earlier import.
    resumed = models.BooleanField(_("resumed"), default=False)
    first = models.BooleanField(_("first import"), default=False)
    total = models.PositiveBigIntegerField(_("records in the source"), null=True, blank=True)
    start_offset = models.PositiveBigIntegerField(_("start offset"), null=True, blank=True)
    end_offset = models.PositiveBigIntegerField(_("end offset"), null=True, blank=True)
    next_offset = models.BigIntegerField(_("next offset"), null=True, blank=True)
    batches = models.PositiveBigIntegerField(_("batches"), default=0)
    read = models.PositiveBigIntegerField(_("read"), default=0)
    published = models.PositiveBigIntegerField(_("published"), default=0)
    filtered = models.PositiveBigIntegerField(_("too old"), default=0)
    re_read = models.PositiveBigIntegerField(_("already imported"), default=0)
    refused = models.PositiveBigIntegerField(_("rejected"), default=0)
    bad_dates = models.PositiveBigIntegerField(_("invalid dates"), default=0)
    checkpoint = models.JSONField(_("checkpoint"), null=True, blank=True)
    gaps = models.JSONField(_("skipped records"), default=list, blank=True)
    # Remarks as codes with parameters: [{"code": "shrunk", "from": 500, "to": 100}].
    notes = models.JSONField(_("notes"), default=list, blank=True)
    error = models.CharField(_("error"), max_length=500, blank=True, default="")
    config_version = models.PositiveIntegerField(_("settings version"), default=0)
    started_at = models.DateTimeField(_("started at"), default=timezone.now)
    moved_at = models.DateTimeField(_("last batch at"), null=True, blank=True)
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    objects = HarvestQuerySet["Harvest"].as_manager()

    class Meta:
        verbose_name = _("import")
        verbose_name_plural = _("imports")
        ordering: ClassVar = ["-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project", "source"],
                name="sources_one_harvest_at_once",
                condition=Q(state=HarvestState.RUNNING),
            ),
            models.CheckConstraint(
                condition=Q(read=F("published") + F("filtered") + F("re_read") + F("refused")),
                name="sources_books_balance",
            ),
            models.CheckConstraint(
                condition=Q(state__in=HarvestState.values), name="sources_harvest_state_known"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["project", "source", "-id"], name="sources_harvests_of_one")
        ]

    def __str__(self) -> str:
        return f"{self.source} #{self.pk}"

    @property
    def counts(self) -> dict[str, Any]:
        """Record counts, and whether they are consistent."""
        ends = self.published + self.filtered + self.re_read + self.refused
        return {
            "read": self.read,
            "published": self.published,
            "filtered": self.filtered,
            "re_read": self.re_read,
            "refused": self.refused,
            "balanced": self.read == ends,
        }


class RecordQueue(models.Model):
    """Record queue; it belongs to the first project whose source names it."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(_("queue"), max_length=200, unique=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)

    objects = RecordQueueQuerySet["RecordQueue"].as_manager()

    class Meta:
        verbose_name = _("record queue")
        verbose_name_plural = _("record queues")
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class PublishedSpan(models.Model):
    """Number of records published to a queue within one minute, and their expiry.

    A broker counts expired messages behind unexpired ones as waiting; the newest rows
    give the number of those that have not expired.
    """

    queue = models.ForeignKey(RecordQueue, on_delete=models.CASCADE, related_name="spans")
    minute = models.DateTimeField(_("published at"))
    # End of the minute in which they expire.
    expires_at = models.DateTimeField(_("expire at"))
    count = models.PositiveBigIntegerField(_("records"), default=0)

    class Meta:
        verbose_name = _("published records")
        verbose_name_plural = _("published records")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["queue", "minute", "expires_at"], name="sources_one_span_a_minute"
            )
        ]
        indexes: ClassVar = [models.Index(fields=["queue", "-minute"], name="sources_newest_spans")]

    def __str__(self) -> str:
        return f"{self.queue_id} {self.minute:%Y-%m-%d %H:%M}"


class HandedRecord(models.Model):
    """A record taken out of its queue and not yet acknowledged by its consumer.

    The consumer acknowledges with ``lease``. After the deadline, or when given back, the record
    goes to the next consumer, before those still in the queue.

    The broker may redeliver a record that has a row already, when a process died before its
    acknowledgement arrived. Until it is ``settled`` a row that is ``done`` stays, without its body,
    so that such a copy is recognised.
    """

    queue = models.ForeignKey(RecordQueue, on_delete=models.CASCADE, related_name="handed")
    message_id = models.CharField(_("message ID"), max_length=255)
    body = models.BinaryField(_("record"))
    # Of the body: a record changed at its source may keep its message id.
    digest = models.CharField(max_length=32, default="")
    expires_at = models.DateTimeField(_("expires at"), null=True)
    lease = models.CharField(_("lease"), max_length=32, blank=True, default="", db_index=True)
    holder = models.CharField(_("leased by"), max_length=150, blank=True, default="")
    deadline_at = models.DateTimeField(_("leased until"), default=timezone.now)
    times = models.PositiveIntegerField(_("deliveries"), default=1)
    settled = models.BooleanField(_("removed from the broker"), default=False)
    done = models.BooleanField(_("acknowledged"), default=False)

    class Meta:
        verbose_name = _("leased record")
        verbose_name_plural = _("leased records")
        ordering: ClassVar = ["pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["queue", "message_id", "digest"], name="sources_record_handed_once"
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["queue", "deadline_at"], name="sources_handed_due")
        ]

    def __str__(self) -> str:
        return self.message_id
