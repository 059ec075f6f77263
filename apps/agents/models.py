"""Download agents and who uses them."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.agents.hosts.models import HostLedger, HostRule, HostState
from apps.agents.querysets import AgentQuerySet, AllocationQuerySet
from apps.projects.models import Project

__all__ = ["Agent", "Allocation", "HostLedger", "HostRule", "HostState"]


class Agent(models.Model):
    """A downloader process on a server, as it last described itself (seed S1.20, S1.21)."""

    agent_id = models.CharField(_("agent id"), max_length=64, unique=True)
    name = models.CharField(_("name"), max_length=100, blank=True)
    boot = models.CharField(max_length=32, blank=True)
    labels = models.JSONField(_("labels"), default=dict, blank=True)
    version = models.CharField(_("version"), max_length=40, blank=True)
    enabled = models.BooleanField(
        _("enabled"), default=True, help_text=_("a disabled agent gets no new runs")
    )
    processors = models.PositiveIntegerField(_("processors"), default=0)
    total_memory_bytes = models.BigIntegerField(_("memory"), default=0)
    free_memory_bytes = models.BigIntegerField(_("free memory"), default=0)
    cpu_percent = models.FloatField(_("CPU"), default=0.0)
    downloaders = models.PositiveIntegerField(_("downloaders"), default=0)
    qps = models.FloatField(_("QPS"), default=0.0, help_text=_("downloads a second, last 5 s"))
    registered_at = models.DateTimeField(_("registered at"), null=True, blank=True)
    heartbeat_at = models.DateTimeField(_("last heartbeat"), null=True, blank=True)

    objects = AgentQuerySet.as_manager()

    class Meta:
        verbose_name = _("agent")
        verbose_name_plural = _("agents")
        ordering = ["name", "agent_id"]

    def __str__(self) -> str:
        return self.name or self.agent_id


class Allocation(models.Model):
    """The agents that serve one owner (``run:7``), written before the owner is answered."""

    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="allocations")
    owner = models.CharField(_("owner"), max_length=100)
    reply_to = models.CharField(max_length=200)
    policy = models.CharField(_("policy"), max_length=10)
    asked = models.PositiveIntegerField(_("asked for"), default=0)
    settings = models.JSONField(default=dict)
    warning = models.TextField(_("warning"), blank=True)
    agents = models.ManyToManyField(Agent, verbose_name=_("agents"), related_name="allocations")
    created_at = models.DateTimeField(_("created at"))
    released_at = models.DateTimeField(_("released at"), null=True, blank=True)

    objects = AllocationQuerySet.as_manager()

    class Meta:
        verbose_name = _("allocation")
        verbose_name_plural = _("allocations")
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["owner"],
                condition=Q(released_at__isnull=True),
                name="agents_allocation_one_open_per_owner",
            ),
        ]

    def __str__(self) -> str:
        return self.owner
