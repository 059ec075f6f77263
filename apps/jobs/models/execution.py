"""Job fields for execution: image or command, environment, limits, host labels."""

from __future__ import annotations

import json
from typing import Final

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from apps.jobs.engine.retry import validate_retry_rules
from apps.jobs.models.execution_rules import (
    validate_command,
    validate_environment,
    validate_finite,
    validate_host_labels,
)
from apps.projects.models import Image
from apps.runtime.fields import SecretTextField
from apps.seeds.models import Frontier
from yardkit.secretbox import SecretError

LARGEST_MEMORY_BYTES: Final = 1024**4


class ExecutionOptions(models.Model):
    """Job fields that the runner uses.

    With an image, a run is a container on a Docker host. It executes the ``command``, else the
    ``spider``, else the image's own entry point. Without an image, a run is a local process on a
    process host that executes the command or the spider.
    """

    image = models.ForeignKey(
        Image,
        verbose_name=_("image"),
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text=_("An image of a successful build; without one runs are local processes."),
    )
    command = models.JSONField(
        _("command"),
        default=list,
        blank=True,
        validators=[validate_command],
        help_text=_("Program and arguments as a JSON list of texts, instead of a spider."),
    )
    frontier = models.ForeignKey(
        Frontier,
        verbose_name=_("URL queue"),
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="jobs",
        help_text=_("The runs add seeds to this URL queue and crawl them."),
    )
    environment = models.JSONField(
        _("environment"),
        default=dict,
        blank=True,
        validators=[validate_environment],
        help_text=_("A JSON object of texts."),
    )
    secrets = SecretTextField(
        _("secret environment"),
        help_text=_("A JSON object of texts; encrypted, never shown again."),
    )
    host_labels = models.JSONField(
        _("host labels"),
        default=dict,
        blank=True,
        validators=[validate_host_labels],
        help_text=_("The job runs only on hosts with all of these labels."),
    )
    priority = models.SmallIntegerField(
        _("priority"),
        default=0,
        validators=[MinValueValidator(-100), MaxValueValidator(100)],
        help_text=_("A waiting run of higher priority is placed first."),
    )
    cpu_limit = models.FloatField(
        _("CPU limit"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0.01), MaxValueValidator(256.0), validate_finite],
        help_text=_("Cores; leave empty for the installation's default."),
    )
    memory_limit_bytes = models.PositiveBigIntegerField(
        _("memory limit"),
        null=True,
        blank=True,
        validators=[MinValueValidator(16 * 1024**2), MaxValueValidator(LARGEST_MEMORY_BYTES)],
        help_text=_("Bytes; leave empty for the installation's default."),
    )
    max_run_seconds = models.PositiveIntegerField(
        _("time limit"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(366 * 86400)],
        help_text=_("Seconds; a run that takes longer is stopped and fails."),
    )
    max_failed_percent = models.FloatField(
        _("allowed failed requests"),
        default=0.0,
        db_default=0.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(100.0), validate_finite],
        help_text=_(
            "Percent of a run's requests. A run with more is shown as finished with errors."
        ),
    )
    max_exceptions = models.PositiveIntegerField(
        _("allowed exceptions"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(2_000_000_000)],
        help_text=_(
            "Exceptions in the spider. A run with more is shown as finished with errors. "
            "Leave empty to check only the failed requests."
        ),
    )
    min_items = models.PositiveIntegerField(
        _("items at least"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(2_000_000_000)],
        help_text=_("A run with fewer items is shown as finished with errors. Empty: no limit."),
    )
    trial_required = models.BooleanField(
        _("trial of new images"),
        default=False,
        db_default=False,
        help_text=_(
            "Another image becomes the job's only after a trial on the pages of an earlier run."
        ),
    )
    trial_lost_percent = models.FloatField(
        _("allowed lost items"),
        default=0.0,
        db_default=0.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(100.0), validate_finite],
        help_text=_("Percent of the items of the recorded run that a trial may lack."),
    )
    trial_changed_percent = models.FloatField(
        _("allowed changed items"),
        default=100.0,
        db_default=100.0,
        validators=[MinValueValidator(0.0), MaxValueValidator(100.0), validate_finite],
        help_text=_("Percent of the items of the recorded run that may differ; needs a key."),
    )
    # The digest that the trial was about; "": that of the image.
    image_digest = models.CharField(
        max_length=100, blank=True, default="", db_default="", editable=False
    )
    retry_rules = models.JSONField(
        _("retry rules"),
        default=list,
        blank=True,
        validators=[validate_retry_rules],
        help_text=_(
            "A JSON list; the first rule that matches how a run ended applies, such as "
            '[{"on": "lost", "retries": 1}, {"on": "failed", "codes": [137], '
            '"retries": 3, "delay_seconds": 60}].'
        ),
    )

    class Meta:
        abstract = True

    def secret_environment(self) -> dict[str, str]:
        """Return the decrypted secrets; to be used only to start a run.

        Raises:
            yardkit.secretbox.SecretError: no key decrypts the secrets.
        """
        opened: dict[str, str] = json.loads(self.secrets) if self.secrets else {}
        return opened

    @property
    def secret_names(self) -> list[str]:
        """Names of the secrets; empty if no key decrypts the secrets."""
        try:
            return sorted(self.secret_environment())
        except SecretError:
            return []
