"""Models of webhook deliveries, builds of tags, and images."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from apps.projects.models.project import Project
from apps.projects.querysets import BuildQuerySet, DeliveryQuerySet, ImageQuerySet
from apps.projects.states import (
    BUILD_ACTIVE,
    BUILD_FINAL,
    BuildState,
    BuildStep,
    DeliverySource,
    DeliveryVerdict,
    ImageSource,
    SpiderKind,
)


class Build(models.Model):
    """Docker build of a tag. Its log is the stream ``build:<id>``."""

    project = models.ForeignKey(
        Project, verbose_name=_("project"), on_delete=models.PROTECT, related_name="builds"
    )
    tag = models.CharField(_("tag"), max_length=250)
    release = models.CharField(_("release"), max_length=100, blank=True)
    name = models.CharField(_("name"), max_length=100, blank=True)
    version = models.CharField(_("version"), max_length=100, blank=True)
    commit = models.CharField(_("commit"), max_length=64, blank=True)
    state = models.CharField(
        _("state"), max_length=10, choices=BuildState.choices, default=BuildState.QUEUED
    )
    step = models.CharField(
        _("step"), max_length=10, choices=BuildStep.choices, default=BuildStep.NONE, blank=True
    )
    reason = models.TextField(_("reason"), blank=True)
    warning = models.TextField(
        _("warning"),
        blank=True,
        default="",
        db_default="",
        help_text=_("Why the image does not describe its spiders."),
    )
    attempt = models.PositiveSmallIntegerField(_("attempt"), default=1)
    # The lost build that this build retries, or the build that a user repeated.
    repeats = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="repeated_by"
    )
    no_cache = models.BooleanField(
        _("without cache"),
        default=False,
        help_text=_("Cached layers of earlier builds are not used."),
    )
    # [{"step": "clone", "started_at": ISO 8601, "ended_at": ISO 8601 or null}, ...]
    steps = models.JSONField(_("steps"), default=list, blank=True)
    requested_by = models.CharField(_("requested by"), max_length=150, blank=True)
    worker = models.CharField(_("worker"), max_length=200, blank=True)
    # Fencing token, changed by each claim: a stale worker cannot end the build of another.
    boot = models.CharField(max_length=16, blank=True)
    beat_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(_("created at"))
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    ended_at = models.DateTimeField(_("ended at"), null=True, blank=True)

    objects = BuildQuerySet.as_manager()

    class Meta:
        verbose_name = _("build")
        verbose_name_plural = _("builds")
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "tag"],
                condition=Q(state__in=BUILD_ACTIVE),
                name="projects_build_one_active_per_tag",
            ),
            models.CheckConstraint(
                condition=Q(state__in=BuildState.values), name="projects_build_state_known"
            ),
            models.CheckConstraint(
                condition=Q(state__in=BUILD_FINAL, ended_at__isnull=False)
                | Q(state__in=BUILD_ACTIVE, ended_at__isnull=True),
                name="projects_build_ended_iff_final",
            ),
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True) | Q(ended_at__gte=F("created_at")),
                name="projects_build_ends_after_it_began",
            ),
        ]
        indexes = [
            models.Index(
                fields=["state", "id"],
                name="projects_build_active",
                condition=Q(state__in=BUILD_ACTIVE),
            ),
            models.Index(fields=["project", "tag", "-id"], name="projects_build_of_tag"),
        ]

    def __str__(self) -> str:
        return f"{self.tag} #{self.pk}"

    @property
    def stream(self) -> str:
        """Name of the build's log stream, such as ``build:3``."""
        return f"build:{self.pk}"

    @property
    def is_active(self) -> bool:
        """Whether the build has not ended."""
        return self.state in BUILD_ACTIVE


