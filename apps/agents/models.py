"""Download agents, their history, and their assignments."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.agents.hosts.models import HostLedger, HostRule, HostState
from apps.agents.querysets import AgentQuerySet, AllocationQuerySet
from apps.agents.states import AgentMode
from apps.jobs.models import DownloadPolicy
from apps.projects.models import Project
from apps.runtime.fields import SecretTextField
from yardkit.protocol import DownloaderType


def plain_types() -> list[str]:
    """Return the types of agents that do not report any (first version)."""
    return [DownloaderType.HTTP.value]


__all__ = ["Agent", "Allocation", "HostLedger", "HostRule", "HostState"]


class Agent(models.Model):
    """A download agent as it last described itself."""

    agent_id = models.CharField(_("agent id"), max_length=64, unique=True)
    name = models.CharField(_("name"), max_length=100, blank=True)
    boot = models.CharField(_("process instance"), max_length=32, blank=True)
    # Public key in hex, for sealing secrets. "" for an agent that sent none.
    seal_key = models.CharField(max_length=64, blank=True, default="", db_default="")
    labels = models.JSONField(_("labels"), default=dict, blank=True)
    version = models.CharField(_("version"), max_length=40, blank=True)
    mode = models.CharField(
        _("mode"),
        max_length=10,
        choices=AgentMode.choices,
        default=AgentMode.ENABLED,
        help_text=_("A draining agent gets no new runs; a disabled one gets no requests at all."),
    )
    switched_at = models.DateTimeField(_("mode changed at"), null=True, blank=True)
    types = models.JSONField(
        _("types"),
        default=plain_types,
        blank=True,
        help_text=_("Types of downloader that it can create."),
    )
    problems = models.JSONField(
        _("problems"), default=list, blank=True, help_text=_("Problems for the operator.")
    )
    processors = models.PositiveIntegerField(_("processors"), default=0)
    total_memory_bytes = models.BigIntegerField(_("memory"), default=0)
    free_memory_bytes = models.BigIntegerField(_("free memory"), default=0)
    cpu_percent = models.FloatField(_("CPU"), default=0.0)
    downloaders = models.PositiveIntegerField(_("downloaders"), default=0)
    qps = models.FloatField(
        _("QPS"), default=0.0, help_text=_("Downloads per second over the last 5 s.")
    )
    registered_at = models.DateTimeField(_("registered at"), null=True, blank=True)
    # Number of the last received heartbeat since ``boot``.
    heartbeats = models.PositiveBigIntegerField(default=0, db_default=0)
    heartbeat_at = models.DateTimeField(_("last heartbeat"), null=True, blank=True)
    sampled_at = models.DateTimeField(
        null=True, blank=True, help_text=_("Minute of the newest sample.")
    )

    objects = AgentQuerySet.as_manager()

    class Meta:
        verbose_name = _("agent")
        verbose_name_plural = _("agents")
        ordering = ["name", "agent_id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(mode__in=AgentMode.values), name="agents_agent_mode_known"
            )
        ]

    def __str__(self) -> str:
        return self.name or self.agent_id


class AgentSample(models.Model):
    """Figures of an agent in one minute, from its first heartbeat of that minute."""

    agent = models.ForeignKey(
        Agent, verbose_name=_("agent"), on_delete=models.CASCADE, related_name="samples"
    )
    at = models.DateTimeField(_("minute"))
    cpu_percent = models.FloatField(_("CPU"))
    free_memory_bytes = models.BigIntegerField(_("free memory"))
    downloaders = models.PositiveIntegerField(_("downloaders"))
    qps = models.FloatField(_("QPS"))

    class Meta:
        verbose_name = _("agent sample")
        verbose_name_plural = _("agent samples")
        ordering = ["agent", "at"]
        constraints = [
            # Every center stores the same heartbeats.
            models.UniqueConstraint(fields=["agent", "at"], name="agents_sample_one_a_minute")
        ]
        indexes = [models.Index(fields=["at"], name="agents_sample_at")]

    def __str__(self) -> str:
        return f"{self.agent_id} {self.at:%Y-%m-%d %H:%M}"


class Allocation(models.Model):
    """The agents that serve one owner (``run:7``), written before the owner is answered.

    ``settings``: of the downloaders (``DownloaderSettings``), without the cookies, which are secret
    and sealed in ``cookies``, as JSON.
    """

    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="allocations", verbose_name=_("project")
    )
    owner = models.CharField(_("owner"), max_length=100)
    reply_to = models.CharField(max_length=200)
    policy = models.CharField(_("policy"), max_length=10)
    asked = models.PositiveIntegerField(_("requested"), default=0)
    settings = models.JSONField(default=dict)
    cookies = SecretTextField(_("cookies"))
    warning = models.TextField(_("warning"), blank=True)
    agents = models.ManyToManyField(Agent, verbose_name=_("agents"), related_name="allocations")
    created_at = models.DateTimeField(_("created at"))
    released_at = models.DateTimeField(_("released at"), null=True, blank=True)

    objects = AllocationQuerySet.as_manager()

    class Meta:
        verbose_name = _("agent assignment")
        verbose_name_plural = _("agent assignments")
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["owner"],
                condition=Q(released_at__isnull=True),
                name="agents_allocation_one_open_per_owner",
            )
        ]

    def __str__(self) -> str:
        return self.owner

    @property
    def policy_label(self) -> str:
        known = self.policy in DownloadPolicy.values
        return str(DownloadPolicy(self.policy).label) if known else self.policy

    @property
    def downloader_type(self) -> str:
        """The type of downloader of its agents."""
        return str(self.settings.get("type", DownloaderType.HTTP))
