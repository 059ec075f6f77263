"""Projects: what everything else belongs to, and derives its permissions from."""

from __future__ import annotations

import ipaddress
from typing import ClassVar

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.projects.querysets import ProjectQuerySet

DEFAULT_SLUG = "default"
MAX_NETWORKS = 256


def validate_networks(value: object) -> None:
    """Accept a list of CIDR strings such as ``10.20.0.0/16`` or ``fd00::/8``, else say which.

    Host bits must be zero: ``10.20.0.5/16`` is refused with the network that may be meant,
    because whoever writes it might believe that one address is allowed.
    """
    if not isinstance(value, list):
        raise ValidationError(_('A list of networks is needed, as in ["10.20.0.0/16"].'))
    if len(value) > MAX_NETWORKS:
        raise ValidationError(
            _("At most %(limit)d networks, these are %(count)d."),
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
    message = _(
        "Entry %(index)d, %(value)s: bits are set behind the network part; is %(meant)s meant?"
    )
    return [ValidationError(message, params=params | {"meant": str(meant)})]


class Project(models.Model):
    """A body of crawling work with its own members (seed S1.1: name; the git part is not here)."""

    name = models.CharField(_("name"), max_length=100, unique=True)
    slug = models.SlugField(
        _("slug"),
        max_length=50,
        unique=True,
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

    objects = ProjectQuerySet.as_manager()

    class Meta:
        verbose_name = _("project")
        verbose_name_plural = _("projects")
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def networks(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        """``allowed_networks`` parsed."""
        return [ipaddress.ip_network(entry) for entry in self.allowed_networks]
