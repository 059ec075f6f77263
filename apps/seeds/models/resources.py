"""Pools of resources with one holder at a time: accounts, tokens, proxies."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.projects.models import Project
from apps.runtime.fields import SecretTextField
from apps.seeds.engine.scores import NEVER_USED, ScoringRules
from apps.seeds.models.frontier import validate_name
from apps.seeds.querysets import ResourcePoolQuerySet, ResourceQuerySet
from apps.seeds.states import ResourceState

_DAY = 24 * 3600


class ResourcePool(models.Model):
    """Pool of resources, with its lease and scoring settings."""

    project = models.ForeignKey(
        Project, verbose_name=_("project"), on_delete=models.PROTECT, related_name="resource_pools"
    )
    name = models.CharField(_("name"), max_length=100, validators=[validate_name])
    description = models.CharField(_("description"), max_length=500, blank=True)
    rotation_percent = models.PositiveSmallIntegerField(
        _("rotation zone"),
        default=70,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text=_("Percentage of free resources with the best scores that are used in turn."),
    )
    lease_seconds = models.PositiveIntegerField(
        _("lease"),
        default=4 * 3600,
        validators=[MinValueValidator(1), MaxValueValidator(7 * _DAY)],
        help_text=_("Seconds after which an unreturned resource is released."),
    )
    rest_seconds = models.PositiveIntegerField(
        _("rest after use"), default=0, validators=[MaxValueValidator(7 * _DAY)]
    )
    cool_down_seconds = models.PositiveIntegerField(
        _("cool-down after a failure"),
        default=60,
        validators=[MaxValueValidator(7 * _DAY)],
        help_text=_("Seconds; doubled by each consecutive failure, up to a day."),
    )
    ban_after = models.PositiveSmallIntegerField(
        _("ban after"), default=0, help_text=_("Number of consecutive failures; 0 never bans.")
    )
    is_enabled = models.BooleanField(_("enabled"), default=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    objects = ResourcePoolQuerySet["ResourcePool"].as_manager()

    class Meta:
        verbose_name = _("resource pool")
        verbose_name_plural = _("resource pools")
        ordering: ClassVar = ["project", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "name"], name="seeds_pool_one_a_name")
        ]

    def __str__(self) -> str:
        return self.name

    def judgement(self) -> ScoringRules:
        """Return the scoring rules of the pool."""
        return ScoringRules(self.rest_seconds, self.cool_down_seconds, self.ban_after)


class Resource(models.Model):
    """One account, token or proxy; ``secret`` is encrypted and returned to the lease holder."""

    pool = models.ForeignKey(
        ResourcePool, verbose_name=_("pool"), on_delete=models.CASCADE, related_name="resources"
    )
    name = models.CharField(_("name"), max_length=200)
    secret = SecretTextField(
        _("secret"), help_text=_("JSON object of texts, such as user name and password.")
    )
    state = models.CharField(
        _("state"), max_length=10, choices=ResourceState.choices, default=ResourceState.FREE
    )
    score = models.FloatField(
        _("score"), default=1.0, help_text=_("Moving average of about the last ten uses, 0 to 1.")
    )
    # Sort key, smallest first: see ``engine.scores.rank``. Indexed, to find the rotation zone.
    rank = models.FloatField(_("rank"), default=NEVER_USED, editable=False)
    lease = models.PositiveBigIntegerField(_("lease number"), default=0)
    # Idempotency key of the lease call: a repeated call gets the same resource.
    lease_key = models.CharField(_("idempotency key"), max_length=64, blank=True, editable=False)
    leased_by = models.CharField(_("leased by"), max_length=200, blank=True)
    leased_until = models.DateTimeField(_("leased until"), null=True, blank=True)
    available_at = models.DateTimeField(_("available at"), default=timezone.now)
    last_used_at = models.DateTimeField(_("last used at"), null=True, blank=True)
    used_count = models.PositiveBigIntegerField(_("uses"), default=0)
    succeeded_count = models.PositiveBigIntegerField(_("successes"), default=0)
    failed_count = models.PositiveBigIntegerField(_("failures"), default=0)
    expired_count = models.PositiveBigIntegerField(_("expired leases"), default=0)
    late_count = models.PositiveBigIntegerField(
        _("late returns"),
        default=0,
        help_text=_("Returns after the lease had ended; they have no effect."),
    )
    failures_in_a_row = models.PositiveIntegerField(_("consecutive failures"), default=0)
    banned_at = models.DateTimeField(_("banned at"), null=True, blank=True)
    reason = models.CharField(_("reason"), max_length=500, blank=True)

    objects = ResourceQuerySet["Resource"].as_manager()

    class Meta:
        verbose_name = _("resource")
        verbose_name_plural = _("resources")
        ordering: ClassVar = ["pool", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["pool", "name"], name="seeds_resource_one_a_name"),
            models.UniqueConstraint(
                fields=["pool", "lease_key"],
                condition=~Q(lease_key=""),
                name="seeds_resource_one_a_call",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["pool", "state", "available_at"], name="seeds_resource_free"),
            models.Index(fields=["pool", "state", "rank"], name="seeds_resource_rank"),
            models.Index(
                fields=["leased_by"], condition=Q(state="leased"), name="seeds_resource_owner"
            ),
        ]

    def __str__(self) -> str:
        return self.name
