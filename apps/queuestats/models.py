"""Counters of runs and centers, as they last reported them.

Every report carries absolute counts since its sender's boot, so a repeated or late one changes
nothing: only a higher ``seq`` is written. The sums over the boots are the books.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.projects.models import Project
from apps.queuestats.querysets import FailedRequestQuerySet


class RunCounter(models.Model):
    """One execution (``boot``) of a run as it last described itself (seed S1.17, S1.51).

    What each figure counts, and the two equations between them: ``RunCounters`` in the protocol.
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
    out = models.BigIntegerField(_("out"), default=0)
    held = models.BigIntegerField(_("held back"), default=0)
    duplicates = models.BigIntegerField(_("duplicates"), default=0)
    pages = models.BigIntegerField(_("pages"), default=0)
    items = models.BigIntegerField(_("items"), default=0)
    bytes_received = models.BigIntegerField(_("bytes"), default=0)
    queued = models.BigIntegerField(_("queued"), default=0)
    in_flight = models.BigIntegerField(_("in flight"), default=0)
    agents = models.JSONField(_("answers by agent"), default=dict)
    final = models.BooleanField(_("final"), default=False)
    updated_at = models.DateTimeField(_("updated at"))

    class Meta:
        verbose_name = _("run counter")
        verbose_name_plural = _("run counters")
        constraints = [
            models.UniqueConstraint(fields=["owner", "boot"], name="queuestats_one_per_boot"),
        ]
        indexes = [
            models.Index(
                fields=["updated_at"], name="queuestats_still_open", condition=Q(final=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.owner} {self.boot}"


class CenterCounter(models.Model):
    """What one center did for one run since the center's boot."""

    owner = models.CharField(_("owner"), max_length=100)
    boot = models.CharField(max_length=32)
    seq = models.BigIntegerField(default=0)
    received = models.BigIntegerField(_("received"), default=0)
    dispatched = models.BigIntegerField(_("dispatched"), default=0)
    skipped = models.BigIntegerField(_("skipped"), default=0)
    expired = models.BigIntegerField(_("expired"), default=0)
    refused = models.BigIntegerField(_("refused"), default=0)
    held = models.BigIntegerField(_("held back"), default=0)
    updated_at = models.DateTimeField(_("updated at"))

    class Meta:
        verbose_name = _("center counter")
        verbose_name_plural = _("center counters")
        constraints = [
            models.UniqueConstraint(fields=["owner", "boot"], name="queuestats_one_per_center"),
        ]

    def __str__(self) -> str:
        return f"{self.owner} {self.boot}"


class FailedRequest(models.Model):
    """A request that failed for good, and why."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
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
            models.UniqueConstraint(
                fields=["owner", "boot", "seq"], name="queuestats_failure_once"
            ),
        ]

    def __str__(self) -> str:
        return self.url
