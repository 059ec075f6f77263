"""What to run."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from apps.jobs.models.options import (
    DownloaderKind,
    DownloadOptions,
    DownloadPolicy,
    contradictions,
)
from apps.jobs.querysets import JobQuerySet
from apps.projects.models import Project
from yardkit.protocol import DownloaderSettings

# The spider's names for what a job may leave to the spider.
SPIDER_SETTINGS: Final = {
    "request_timeout_seconds": "request_timeout_seconds",
    "request_timeout_retries": "timeout_retries",
    "download_retries": "download_retries",
}


class Job(DownloadOptions):
    """What to run, with which arguments, and how its pages are fetched."""

    project = models.ForeignKey(
        Project, verbose_name=_("project"), on_delete=models.PROTECT, related_name="jobs"
    )
    name = models.CharField(_("name"), max_length=100)
    spider = models.CharField(
        _("spider"),
        max_length=200,
        help_text=_("module:Class, importable on the runner's host"),
        validators=[
            RegexValidator(
                r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$",
                _("Write it as module:Class, for example yardspider.site:SiteSpider."),
            )
        ],
    )
    arguments = models.JSONField(
        _("arguments"), default=dict, blank=True, help_text=_("a JSON object the spider receives")
    )
    speed = models.FloatField(
        _("speed"),
        default=1.0,
        validators=[MinValueValidator(0.0)],
        help_text=_("requests a second; 0 is unlimited, 0.1 is one every ten seconds"),
    )
    concurrency = models.PositiveIntegerField(
        _("window"),
        default=100,
        validators=[MinValueValidator(1), MaxValueValidator(10_000)],
        help_text=_("how many requests may be without an answer at once"),
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    notes = models.TextField(_("notes"), blank=True)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    objects = JobQuerySet.as_manager()

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"],
                name="jobs_job_name_once_per_project",
                violation_error_message=_("A job of this name already exists in the project."),
            ),
            models.CheckConstraint(
                condition=Q(policy__in=DownloadPolicy.values), name="jobs_job_policy_known"
            ),
            models.CheckConstraint(
                condition=Q(downloader__in=DownloaderKind.values), name="jobs_job_downloader_known"
            ),
            models.CheckConstraint(condition=Q(speed__gte=0), name="jobs_job_speed_positive"),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """What two fields say together. Raises ``ValidationError`` by field."""
        super().clean()
        if errors := contradictions(vars(self)):
            raise ValidationError(errors)

    def downloader_settings(self) -> DownloaderSettings:
        """What the agents are told to do for a run of this job."""
        return msgspec.structs.replace(
            self.download_options(),
            concurrency=self.concurrency,
            allowed_networks=list(self.project.allowed_networks),
        )

    def spider_settings(self) -> dict[str, Any]:
        """Changes to the spider's own settings; what the job leaves open is not among them."""
        settings: dict[str, Any] = {"concurrency": self.concurrency, "speed": self.speed}
        for name, ours in SPIDER_SETTINGS.items():
            value = getattr(self, ours)
            if value is not None:
                settings[name] = value
        if self.fed_from_outside:
            settings["fed_from_outside"] = True
        return settings
