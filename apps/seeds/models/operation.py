"""Operations on many seeds: progress and result."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.seeds.models.frontier import Frontier
from apps.seeds.querysets import OfFrontierQuerySet
from apps.seeds.states import OperationKind, OperationState


class Operation(models.Model):
    """Operation on many seeds. ``result``: its counters. A frontier has at most one active move."""

    frontier = models.ForeignKey(
        Frontier, verbose_name=_("URL queue"), on_delete=models.CASCADE, related_name="operations"
    )
    kind = models.CharField(_("what"), max_length=20, choices=OperationKind.choices)
    arguments = models.JSONField(_("arguments"), default=dict, blank=True)
    state = models.CharField(
        _("state"), max_length=10, choices=OperationState.choices, default=OperationState.WAITING
    )
    done = models.PositiveBigIntegerField(_("done"), default=0)
    total = models.PositiveBigIntegerField(_("of"), null=True, blank=True)
    result = models.JSONField(_("result"), default=dict, blank=True)
    error = models.CharField(_("error"), max_length=1000, blank=True)
    requested_by = models.CharField(_("requested by"), max_length=150, blank=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    beat_at = models.DateTimeField(_("last heartbeat"), null=True, blank=True)
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    objects = OfFrontierQuerySet["Operation"].as_manager()

    class Meta:
        verbose_name = _("operation on seeds")
        verbose_name_plural = _("operations on seeds")
        ordering: ClassVar = ["-created_at", "-pk"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["frontier"],
                condition=Q(state__in=["waiting", "running"], kind="move"),
                name="seeds_one_move_a_frontier",
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.get_state_display()}"
