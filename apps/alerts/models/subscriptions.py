"""Subscriptions of channels to the ends of runs."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.access.models import User
from apps.alerts.models.channels import Channel
from apps.alerts.querysets import RunSubscriptionQuerySet
from apps.jobs.models import Job
from apps.projects.models import Project


class RunSubscription(models.Model):
    """Subscription of a channel to runs of one job, of one project, or of all projects.

    Failures are reported by the incidents of alert rules: further failures are counted there, and
    the recovery is reported. With ``every_end`` each end of a run is a notification of its own.
    """

    channel = models.ForeignKey(
        Channel, verbose_name=_("channel"), on_delete=models.CASCADE, related_name="subscriptions"
    )
    # None: every project.
    project = models.ForeignKey(
        Project,
        verbose_name=_("project"),
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
    )
    # None: every job of the project.
    job = models.ForeignKey(
        Job,
        verbose_name=_("job"),
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
    )
    every_end = models.BooleanField(_("each end of a run"), default=False)
    created_at = models.DateTimeField(_("created at"), default=timezone.now)
    created_by = models.ForeignKey(
        User, verbose_name=_("by"), null=True, on_delete=models.SET_NULL, related_name="+"
    )

    objects = RunSubscriptionQuerySet["RunSubscription"].as_manager()

    class Meta:
        verbose_name = _("subscription to runs")
        verbose_name_plural = _("subscriptions to runs")
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["channel", "job"], name="alerts_subscribed_job_once"),
            models.UniqueConstraint(
                fields=["channel", "project"],
                condition=Q(job=None),
                name="alerts_subscribed_project_once",
            ),
            models.UniqueConstraint(
                fields=["channel"],
                condition=Q(job=None, project=None),
                name="alerts_subscribed_all_once",
            ),
            models.CheckConstraint(
                condition=Q(job=None) | Q(project__isnull=False),
                name="alerts_subscribed_job_of_project",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.channel} · {self.job or self.project or '*'}"
