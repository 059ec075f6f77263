"""Retention policies and error groups.

The lines themselves are in the log store.
"""

from __future__ import annotations

from typing import ClassVar, Final

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from apps.access.models import User
from apps.joblogs.querysets import ErrorGroupQuerySet, LogPolicyQuerySet
from apps.joblogs.states import GroupState
from apps.jobs.models import Job, Run
from apps.projects.models import Image, Project

# With less, lines would be expired on arrival: senders may be a day behind.
FEWEST_DAYS: Final = 2
MOST_DAYS: Final = 3650
FEWEST_BYTES: Final = 1024**2
MOST_BYTES: Final = 1024**5
SAMPLE_CHARACTERS: Final = 1000
_DAYS: Final = [MinValueValidator(FEWEST_DAYS), MaxValueValidator(MOST_DAYS)]


class LogPolicy(models.Model):
    """Retention of a job's lines; without a job, of the project's other jobs.

    Empty fields are inherited from the project's policy, then from the settings.
    """

    project = models.ForeignKey(
        Project, verbose_name=_("project"), on_delete=models.CASCADE, related_name="+"
    )
    job = models.ForeignKey(
        Job,
        verbose_name=_("job"),
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text=_(
            "Leave empty for the project's builds and all jobs without a policy of their own."
        ),
    )
    days = models.PositiveIntegerField(
        _("days"),
        null=True,
        blank=True,
        validators=_DAYS,
        help_text=_(
            "Older lines are deleted. Leave empty for the default of the project or installation."
        ),
    )
    quiet_days = models.PositiveIntegerField(
        _("days for low levels"),
        null=True,
        blank=True,
        validators=_DAYS,
        help_text=_(
            "For DEBUG, INFO and lines without a level. Leave empty to keep them as long as "
            "other lines."
        ),
    )
    max_bytes = models.BigIntegerField(
        _("size limit"),
        null=True,
        blank=True,
        validators=[MinValueValidator(FEWEST_BYTES), MaxValueValidator(MOST_BYTES)],
        help_text=_("Bytes of text per job; beyond it the oldest lines are deleted."),
    )

    objects = LogPolicyQuerySet["LogPolicy"].as_manager()

    class Meta:
        verbose_name = _("log retention")
        verbose_name_plural = _("log retention")
        ordering: ClassVar = ["id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project"], condition=Q(job=None), name="joblogs_policy_once_a_project"
            ),
            models.UniqueConstraint(fields=["job"], name="joblogs_policy_once_a_job"),
            models.CheckConstraint(
                condition=Q(days=None) | Q(quiet_days=None) | Q(quiet_days__lte=F("days")),
                name="joblogs_policy_quiet_goes_first",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job or self.project}"

    def clean(self) -> None:
        """Reject contradictory or empty policies."""
        if self.job is not None and self.job.project_id != self.project_id:
            raise ValidationError({"job": _("This job belongs to another project.")})
        if self.days is None and self.quiet_days is None and self.max_bytes is None:
            raise ValidationError(
                _("Enter at least one of days, days for low levels and size limit.")
            )
        if self.days is not None and self.quiet_days is not None and self.quiet_days > self.days:
            text = _("Lines of low levels cannot be kept longer than other lines.")
            raise ValidationError({"quiet_days": text})


class ErrorGroup(models.Model):
    """Group of similar errors of one job (or, without a job, of the project's builds).

    ``first_run`` and ``first_image`` are the first occurrence. Occurrences are counted in the log
    store, for any period.
    """

    project = models.ForeignKey(
        Project, verbose_name=_("project"), on_delete=models.CASCADE, related_name="+"
    )
    job = models.ForeignKey(
        Job, verbose_name=_("job"), null=True, on_delete=models.CASCADE, related_name="+"
    )
    fingerprint = models.CharField(_("fingerprint"), max_length=16)
    level = models.CharField(_("level"), max_length=8)
    source = models.CharField(_("source"), max_length=100, blank=True)
    sample = models.CharField(_("error"), max_length=SAMPLE_CHARACTERS, blank=True)
    first_at = models.DateTimeField(_("first seen"))
    first_run = models.ForeignKey(
        Run, verbose_name=_("first run"), null=True, on_delete=models.SET_NULL, related_name="+"
    )
    first_image = models.ForeignKey(
        Image, verbose_name=_("first image"), null=True, on_delete=models.SET_NULL, related_name="+"
    )
    last_at = models.DateTimeField(_("last seen"))
    last_run = models.ForeignKey(
        Run, verbose_name=_("last run"), null=True, on_delete=models.SET_NULL, related_name="+"
    )
    # Creation of this row by the ingester's clock: lines may arrive late.
    noted_at = models.DateTimeField(_("recorded at"))
    state = models.CharField(
        _("state"), max_length=8, choices=GroupState.choices, default=GroupState.OPEN
    )
    ignored_by = models.ForeignKey(
        User,
        verbose_name=_("ignored by"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    ignored_at = models.DateTimeField(_("ignored at"), null=True, blank=True)

    objects = ErrorGroupQuerySet["ErrorGroup"].as_manager()

    class Meta:
        verbose_name = _("error group")
        verbose_name_plural = _("errors")
        ordering: ClassVar = ["-last_at", "-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "fingerprint"], name="joblogs_group_once_a_job"),
            models.UniqueConstraint(
                fields=["project", "fingerprint"],
                condition=Q(job=None),
                name="joblogs_group_once_for_builds",
            ),
            models.CheckConstraint(
                condition=Q(state__in=GroupState.values), name="joblogs_group_state_known"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["-last_at", "-id"], name="joblogs_group_newest"),
            models.Index(fields=["project", "-last_at"], name="joblogs_group_of_project"),
            models.Index(fields=["noted_at"], name="joblogs_group_noted"),
        ]

    def __str__(self) -> str:
        return self.sample[:80] or self.fingerprint

    @property
    def is_ignored(self) -> bool:
        return self.state == GroupState.IGNORED
