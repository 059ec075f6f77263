"""Trials of new images on the recorded pages of an earlier run."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.jobs.models.job import Job
from apps.jobs.models.run import Run
from apps.jobs.querysets import ImageTrialQuerySet
from apps.jobs.states import TrialState
from apps.projects.models import Image


class ImageTrial(models.Model):
    """Run of a job with another image on recorded pages, compared with the run they are of.

    ``result``: numbers of both runs as ``[recorded, trial]``, the differences of their items, and
    the limits that were exceeded: see ``apps.datasets.engine.trials.TrialResult``.
    """

    job = models.ForeignKey(
        Job, verbose_name=_("job"), on_delete=models.CASCADE, related_name="trials"
    )
    image = models.ForeignKey(
        Image, verbose_name=_("image"), on_delete=models.CASCADE, related_name="+"
    )
    # A tag may move to another image later.
    image_digest = models.CharField(_("digest"), max_length=100)
    recorded_run = models.ForeignKey(
        Run, verbose_name=_("recorded run"), null=True, on_delete=models.SET_NULL, related_name="+"
    )
    run = models.OneToOneField(
        Run, verbose_name=_("run"), null=True, on_delete=models.SET_NULL, related_name="trial"
    )
    state = models.CharField(
        _("state"), max_length=8, choices=TrialState.choices, default=TrialState.RUNNING
    )
    reason = models.TextField(_("reason"), blank=True, default="")
    result = models.JSONField(_("result"), default=dict)
    created_at = models.DateTimeField(_("created at"))
    created_by = models.CharField(_("started by"), max_length=150, blank=True, default="")
    ended_at = models.DateTimeField(_("ended at"), null=True)
    activated_at = models.DateTimeField(_("activated at"), null=True)
    activated_by = models.CharField(_("activated by"), max_length=150, blank=True, default="")
    note = models.TextField(_("note"), blank=True, default="")

    objects = ImageTrialQuerySet["ImageTrial"].as_manager()

    class Meta:
        verbose_name = _("image trial")
        verbose_name_plural = _("image trials")
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(state__in=TrialState.values), name="jobs_trial_state_known"
            )
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["id"], name="jobs_trial_running", condition=Q(state=TrialState.RUNNING)
            )
        ]

    def __str__(self) -> str:
        return f"{self.image} #{self.pk}"
