"""Host rules, host states, and share tables."""

from __future__ import annotations

import ipaddress
import math
import re

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

_NAME = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*")


def validate_host(value: str) -> None:
    """Accept a lower-case host without a port, or ``*.`` and a name for everything below it."""
    if not _NAME.fullmatch(value) and not (":" in value and _is_address(value)):
        raise ValidationError(
            _("Enter a host in lower case without a port, such as example.com or *.example.com.")
        )


def _is_address(value: str) -> bool:
    try:
        return str(ipaddress.ip_address(value)) == value
    except ValueError:
        return False


def validate_rate(value: float) -> None:
    """Accept finite numbers."""
    if not math.isfinite(value) or value < 0:
        raise ValidationError(_("Enter a number of requests per second, or 0 for no limit."))


class HostRule(models.Model):
    """Rule for a host; empty fields leave a limit to the settings."""

    host = models.CharField(
        _("host"),
        max_length=253,
        unique=True,
        validators=[validate_host],
        help_text=_("Such as example.com, or *.example.com for all of its subdomains."),
    )
    requests_per_second = models.FloatField(
        _("requests per second"),
        null=True,
        blank=True,
        validators=[validate_rate],
        help_text=_("Limit for all runs together; 0 is unlimited, empty uses the settings."),
    )
    concurrency = models.PositiveIntegerField(
        _("concurrency"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text=_("Requests in progress at once; 0 is unlimited, empty uses the settings."),
    )
    stopped = models.BooleanField(
        _("stopped"), default=False, help_text=_("All requests to this host are deferred.")
    )
    obey_robots = models.BooleanField(
        _("obey robots.txt"),
        null=True,
        blank=True,
        help_text=_("Unknown leaves the choice to the job."),
    )
    notes = models.TextField(_("notes"), blank=True)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    class Meta:
        verbose_name = _("host rule")
        verbose_name_plural = _("host rules")
        ordering = ["host"]

    def __str__(self) -> str:
        return self.host

    @property
    def says_nothing(self) -> bool:
        """Whether all fields are empty."""
        decided = (self.requests_per_second, self.concurrency, self.obey_robots)
        return not self.stopped and not self.notes and all(each is None for each in decided)


class HostState(models.Model):
    """State of a busy host at one center; written once a second."""

    host = models.CharField(_("host"), max_length=253)
    center = models.CharField(_("center"), max_length=100)
    held = models.PositiveIntegerField(_("deferred"), default=0)
    in_flight = models.PositiveIntegerField(_("in progress"), default=0)
    stopped = models.BooleanField(_("stopped"), default=False)
    blocked_until = models.DateTimeField(_("paused until"), null=True, blank=True)
    reason = models.CharField(_("reason"), max_length=500, blank=True)
    robots = models.CharField("robots.txt", max_length=20, blank=True)
    reported_at = models.DateTimeField(_("reported at"))

    class Meta:
        verbose_name = _("crawled host")
        verbose_name_plural = _("crawled hosts")
        ordering = ["-held", "host"]
        constraints = [
            models.UniqueConstraint(fields=["host", "center"], name="agents_hoststate_unique")
        ]

    def __str__(self) -> str:
        return self.host


class HostLedger(models.Model):
    """Share table of a host (see ``center/politeness/shares.py``)."""

    host = models.CharField(max_length=253, unique=True)
    body = models.BinaryField(default=b"{}")
    updated_at = models.DateTimeField()

    class Meta:
        verbose_name = _("share table")
        verbose_name_plural = _("share tables")

    def __str__(self) -> str:
        return self.host
