"""Models of projects, which all other permissions are derived from."""

from __future__ import annotations

import ipaddress
from typing import ClassVar, Final

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.access.models import Restorable
from apps.projects.models.validators import (
    validate_branch,
    validate_build_arguments,
    validate_dockerfile,
    validate_git_url,
    validate_registry_url,
    validate_repository,
    validate_tag_template,
    validate_username,
)
from apps.projects.querysets import ProjectManager, ProjectQuerySet
from apps.runtime.fields import SecretTextField

DEFAULT_SLUG = "default"
MAX_NETWORKS = 256
DEFAULT_TAG_TEMPLATE: Final = "{release}/{name}/{version}"


def validate_networks(value: object) -> None:
    """Accept a list of CIDR strings such as ``10.20.0.0/16`` or ``fd00::/8``.

    Host bits must be zero: ``10.20.0.5/16`` is rejected, with the probable network in the message,
    because the author may have meant a single address.
    """
    if not isinstance(value, list):
        raise ValidationError(_('Enter a list of networks such as ["10.20.0.0/16"].'))
    if len(value) > MAX_NETWORKS:
        raise ValidationError(
            _("%(count)d networks are given, at most %(limit)d are allowed."),
            params={"limit": MAX_NETWORKS, "count": len(value)},
        )
    errors = [error for index, entry in enumerate(value, 1) for error in _refusals(index, entry)]
    if errors:
        raise ValidationError(errors)


def _refusals(index: int, entry: object) -> list[ValidationError]:
    shown = str(entry)[:60]
    params = {"index": index, "value": shown}
    if not isinstance(entry, str) or "%" in entry or entry != entry.strip():
        message = _("Entry %(index)d, %(value)s: not a network; write it as 10.20.0.0/16.")
        return [ValidationError(message, params=params)]
    try:
        ipaddress.ip_network(entry)
    except ValueError:
        pass
    else:
        return []
    try:
        meant = ipaddress.ip_network(entry, strict=False)
    except ValueError:
        message = _("Entry %(index)d, %(value)s: not a network; write it as 10.20.0.0/16.")
        return [ValidationError(message, params=params)]
    message = _("Entry %(index)d, %(value)s: host bits are set; did you mean %(meant)s?")
    return [ValidationError(message, params=params | {"meant": str(meant)})]


class GitOptions(models.Model):
    """Project fields for the git repository and the tag template."""

    git_url = models.CharField(
        _("git address"),
        max_length=500,
        blank=True,
        help_text=_("https://, http:// or ssh://; builds clone only this address."),
        validators=[validate_git_url],
    )
    git_username = models.CharField(
        _("git user name"), max_length=200, blank=True, validators=[validate_username]
    )
    git_password = SecretTextField(
        _("git password or token"), help_text=_("Encrypted; never shown again.")
    )
    default_branch = models.CharField(
        _("default branch"), max_length=200, default="main", validators=[validate_branch]
    )
    tag_template = models.CharField(
        _("tag template"),
        max_length=100,
        default=DEFAULT_TAG_TEMPLATE,
        help_text=_("Format of tags; git allows / - _ between the parts, but no colon."),
        validators=[validate_tag_template],
    )
    webhook_secret = SecretTextField(
        _("webhook secret"), help_text=_("Signs deliveries; generated with the project.")
    )

    class Meta:
        abstract = True


