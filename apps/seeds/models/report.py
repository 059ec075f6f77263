"""Latest report of each segment, for pages that must not wait for the service."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.seeds.models.frontier import Frontier
from apps.seeds.querysets import OfFrontierQuerySet


class SegmentReport(models.Model):
    """Counts of a segment at ``reported_at`` (see ``stores.base.SegmentCounts``)."""

    frontier = models.ForeignKey(
        Frontier, verbose_name=_("URL queue"), on_delete=models.CASCADE, related_name="reports"
    )
    segment = models.BigIntegerField(
        _("segment"), help_text=_("Beginning in ms since 1970; 0 is the default segment.")
    )
    added = models.PositiveBigIntegerField(_("added"), default=0)
    duplicates = models.PositiveBigIntegerField(_("duplicates"), default=0)
    pending = models.PositiveBigIntegerField(_("pending"), default=0)
    leased = models.PositiveBigIntegerField(_("leased"), default=0)
    succeeded = models.PositiveBigIntegerField(_("succeeded"), default=0)
    failed = models.PositiveBigIntegerField(_("failed"), default=0)
    ignored = models.PositiveBigIntegerField(_("ignored"), default=0)
    forgotten = models.PositiveBigIntegerField(_("forgotten"), default=0)
    retried = models.PositiveBigIntegerField(_("retried"), default=0)
    expired = models.PositiveBigIntegerField(_("expired"), default=0)
    late = models.PositiveBigIntegerField(_("late"), default=0)
    size_bytes = models.PositiveBigIntegerField(_("size"), default=0)
    filter_expected = models.PositiveBigIntegerField(_("filter capacity"), null=True)
    filter_bytes = models.PositiveBigIntegerField(_("filter size"), null=True)
    filter_fill = models.FloatField(_("filter fill ratio"), null=True)
    filter_rate = models.FloatField(_("estimated false-positive rate"), null=True)
    reported_at = models.DateTimeField(_("reported at"))

    objects = OfFrontierQuerySet["SegmentReport"].as_manager()

    class Meta:
        verbose_name = _("segment")
        verbose_name_plural = _("segments")
        ordering: ClassVar = ["frontier", "segment"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["frontier", "segment"], name="seeds_one_report_a_segment"
            )
        ]

    def __str__(self) -> str:
        return f"{self.frontier} {self.segment}"

    @property
    def balances(self) -> bool:
        """Return whether the counts by state add up to the seeds added."""
        ended = self.succeeded + self.failed + self.ignored + self.forgotten
        return self.added == self.pending + self.leased + ended