class Image(models.Model):
    """Image that jobs can use: of a successful build or of the registry."""

    project = models.ForeignKey(
        Project, verbose_name=_("project"), on_delete=models.PROTECT, related_name="images"
    )
    build = models.OneToOneField(
        Build, null=True, blank=True, on_delete=models.SET_NULL, related_name="image"
    )
    source = models.CharField(
        _("source"), max_length=10, choices=ImageSource.choices, default=ImageSource.BUILD
    )
    # Includes the host of a registry: the engine runs name:tag.
    name = models.CharField(_("name"), max_length=255)
    tag = models.CharField(_("tag"), max_length=128)
    digest = models.CharField(_("digest"), max_length=100)
    size_bytes = models.PositiveBigIntegerField(_("size"), default=0)
    labels = models.JSONField(_("labels"), default=dict, blank=True)
    commit = models.CharField(_("commit"), max_length=64, blank=True)
    created_at = models.DateTimeField(_("created at"))
    removed_at = models.DateTimeField(_("removed at"), null=True, blank=True)

    objects = ImageQuerySet.as_manager()

    class Meta:
        verbose_name = _("image")
        verbose_name_plural = _("images")
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name", "tag"], name="projects_image_once_per_project"
            ),
            models.CheckConstraint(condition=~Q(digest=""), name="projects_image_has_digest"),
        ]

    def __str__(self) -> str:
        return self.reference

    @property
    def reference(self) -> str:
        """Reference of the image, ``name:tag``."""
        return f"{self.name}:{self.tag}"


class ImageDescription(models.Model):
    """Spiders of an image with their arguments, as the build asked the image for them.

    Not a field of ``Image``: of a large project it has megabytes, which no list needs.
    """

    image = models.OneToOneField(Image, on_delete=models.CASCADE, related_name="description")
    kind = models.CharField(_("kind"), max_length=10, choices=SpiderKind.choices)
    # As in ``apps.projects.engine.builder.description``.
    spiders = models.JSONField(_("spiders"), default=list, blank=True)
    settings = models.JSONField(_("settings"), default=dict, blank=True)
    errors = models.JSONField(_("errors"), default=list, blank=True)
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        verbose_name = _("description of an image")
        verbose_name_plural = _("descriptions of images")
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=SpiderKind.values), name="projects_description_kind_known"
            )
        ]

    def __str__(self) -> str:
        return f"{self.image} ({self.kind})"

    @property
    def names(self) -> list[str]:
        """Names of the spiders, sorted."""
        return [str(spider["name"]) for spider in self.spiders]

    def spider(self, name: str) -> dict[str, Any] | None:
        """Return the spider of this name."""
        return next((spider for spider in self.spiders if spider["name"] == name), None)


class Delivery(models.Model):
    """Received webhook delivery, with its verdict and the reason."""

    project = models.ForeignKey(
        Project, verbose_name=_("project"), on_delete=models.PROTECT, related_name="deliveries"
    )
    source = models.CharField(
        _("source"), max_length=10, choices=DeliverySource.choices, blank=True
    )
    delivery_id = models.CharField(_("delivery id"), max_length=200)
    event = models.CharField(_("event"), max_length=100, blank=True)
    verdict = models.CharField(_("verdict"), max_length=10, choices=DeliveryVerdict.choices)
    # Stable code of ``reason``.
    code = models.CharField(max_length=50, blank=True)
    reason = models.TextField(_("reason"), blank=True)
    tag = models.CharField(_("tag"), max_length=250, blank=True)
    commit = models.CharField(_("commit"), max_length=64, blank=True)
    headers = models.JSONField(_("headers"), default=dict, blank=True)
    body = models.BinaryField(_("body"), default=bytes, blank=True)
    body_bytes = models.PositiveIntegerField(_("size"), default=0)
    remote_address = models.CharField(_("from"), max_length=64, blank=True)
    repeats = models.PositiveIntegerField(
        _("repeats"), default=0, help_text=_("Number of repetitions of the same delivery.")
    )
    replay_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="replays"
    )
    build = models.ForeignKey(
        Build, null=True, blank=True, on_delete=models.SET_NULL, related_name="deliveries"
    )
    image = models.ForeignKey(
        Image, null=True, blank=True, on_delete=models.SET_NULL, related_name="deliveries"
    )
    received_at = models.DateTimeField(_("received at"))

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")
        ordering = ["-id"]
        constraints = [
            # Not for refused deliveries: an unauthenticated sender must not occupy the ID of a real
            # delivery.
            models.UniqueConstraint(
                fields=["project", "source", "delivery_id"],
                condition=~Q(verdict=DeliveryVerdict.REFUSED),
                name="projects_delivery_once",
            ),
            models.CheckConstraint(
                condition=Q(verdict__in=DeliveryVerdict.values),
                name="projects_delivery_verdict_known",
            ),
        ]
        indexes = [models.Index(fields=["project", "-id"], name="projects_delivery_newest")]

    def __str__(self) -> str:
        return f"{self.source or '?'} {self.delivery_id}"
