"""Model of the hosts of runs."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.jobs.engine.placement import ONLINE_SECONDS
from apps.jobs.states import HostKind, HostMode


class Host(models.Model):
    """Host of runs: a machine with a runner, as last reported by it.

    ``Run.host`` contains the host's name, not a foreign key: a run may outlive the host's row.
    """

    name = models.CharField(_("name"), max_length=200, unique=True)
    kind = models.CharField(_("kind"), max_length=10, choices=HostKind.choices)
    mode = models.CharField(
        _("mode"), max_length=10, choices=HostMode.choices, default=HostMode.ENABLED
    )
    capacity = models.PositiveIntegerField(_("capacity"), default=0)
    labels = models.JSONField(_("labels"), default=dict, blank=True)
    # Percent of all cores together, averaged over the last heartbeats.
    cpu_percent = models.FloatField(_("CPU"), default=0.0)
    cores = models.PositiveIntegerField(_("cores"), default=1)
    memory_free_bytes = models.PositiveBigIntegerField(_("free memory"), default=0)
    memory_total_bytes = models.PositiveBigIntegerField(_("memory"), default=0)
    running = models.PositiveIntegerField(_("running"), default=0)
    system = models.CharField(_("system"), max_length=200, blank=True)
    version = models.CharField(_("version"), max_length=50, blank=True)
    engine = models.CharField(_("container engine"), max_length=100, blank=True)
    problem = models.TextField(_("problem"), blank=True)
    boot = models.CharField(max_length=16, blank=True)
    registered_at = models.DateTimeField(_("registered at"))
    beat_at = models.DateTimeField(_("last heartbeat at"), db_index=True)

    class Meta:
        verbose_name = _("host")
        verbose_name_plural = _("hosts")
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(mode__in=HostMode.values), name="jobs_host_mode_known"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=HostKind.values), name="jobs_host_kind_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def is_online(self, now: datetime) -> bool:
        """Return whether the runner reported within the last minute."""
        return (now - self.beat_at).total_seconds() < ONLINE_SECONDS
