"""Log lines of runs and builds, until they are too old."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.joblogs.querysets import LogLineQuerySet, LogStreamQuerySet
from apps.projects.models import Project


class LogStream(models.Model):
    """One execution (``boot``) of a run or a build, as far as its lines have come."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    stream = models.CharField(_("stream"), max_length=30)
    boot = models.CharField(max_length=32)
    dropped = models.BigIntegerField(
        _("dropped"), default=0, help_text=_("lines that their sender had to give up")
    )
    last_seq = models.BigIntegerField(default=0)
    updated_at = models.DateTimeField(_("updated at"))

    objects = LogStreamQuerySet.as_manager()

    class Meta:
        verbose_name = _("log")
        verbose_name_plural = _("logs")
        constraints = [
            models.UniqueConstraint(fields=["stream", "boot"], name="joblogs_one_per_boot"),
        ]
        indexes = [models.Index(fields=["updated_at"], name="joblogs_oldest_first")]

    def __str__(self) -> str:
        return f"{self.stream} {self.boot}"


class LogLine(models.Model):
    """One line. A line that comes again is known by (stream, boot, seq).

    ``at`` is when it was written, as far as its sender can be believed; ids grow in the order
    in which lines were stored.
    """

    # Neither constraint nor index: lines come by the thousand, and go before their project does.
    project = models.ForeignKey(
        Project,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    stream = models.CharField(max_length=30)
    boot = models.CharField(max_length=32)
    seq = models.BigIntegerField()
    at = models.DateTimeField()
    level = models.CharField(max_length=8, blank=True)
    source = models.CharField(max_length=100, blank=True)
    text = models.TextField(blank=True)

    objects = LogLineQuerySet.as_manager()

    class Meta:
        verbose_name = _("log line")
        verbose_name_plural = _("log lines")
        constraints = [
            models.UniqueConstraint(fields=["stream", "boot", "seq"], name="joblogs_line_once"),
        ]
        indexes = [models.Index(fields=["stream", "id"], name="joblogs_of_stream")]

    def __str__(self) -> str:
        return f"{self.stream} {self.boot} {self.seq}"
