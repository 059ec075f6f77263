"""Job fields of downloading: agents, type of downloader, and its settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.jobs.models.validators import (
    validate_cut_rules,
    validate_encoding,
    validate_header_text,
    validate_pattern,
)
from apps.runtime.fields import SecretTextField
from yardkit.protocol import CutRule, DownloaderSettings, DownloaderType, Policy

MOST_AGENTS: Final = 10_000
MAX_TIMEOUT_SECONDS: Final = 600.0
MOST_PUBLISH_RETRIES: Final = 7 * 86_400
MAX_BODY_BYTES: Final = 256 * 1024 * 1024
# The spider's default time to wait for an answer (seed S1.43).
USUAL_REQUEST_TIMEOUT_SECONDS: Final = 15.0


class DownloadPolicy(models.TextChoices):
    """How the agents of a run are chosen (seed S1.36)."""

    RANDOM = Policy.RANDOM.value, _("random over all agents")
    FIXED = Policy.FIXED.value, _("fixed: some agents, drawn at the start")
    CHAINED = Policy.CHAINED.value, _("chained: fixed, and links go to the agent of their page")


class DownloaderKind(models.TextChoices):
    """What downloads the pages of a run (seed S1.30)."""

    HTTP = DownloaderType.HTTP.value, _("HTTP")
    IMPERSONATE = DownloaderType.IMPERSONATE.value, _("HTTP like a browser")
    BROWSER = DownloaderType.BROWSER.value, _("browser")
    FILE = DownloaderType.FILE.value, _("files of the agent")


class DownloadOptions(models.Model):
    """Job fields that the center, the agents and the spider's retries use."""

    policy = models.CharField(
        _("download policy"),
        max_length=10,
        choices=DownloadPolicy.choices,
        default=DownloadPolicy.RANDOM,
    )
    agents = models.PositiveIntegerField(
        _("agents"),
        default=0,
        validators=[MaxValueValidator(MOST_AGENTS)],
        help_text=_(
            "how many; 0 is all of them with the policy random, one with fixed and chained"
        ),
    )
    obey_robots = models.BooleanField(
        _("obey robots.txt"),
        default=True,
        help_text=_("what a host's robots.txt forbids is not fetched, its delays are kept"),
    )
    downloader = models.CharField(
        _("downloader"),
        max_length=12,
        choices=DownloaderKind.choices,
        default=DownloaderKind.HTTP,
        help_text=_("only agents that can make this type are given to the job"),
    )
    timeout_seconds = models.FloatField(
        _("time-out of a download"),
        default=15.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(MAX_TIMEOUT_SECONDS)],
        help_text=_("seconds, the body included"),
    )
    max_body_bytes = models.PositiveIntegerField(
        _("largest body"),
        default=8 * 1024 * 1024,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_BODY_BYTES)],
        help_text=_("bytes; the rest of a longer answer is cut off. 8388608 are 8 MiB"),
    )
    follow_redirects = models.BooleanField(_("follow redirects"), default=True)
    max_redirects = models.PositiveSmallIntegerField(
        _("most redirects"), default=10, validators=[MaxValueValidator(50)]
    )
    encoding = models.CharField(
        _("encoding"),
        max_length=40,
        blank=True,
        validators=[validate_encoding],
        help_text=_("of pages that tell none or a wrong one, such as gb18030; empty believes them"),
    )
    decode_html = models.BooleanField(
        _("resolve entities"),
        default=False,
        help_text=_("texts arrive with HTML entities turned into the characters they stand for"),
    )
    cut = models.JSONField(
        _("cut rules"),
        default=list,
        blank=True,
        validators=[validate_cut_rules],
        help_text=_("applied one after another on the agent, so that less travels back"),
    )
    use_proxy = models.BooleanField(
        _("use proxies"), default=False, help_text=_("those the agent's owner has given it")
    )
    redial = models.BooleanField(
        _("redial"),
        default=False,
        help_text=_("the agent may change its address by its owner's redial command"),
    )
    switch_pattern = models.CharField(
        _("switch pattern"),
        max_length=1000,
        blank=True,
        validators=[validate_pattern],
        help_text=_(
            "an RE2 expression; an answer it matches was refused, and the agent switches its "
            "address and tries again. The text begins with the status line, as in HTTP 403"
        ),
    )
    switch_retries = models.PositiveSmallIntegerField(
        _("switches"),
        default=3,
        validators=[MaxValueValidator(100)],
        help_text=_("so often is a request tried again with another address"),
    )
    user_agent = models.CharField(
        _("user agent"),
        max_length=300,
        blank=True,
        validators=[validate_header_text],
        help_text=_("empty: Crawlyard, or the browser's own where a browser is used or imitated"),
    )
    impersonate = models.CharField(
        _("imitated browser"),
        max_length=40,
        default="chrome",
        validators=[
            RegexValidator(
                r"^[a-z][a-z0-9_]*\Z", _("A name such as chrome, firefox or safari is needed.")
            )
        ],
        help_text=_("for the downloader HTTP like a browser, as curl_cffi names them"),
    )
    use_cookies = models.BooleanField(
        _("keep cookies"),
        default=True,
        help_text=_("each downloader sends back the cookies its sites have set"),
    )
    cookies = SecretTextField(
        _("cookies"),
        help_text=_('sent from the start: "name=value; name=value" or a JSON object; never shown'),
    )
    request_timeout_seconds = models.FloatField(
        _("time-out of a request"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0.1), MaxValueValidator(3600.0)],
        help_text=_(
            "seconds without an answer until the spider sends it again; empty is the spider's own, "
            "as a rule 15"
        ),
    )
    timeout_retries = models.PositiveSmallIntegerField(
        _("retries after a time-out"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(1000)],
        help_text=_("empty is the spider's own, as a rule 20"),
    )
    download_retries = models.PositiveSmallIntegerField(
        _("retries of a download"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(1000)],
        help_text=_(
            "after a refused connection, HTTP 429 or 5xx; empty is the spider's own, as a rule 5"
        ),
    )
    no_answer_seconds = models.FloatField(
        _("silence that ends a run"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(86_400.0)],
        help_text=_(
            "seconds in which nothing at all comes back while requests are out; empty is the "
            "spider's own, as a rule 300"
        ),
    )
    publish_retries = models.PositiveIntegerField(
        _("retries of the broker"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(MOST_PUBLISH_RETRIES)],
        help_text=_(
            "so often, once a second, is a broker that is gone tried again before the run fails; "
            "empty is the spider's own, as a rule 60. 28800 are 8 hours"
        ),
    )
    fed_from_outside = models.BooleanField(
        _("fed from outside"),
        default=False,
        help_text=_("with nothing to do the run waits 30 s for more before it ends"),
    )

    class Meta:
        abstract = True

    def download_options(self) -> DownloaderSettings:
        """Return these fields as settings for center and agents, without the cookies."""
        return DownloaderSettings(
            type=DownloaderType(self.downloader),
            timeout_seconds=self.timeout_seconds,
            max_body_bytes=self.max_body_bytes,
            follow_redirects=self.follow_redirects,
            max_redirects=self.max_redirects,
            encoding=self.encoding,
            decode_html=self.decode_html,
            cut=msgspec.convert(self.cut, list[CutRule]),
            use_proxy=self.use_proxy,
            redial=self.redial,
            switch_pattern=self.switch_pattern,
            switch_retries=self.switch_retries,
            user_agent=self.user_agent or _USUAL_USER_AGENT.get(self.downloader, ""),
            impersonate=self.impersonate,
            use_cookies=self.use_cookies,
            obey_robots=self.obey_robots,
        )

    def opened_cookies(self) -> dict[str, str]:
        """Return the initial cookies. Raises ``SecretError`` when no key decrypts them."""
        found: dict[str, str] = json.loads(self.cookies) if self.cookies else {}
        return found


# Names of these fields, in their order.
OPTIONS: Final = tuple(field.name for field in DownloadOptions._meta.local_fields)
# Browsers, and downloaders that imitate one, send a user agent of their own.
_USUAL_USER_AGENT: Final[dict[str, str]] = {DownloaderKind.HTTP: DownloaderSettings().user_agent}


def contradictions(values: Mapping[str, Any]) -> dict[str, str]:
    """Return errors of fields that depend on each other, by the field to change.

    Fields that are missing, or invalid by themselves, are not judged.
    """
    errors: dict[str, str] = {}
    download = values.get("timeout_seconds")
    given = values.get("request_timeout_seconds")
    request = USUAL_REQUEST_TIMEOUT_SECONDS if given is None else given
    if download is not None and request < download <= MAX_TIMEOUT_SECONDS:
        # Requests would be sent again while their first download is still running (seed S1.59).
        errors["request_timeout_seconds"] = gettext(
            "Shorter than a download may take (%(download)g s): every slow page would be asked "
            "for again. Set at least %(download)g."
        ) % {"download": download}
    if values.get("redial") and not values.get("switch_pattern"):
        errors["switch_pattern"] = gettext("Say which answers make the agent redial.")
    return errors
