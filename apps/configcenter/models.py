"""Configurations, versions, activations, and reports of the processes that run them."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.access.models import User
from apps.configcenter.engine.plain import Data
from apps.configcenter.errors import ImmutableHistory
from apps.configcenter.querysets import AppendOnlyQuerySet, ConfigurationQuerySet, RunningQuerySet
from apps.runtime.models import Daemon

MAX_NOTE = 2_000


class Configuration(models.Model):
    """Configuration of one kind in one project; writers lock its row.

    Without a project it is the platform's, for kinds with ``Kind.platform``; only users with access
    to everything see it.
    """

    kind = models.CharField(_("kind"), max_length=32)
    project = models.ForeignKey(
        "projects.Project",
        verbose_name=_("project"),
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text=_("Leave empty for the configuration of the platform."),
    )
    newest = models.PositiveIntegerField(_("newest version"), default=0)
    active = models.ForeignKey(
        "ConfigVersion",
        verbose_name=_("active version"),
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
    )
    changed_at = models.DateTimeField(_("changed at"), default=timezone.now)

    objects = ConfigurationQuerySet["Configuration"].as_manager()

    class Meta:
        verbose_name = _("configuration")
        verbose_name_plural = _("configurations")
        ordering: ClassVar = ["kind", "project_id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["kind", "project"], name="configcenter_one_a_project"),
            models.UniqueConstraint(
                fields=["kind"], condition=Q(project=None), name="configcenter_one_of_platform"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} · {self.owner_label}"

    @property
    def home_id(self) -> int:
        """Id of the project. Raises ``ValueError`` for a configuration of the platform."""
        if self.project_id is None:
            raise ValueError(f"{self} belongs to no project")
        return self.project_id

    @property
    def home_slug(self) -> str:
        """Slug of the project. Raises ``ValueError`` for a configuration of the platform."""
        if self.project is None:
            raise ValueError(f"{self} belongs to no project")
        return self.project.slug

    @property
    def owner_label(self) -> str:
        """Name of the project, or of the platform."""
        return gettext("Platform") if self.project is None else str(self.project)


class AppendOnlyModel(models.Model):
    """Base of append-only rows: the history of a configuration."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert the row; a second save raises ``ImmutableHistory``."""
        if not self._state.adding:
            raise ImmutableHistory
        kwargs["force_insert"] = True
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raise ``ImmutableHistory``."""
        raise ImmutableHistory


class ConfigVersion(AppendOnlyModel):
    """One saved state of a configuration, immutable.

    The data is kept as text: databases reorder the keys of their JSON types, and people want their
    file back as they wrote it. ``digest`` is the same for the same values in any order.
    """

    configuration = models.ForeignKey(
        Configuration,
        verbose_name=_("configuration"),
        on_delete=models.PROTECT,
        related_name="versions",
    )
    number = models.PositiveIntegerField(_("number"))
    content = models.TextField(_("content"))
    digest = models.CharField(_("SHA-256 of the values"), max_length=64)
    summary = models.CharField(_("summary"), max_length=200, blank=True)
    author = models.ForeignKey(
        User, verbose_name=_("author"), related_name="+", null=True, on_delete=models.SET_NULL
    )
    author_label = models.CharField(_("author name"), max_length=150)
    note = models.CharField(_("note"), max_length=MAX_NOTE, blank=True)
    created_at = models.DateTimeField(_("saved at"), default=timezone.now)

    objects = AppendOnlyQuerySet["ConfigVersion"].as_manager()

    class Meta:
        verbose_name = _("configuration version")
        verbose_name_plural = _("configuration versions")
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["configuration", "number"], name="configcenter_version_once"
            ),
            models.CheckConstraint(
                condition=Q(number__gte=1), name="configcenter_version_from_one"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.configuration} v{self.number}"

    @property
    def data(self) -> Data:
        """Parse the stored data; each call returns a new copy."""
        content: Data = json.loads(self.content)
        return content


class Activation(AppendOnlyModel):
    """Change of the active version: from ``at`` on ``version`` (None: no version) replaces
    ``previous``.
    """

    configuration = models.ForeignKey(
        Configuration,
        verbose_name=_("configuration"),
        on_delete=models.PROTECT,
        related_name="activations",
    )
    version = models.ForeignKey(
        ConfigVersion,
        verbose_name=_("version"),
        null=True,
        on_delete=models.PROTECT,
        related_name="activations",
    )
    previous = models.ForeignKey(
        ConfigVersion,
        verbose_name=_("previous version"),
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
    )
    actor = models.ForeignKey(
        User, verbose_name=_("user"), related_name="+", null=True, on_delete=models.SET_NULL
    )
    actor_label = models.CharField(_("user name"), max_length=150)
    note = models.CharField(_("note"), max_length=MAX_NOTE, blank=True)
    at = models.DateTimeField(_("at"), default=timezone.now)

    objects = AppendOnlyQuerySet["Activation"].as_manager()

    class Meta:
        verbose_name = _("activation")
        verbose_name_plural = _("activations")
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=~Q(version=F("previous")), name="configcenter_activation_changes"
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["configuration", "-id"], name="configcenter_activations")
        ]

    def __str__(self) -> str:
        return f"{self.configuration}: {self.version_id or '–'}"


class KindSerial(models.Model):
    """Serial of a kind, incremented by each activation; processes poll it twice a second.

    It is incremented under a row lock in the transaction of the activation, so serials become
    visible in commit order. With an automatic id a reader could miss a transaction that commits
    late.
    """

    kind = models.CharField(_("kind"), max_length=32, primary_key=True)
    serial = models.PositiveBigIntegerField(_("serial"), default=0)

    class Meta:
        verbose_name = _("configuration serial")
        verbose_name_plural = _("configuration serials")

    def __str__(self) -> str:
        return f"{self.kind} {self.serial}"


class ConfigSubscription(models.Model):
    """A process that applies the configurations of a kind; counted while its daemon is alive."""

    daemon = models.ForeignKey(
        Daemon, verbose_name=_("process"), on_delete=models.CASCADE, related_name="+"
    )
    # Incarnation of the daemon when this row was written: a different one is a different process.
    boot = models.CharField(_("incarnation"), max_length=64)
    kind = models.CharField(_("kind"), max_length=32)
    project = models.ForeignKey(
        "projects.Project",
        verbose_name=_("project"),
        null=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text=_(
            "Project whose configuration this process applies. Leave empty for all projects."
        ),
    )
    since = models.DateTimeField(_("since"), default=timezone.now)

    class Meta:
        db_table = "configcenter_following"
        verbose_name = _("subscribed process")
        verbose_name_plural = _("subscribed processes")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["daemon", "kind"], name="configcenter_follows_once")
        ]
        indexes: ClassVar = [models.Index(fields=["kind"], name="configcenter_followers")]

    def __str__(self) -> str:
        return f"{self.daemon} {self.kind}"


class RunningVersion(models.Model):
    """Version of a configuration that a process runs; ``number`` 0 is no version."""

    following = models.ForeignKey(
        ConfigSubscription,
        verbose_name=_("process"),
        on_delete=models.CASCADE,
        related_name="running",
    )
    configuration = models.ForeignKey(
        Configuration,
        verbose_name=_("configuration"),
        on_delete=models.CASCADE,
        related_name="running",
    )
    number = models.PositiveIntegerField(_("version"), default=0)
    applied_at = models.DateTimeField(_("applied at"), default=timezone.now)
    problem = models.CharField(
        _("problem"),
        max_length=500,
        blank=True,
        help_text=_("Why the active version was not applied. The previous one stays in effect."),
    )

    objects = RunningQuerySet["RunningVersion"].as_manager()

    class Meta:
        verbose_name = _("running version")
        verbose_name_plural = _("running versions")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["following", "configuration"], name="configcenter_runs_one"
            )
        ]

    def __str__(self) -> str:
        return f"{self.following} v{self.number}"