class BuildOptions(models.Model):
    """Project fields for builds and for the registry."""

    builds_enabled = models.BooleanField(
        _("build tags"),
        default=True,
        help_text=_("A pushed tag that fits the template is built at once."),
    )
    dockerfile = models.CharField(
        _("Dockerfile"),
        max_length=200,
        default="Dockerfile",
        help_text=_("Path in the repository."),
        validators=[validate_dockerfile],
    )
    build_script = models.TextField(
        _("build script"),
        blank=True,
        max_length=64 * 1024,
        help_text=_("The text of a Dockerfile, used instead of the repository's own."),
    )
    build_arguments = models.JSONField(
        _("build arguments"),
        default=dict,
        blank=True,
        help_text=_(
            "A JSON object of texts; not for secrets, which would stay readable in the image."
        ),
        validators=[validate_build_arguments],
    )
    build_timeout_seconds = models.PositiveIntegerField(
        _("time limit of a build"),
        default=1800,
        validators=[MinValueValidator(10), MaxValueValidator(6 * 3600)],
        help_text=_("seconds"),
    )
    max_image_bytes = models.PositiveBigIntegerField(
        _("maximum image size"),
        default=4 * 1024**3,
        validators=[MinValueValidator(1024**2), MaxValueValidator(100 * 1024**3)],
        help_text=_("Bytes; a larger image is removed and the build fails."),
    )
    registry_url = models.CharField(
        _("registry"),
        max_length=300,
        blank=True,
        help_text=_("Registry that images are pushed to, such as https://registry.example.com."),
        validators=[validate_registry_url],
    )
    registry_repository = models.CharField(
        _("repository"), max_length=255, blank=True, validators=[validate_repository]
    )
    registry_username = models.CharField(
        _("registry user name"), max_length=200, blank=True, validators=[validate_username]
    )
    registry_password = SecretTextField(
        _("registry password or token"), help_text=_("Encrypted; never shown again.")
    )

    class Meta:
        abstract = True


class RetentionOptions(models.Model):
    """Project fields for the retention of data; a dataset's own settings take precedence."""

    keep_days = models.PositiveIntegerField(
        _("days"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("Older data is deleted. Empty: the setting DATA_DAYS."),
    )
    keep_runs = models.PositiveIntegerField(
        _("runs"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("Beyond it the oldest runs of each dataset are deleted."),
    )
    keep_bytes = models.PositiveBigIntegerField(
        _("size limit"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=_("Bytes of each dataset; beyond it the oldest data is deleted."),
    )

    class Meta:
        abstract = True


class Project(Restorable, GitOptions, BuildOptions, RetentionOptions):
    """Crawling project with its own members, code and images."""

    name = models.CharField(_("name"), max_length=100)
    slug = models.SlugField(
        _("slug"),
        max_length=50,
        help_text=_("Short name for addresses and queues: letters, digits, hyphens."),
    )
    description = models.TextField(_("description"), blank=True, default="", max_length=10_000)
    allowed_networks = models.JSONField(
        _("allowed networks"),
        default=list,
        blank=True,
        validators=[validate_networks],
        help_text=_(
            "Networks that downloads of this project may reach besides public addresses: "
            'a list of CIDR blocks such as ["10.20.0.0/16"].'
        ),
    )
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    objects: ClassVar = ProjectManager["Project"]()
    all_objects = ProjectQuerySet["Project"].as_manager()

    class Meta:
        verbose_name = _("project")
        verbose_name_plural = _("projects")
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            # The name of a deleted project can be used by another project.
            models.UniqueConstraint(
                fields=["name"],
                condition=Q(deleted_at=None),
                name="projects_project_name_once",
                violation_error_message=_("A project of this name already exists."),
            ),
            models.UniqueConstraint(
                fields=["slug"],
                condition=Q(deleted_at=None),
                name="projects_project_slug_once",
                violation_error_message=_("A project of this slug already exists."),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Check that name and slug are unique among projects that are not deleted."""
        super().clean()
        others = Project.objects.exclude(pk=self.pk)
        errors = {
            name: _("Another project already uses this value.")
            for name in ("name", "slug")
            if others.filter(**{name: getattr(self, name)}).exists()
        }
        if errors:
            raise ValidationError(errors)

    def has_secret(self, name: str) -> bool:
        """Return whether the secret in field ``name`` is set, without decrypting it."""
        return bool(self.__dict__.get(name))

    @property
    def networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        """Parsed ``allowed_networks``."""
        return [ipaddress.ip_network(entry) for entry in self.allowed_networks]


class DeletedProject(Project):
    """Proxy of deleted projects."""

    objects = ProjectQuerySet["DeletedProject"].as_manager()  # type: ignore[assignment, misc]

    class Meta:
        proxy = True
        verbose_name = _("deleted project")
        verbose_name_plural = _("deleted projects")
        ordering: ClassVar = ["-deleted_at", "-id"]
