"""Models of jobs and of the links between jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec
from django.core.exceptions import ValidationError
from django.core.validators import (
    MaxLengthValidator,
    MaxValueValidator,
    MinValueValidator,
    RegexValidator,
)
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from apps.access.models import Restorable
from apps.jobs.arguments import check_arguments
from apps.jobs.models.execution import ExecutionOptions
from apps.jobs.models.execution_rules import (
    MAX_NOTES_CHARACTERS,
    execution_contradictions,
    validate_finite,
    validate_line,
    validate_tags,
)
from apps.jobs.models.options import DownloaderKind, DownloadOptions, DownloadPolicy, contradictions
from apps.jobs.models.schedule import ScheduleOptions
from apps.jobs.querysets import JobLinkQuerySet, JobManager, JobQuerySet
from apps.jobs.states import LinkCondition, MisfirePolicy, OverlapPolicy
from apps.projects.models import Project
from yardkit.protocol import DownloaderSettings

MAX_SPEED: Final = 1_000_000.0
MAX_CONCURRENCY: Final = 10_000
# Concurrent downloads of one downloader if the job leaves the window to the spider.
USUAL_CONCURRENCY: Final = 100
# Spider settings that a job may override, with the job's field names.
SPIDER_SETTINGS: Final = {
    "concurrency": "concurrency",
    "speed": "speed",
    "request_timeout_seconds": "request_timeout_seconds",
    "request_timeout_retries": "timeout_retries",
    "download_retries": "download_retries",
    "no_answer_seconds": "no_answer_seconds",
    "publish_retries": "publish_retries",
}


class Job(Restorable, ScheduleOptions, ExecutionOptions, DownloadOptions):
    """Job: what to run, with which arguments, when, and how pages are downloaded."""

    project = models.ForeignKey(
        Project, verbose_name=_("project"), on_delete=models.PROTECT, related_name="jobs"
    )
    name = models.CharField(_("name"), max_length=100, validators=[validate_line])
    spider = models.CharField(
        _("spider"),
        max_length=200,
        blank=True,
        help_text=_(
            "module:Class, importable in the image or from SPIDERS_DIR; or the name of a "
            "Scrapy spider."
        ),
        validators=[
            RegexValidator(
                # The second is the name of a Scrapy spider.
                r"^([A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*|\w([^:\x00-\x1f\x7f]*[^:\s])?)\Z",
                _(
                    "Write it as module:Class, for example yardspider.spiders:SiteSpider, or as "
                    "the name of a Scrapy spider."
                ),
            )
        ],
    )
    arguments = models.JSONField(
        _("arguments"),
        default=dict,
        blank=True,
        validators=[check_arguments],
        help_text=_("A JSON object that the spider receives."),
    )
    speed = models.FloatField(
        _("speed"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0.0), MaxValueValidator(MAX_SPEED), validate_finite],
        help_text=_(
            "Requests per second; 0 is unlimited, 0.1 is one every ten seconds. "
            "Leave empty to use the spider's own setting (1 unless it sets one)."
        ),
    )
    concurrency = models.PositiveIntegerField(
        _("window"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_CONCURRENCY)],
        help_text=_(
            "Requests that may be unanswered at once. "
            "Leave empty to use the spider's own setting (100 unless it sets one)."
        ),
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    tags = models.JSONField(
        _("tags"),
        default=list,
        blank=True,
        validators=[validate_tags],
        help_text=_("Words to find and group jobs by."),
    )
    notes = models.TextField(
        _("notes"), blank=True, validators=[MaxLengthValidator(MAX_NOTES_CHARACTERS)]
    )
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    objects: ClassVar = JobManager["Job"]()
    all_objects = JobQuerySet["Job"].as_manager()

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"],
                # The name of a deleted job can be used by another job.
                condition=Q(deleted_at=None),
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
            models.CheckConstraint(
                condition=Q(overlap__in=OverlapPolicy.values), name="jobs_job_overlap_known"
            ),
            models.CheckConstraint(
                condition=Q(misfire__in=MisfirePolicy.values), name="jobs_job_misfire_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Check fields that depend on each other. Raises ``ValidationError`` by field."""
        super().clean()
        if errors := job_contradictions(self.judged()):
            raise ValidationError(errors)

    @property
    def is_gone(self) -> bool:
        """Whether the job or its project is deleted, so that no run can start."""
        return self.deleted_at is not None or self.project.deleted_at is not None

    def judged(self) -> dict[str, Any]:
        """Return the values that ``job_contradictions`` checks."""
        related = {
            "image": self.image,
            "frontier": self.frontier,
            "project": self.project if self.project_id is not None else None,
            "secret_names": self.secret_names,
        }
        return {**vars(self), **related}

    def downloader_settings(self) -> DownloaderSettings:
        """Return the settings of the agents for a run; the request center adds the cookies."""
        return msgspec.structs.replace(
            self.download_options(),
            concurrency=self.concurrency or USUAL_CONCURRENCY,
            allowed_networks=list(self.project.allowed_networks),
        )

    def spider_settings(self) -> dict[str, Any]:
        """Return the spider settings that this job overrides."""
        settings: dict[str, Any] = {}
        for name, ours in SPIDER_SETTINGS.items():
            value = getattr(self, ours)
            if value is not None:
                settings[name] = value
        if self.fed_from_outside:
            settings["fed_from_outside"] = True
        return settings


def job_contradictions(values: Mapping[str, Any]) -> dict[str, str]:
    """Return errors of fields that depend on each other, by the field to change."""
    return {**contradictions(values), **execution_contradictions(values)}


class DeletedJob(Job):
    """Proxy of deleted jobs in existing projects; restoring a project also restores its jobs."""

    objects = JobQuerySet["DeletedJob"].as_manager()  # type: ignore[assignment, misc]

    class Meta:
        proxy = True
        verbose_name = _("deleted job")
        verbose_name_plural = _("deleted jobs")
        ordering = ["-deleted_at", "-id"]


class JobLink(models.Model):
    """Link between jobs: when a run of ``after`` ends and ``condition`` holds, ``job`` is run."""

    job = models.ForeignKey(
        Job, verbose_name=_("job"), on_delete=models.CASCADE, related_name="links"
    )
    after = models.ForeignKey(
        Job,
        verbose_name=pgettext_lazy("job link", "after"),
        on_delete=models.CASCADE,
        related_name="followers",
    )
    condition = models.CharField(
        _("condition"),
        max_length=10,
        choices=LinkCondition.choices,
        default=LinkCondition.SUCCEEDED,
    )
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    objects = JobLinkQuerySet.as_manager()

    class Meta:
        verbose_name = _("job link")
        verbose_name_plural = _("job links")
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["job", "after"], name="jobs_link_once"),
            models.CheckConstraint(
                condition=~Q(job=models.F("after")), name="jobs_link_not_to_itself"
            ),
            models.CheckConstraint(
                condition=Q(condition__in=LinkCondition.values), name="jobs_link_condition_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.after} → {self.job}"
