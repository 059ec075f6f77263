"""Frontier: the seeds of a project for one purpose, and the rules that identify a seed."""

from __future__ import annotations

from typing import ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from apps.projects.models import Project
from apps.seeds.engine.errors import InvalidFrontierSetting
from apps.seeds.engine.filters import EXPECTED, FALSE_POSITIVES, MAX_EXPECTED, FilterSettings
from apps.seeds.engine.keys import key_resolver
from apps.seeds.engine.rules import FrontierRules
from apps.seeds.engine.seeds import MAX_RETRY, MAX_RETRY_LIMIT
from apps.seeds.engine.segments import segment_resolver, time_zone
from apps.seeds.querysets import FrontierQuerySet

MAX_LEASE_SECONDS = 24 * 3600

validate_name = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z",
    _("Only letters, digits, '.', '_' and '-'; must start with a letter or digit."),
)


def validate_time_zone(value: str) -> None:
    """Validator: a zone of the IANA database, such as ``Asia/Shanghai``."""
    _validate(time_zone, value)


def validate_parameters(value: object) -> None:
    """Validator: a list of URL parameter names, or None."""
    names = isinstance(value, list) and all(
        isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable() for name in value
    )
    if value is not None and not (names and len(value) <= 100):  # type: ignore[arg-type]
        raise ValidationError(_('A list of at most 100 names is needed, as in ["callback", "t"].'))


def _validate(read: object, *arguments: object) -> None:
    try:
        read(*arguments)  # type: ignore[operator]
    except InvalidFrontierSetting as error:
        raise ValidationError(str(error)) from error


class Frontier(models.Model):
    """The seeds of one purpose in one project."""

    project = models.ForeignKey(
        Project, verbose_name=_("project"), on_delete=models.PROTECT, related_name="frontiers"
    )
    name = models.CharField(_("name"), max_length=100, validators=[validate_name])
    description = models.CharField(_("description"), max_length=500, blank=True)
    time_zone = models.CharField(
        _("time zone"),
        max_length=50,
        default="UTC",
        validators=[validate_time_zone],
        help_text=_("Such as Asia/Shanghai. Days begin at midnight in this zone."),
    )
    segments = models.CharField(
        _("segments"),
        max_length=100,
        default="day",
        help_text=_("day, hour, days:3, week, month, none, or the name of a plug-in"),
    )
    keys = models.CharField(
        _("keys"),
        max_length=100,
        default="whole",
        help_text=_(
            "Seeds with the same key are duplicates: whole, page, canonical, or the name of a "
            "plug-in."
        ),
    )
    ignored_parameters = models.JSONField(
        _("ignored parameters"),
        null=True,
        blank=True,
        default=None,
        validators=[validate_parameters],
        help_text=_("For canonical keys. Leave empty for the JSONP defaults."),
    )
    max_retry = models.PositiveSmallIntegerField(
        _("tries"),
        default=MAX_RETRY,
        validators=[MaxValueValidator(MAX_RETRY_LIMIT)],
        help_text=_(
            "Number of failed tries after which a seed counts as failed, unless the seed has its "
            "own."
        ),
    )
    lease_seconds = models.PositiveIntegerField(
        _("lease"),
        default=300,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_LEASE_SECONDS)],
        help_text=_(
            "Seconds until unfinished seeds become pending again, with one more failed try."
        ),
    )
    expected_seeds = models.PositiveBigIntegerField(
        _("expected seeds"),
        default=EXPECTED,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_EXPECTED)],
        help_text=_(
            "Seeds per segment. With more seeds adding becomes slower, but results stay exact."
        ),
    )
    false_positive_rate = models.FloatField(
        _("false-positive rate"),
        default=FALSE_POSITIVES,
        validators=[MinValueValidator(1e-9), MaxValueValidator(0.5)],
        help_text=_(
            "Share of new seeds that need a query although they are new, at the expected size."
        ),
    )
    is_paused = models.BooleanField(
        _("paused"), default=False, help_text=_("Seeds are added but not leased.")
    )
    is_frozen = models.BooleanField(_("frozen"), default=False, editable=False)
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    objects = FrontierQuerySet["Frontier"].as_manager()

    class Meta:
        verbose_name = _("URL queue")
        verbose_name_plural = _("URL queues")
        ordering: ClassVar = ["project", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["project", "name"], name="seeds_frontier_one_a_name")
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Reject rules that cannot be loaded."""
        try:
            self.rules()
        except InvalidFrontierSetting as error:
            raise ValidationError(str(error)) from error

    def rules(self) -> FrontierRules:
        """Return the rules. Raises ``InvalidFrontierSetting``."""
        return FrontierRules(
            segments=segment_resolver(self.segments, time_zone(self.time_zone)),
            keys=key_resolver(self.keys, self.ignored_parameters),
            max_retry=self.max_retry,
        )

    def filter_settings(self) -> FilterSettings:
        """Return the settings of new filters. Raises ``InvalidFrontierSetting``."""
        return FilterSettings(self.expected_seeds, self.false_positive_rate).checked()
