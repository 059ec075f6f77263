"""Job fields for downloads: agents, type of downloader, and its settings."""

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
from yardkit.fetcher import MAX_BODY_BYTES
from yardkit.protocol import CutRule, DownloaderSettings, DownloaderType, KeepPages, Policy

MOST_AGENTS: Final = 10_000
MAX_TIMEOUT_SECONDS: Final = 600.0
MOST_PUBLISH_RETRIES: Final = 7 * 86_400
# Default of the spider's request timeout, in seconds (seed S1.43).
USUAL_REQUEST_TIMEOUT_SECONDS: Final = 15.0


class DownloadPolicy(models.TextChoices):
    """Policy by which the agents of a run are chosen."""

    RANDOM = Policy.RANDOM.value, _("random: over all agents")
    FIXED = Policy.FIXED.value, _("fixed: some agents, chosen at the start")
    CHAINED = Policy.CHAINED.value, _("chained: fixed, and links stay with the agent of their page")


class DownloaderKind(models.TextChoices):
    """Type of downloader of a run."""

    HTTP = DownloaderType.HTTP.value, _("HTTP")
    IMPERSONATE = DownloaderType.IMPERSONATE.value, _("HTTP like a browser")
    BROWSER = DownloaderType.BROWSER.value, _("browser")
    FILE = DownloaderType.FILE.value, _("files on the agent")


class PagesKept(models.TextChoices):
    """Which responses the agents keep."""

    NONE = KeepPages.NONE.value, _("none")
    FAILED = KeepPages.FAILED.value, _("failed ones")
    SAMPLE = KeepPages.SAMPLE.value, _("a sample")
    ALL = KeepPages.ALL.value, _("all")


class TlsVersion(models.TextChoices):
    """Version of TLS, as ``DownloaderSettings`` has it."""

    ANY = "", _("default")
    V1_0 = "TLSv1", "TLS 1.0"
    V1_1 = "TLSv1.1", "TLS 1.1"
    V1_2 = "TLSv1.2", "TLS 1.2"
    V1_3 = "TLSv1.3", "TLS 1.3"


class DownloadOptions(models.Model):
    """Job fields that the request center, the agents and the spider's retries use."""

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
            "Number of agents; 0 means all with the policy random, and one with fixed or chained."
        ),
    )
    obey_robots = models.BooleanField(
        _("obey robots.txt"),
        default=True,
        help_text=_(
            "Pages that a site's robots.txt disallows are skipped, and its crawl delay "
            "is respected."
        ),
    )
    downloader = models.CharField(
        _("downloader"),
        max_length=12,
        choices=DownloaderKind.choices,
        default=DownloaderKind.HTTP,
        help_text=_("Only agents that support this type are assigned."),
    )
    timeout_seconds = models.FloatField(
        _("download timeout"),
        default=15.0,
        validators=[MinValueValidator(0.1), MaxValueValidator(MAX_TIMEOUT_SECONDS)],
        help_text=_("Seconds, including the body."),
    )
    max_body_bytes = models.PositiveBigIntegerField(
        _("maximum body size"),
        default=8 * 1024 * 1024,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_BODY_BYTES)],
        help_text=_("Bytes; longer responses are cut off. 8388608 is 8 MiB."),
    )
    follow_redirects = models.BooleanField(_("follow redirects"), default=True)
    max_redirects = models.PositiveSmallIntegerField(
        _("maximum redirects"), default=10, validators=[MaxValueValidator(50)]
    )
    encoding = models.CharField(
        _("encoding"),
        max_length=40,
        blank=True,
        validators=[validate_encoding],
        help_text=_(
            "Overrides the encoding that pages declare, such as gb18030; leave empty to use theirs."
        ),
    )
    decode_html = models.BooleanField(
        _("decode entities"),
        default=False,
        help_text=_("HTML entities are replaced by their characters."),
    )
    cut = models.JSONField(
        _("cut rules"),
        default=list,
        blank=True,
        validators=[validate_cut_rules],
        help_text=_("Applied in order on the agent, to reduce what is sent back."),
    )
    use_proxy = models.BooleanField(
        _("use proxies"),
        default=False,
        help_text=_("The proxies that are configured on the agent."),
    )
    redial = models.BooleanField(
        _("redial"),
        default=False,
        help_text=_("The agent may change its IP with its configured redial command."),
    )
    switch_pattern = models.CharField(
        _("switch pattern"),
        max_length=1000,
        blank=True,
        validators=[validate_pattern],
        help_text=_(
            "An RE2 expression for blocked responses: the agent switches its IP and "
            "retries them. The text begins with the status line, as in HTTP 403."
        ),
    )
    switch_retries = models.PositiveSmallIntegerField(
        _("IP switches"),
        default=3,
        validators=[MaxValueValidator(100)],
        help_text=_("Retries of a request with another IP."),
    )
    user_agent = models.CharField(
        _("user agent"),
        max_length=300,
        blank=True,
        validators=[validate_header_text],
        help_text=_(
            "Leave empty for “Crawlyard”, or for the browser's own with a browser or a browser "
            "profile."
        ),
    )
    impersonate = models.CharField(
        _("browser profile"),
        max_length=40,
        default="chrome",
        validators=[
            RegexValidator(
                r"^[a-z][a-z0-9_]*\Z", _("Enter a name such as chrome, firefox or safari.")
            )
        ],
        help_text=_("For the downloader “HTTP like a browser”, a profile name of curl_cffi."),
    )
    verify_tls = models.BooleanField(
        _("verify certificates"),
        default=True,
        db_default=True,
        help_text=_(
            "Downloads from a server without a valid certificate fail. "
            "In a Scrapy project, DOWNLOAD_VERIFY_CERTIFICATES decides."
        ),
    )
    tls_minimum = models.CharField(
        _("minimum TLS version"),
        max_length=8,
        blank=True,
        choices=TlsVersion.choices,
        default=TlsVersion.ANY,
        db_default="",
    )
    tls_maximum = models.CharField(
        _("maximum TLS version"),
        max_length=8,
        blank=True,
        choices=TlsVersion.choices,
        default=TlsVersion.ANY,
        db_default="",
    )
    use_cookies = models.BooleanField(
        _("keep cookies"),
        default=True,
        help_text=_("Each downloader keeps and sends back the cookies of its sites."),
    )
    cookies = SecretTextField(
        _("cookies"),
        help_text=_(
            'Initial cookies: "name=value; name=value" or a JSON object; never shown again.'
        ),
    )
    request_timeout_seconds = models.FloatField(
        _("request timeout"),
        null=True,
        blank=True,
        validators=[MinValueValidator(0.1), MaxValueValidator(3600.0)],
        help_text=_(
            "Seconds without an answer until the spider repeats a request. Leave empty "
            "to use the spider's own setting (15 unless it sets one)."
        ),
    )
    timeout_retries = models.PositiveSmallIntegerField(
        _("retries after a timeout"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(1000)],
        help_text=_("Leave empty to use the spider's own setting (20 unless it sets one)."),
    )
    download_retries = models.PositiveSmallIntegerField(
        _("download retries"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(1000)],
        help_text=_(
            "Number of retries after a refused connection, HTTP 429 or 5xx. Leave empty to "
            "use the spider's own number (5 by default)."
        ),
    )
    no_answer_seconds = models.FloatField(
        _("no-answer timeout"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(86_400.0)],
        help_text=_(
            "Seconds without any answer to open requests after which the run fails. "
            "Leave empty to use the spider's own setting (300 unless it sets one)."
        ),
    )
    publish_retries = models.PositiveIntegerField(
        _("broker retries"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(MOST_PUBLISH_RETRIES)],
        help_text=_(
            "Retries, one a second, while the broker is unreachable, before the run "
            "fails. Leave empty to use the spider's own setting (60 unless it sets "
            "one)."
        ),
    )
    fed_from_outside = models.BooleanField(
        _("fed from outside"),
        default=False,
        help_text=_("A run without requests waits 30 s for new ones before it ends."),
    )

    keep_pages = models.CharField(
        _("keep pages"),
        max_length=6,
        choices=PagesKept.choices,
        default=PagesKept.FAILED,
        db_default=PagesKept.FAILED.value,
        help_text=_(
            "Responses stored as received, in WARC files. Failed ones have an error status or an "
            "incomplete body."
        ),
    )
    pages_sample = models.PositiveIntegerField(
        _("sample size"),
        default=100,
        db_default=100,
        validators=[MinValueValidator(1), MaxValueValidator(1_000_000)],
        help_text=_("A sample has one in this many addresses, the same ones in every run."),
    )
    pages_days = models.PositiveIntegerField(
        _("days to keep pages"),
        default=30,
        db_default=30,
        validators=[MinValueValidator(1), MaxValueValidator(3650)],
        help_text=_("Older kept pages are deleted."),
    )

    class Meta:
        abstract = True

    def download_options(self) -> DownloaderSettings:
        """Return these fields as settings for request center and agents, without the cookies."""
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
            verify_tls=self.verify_tls,
            tls_minimum=self.tls_minimum,
            tls_maximum=self.tls_maximum,
        )

    def opened_cookies(self) -> dict[str, str]:
        """Return the decrypted initial cookies. Raises ``SecretError`` if no key decrypts them."""
        cookies: dict[str, str] = json.loads(self.cookies) if self.cookies else {}
        return cookies


# Names of the fields of DownloadOptions, in order of declaration.
OPTIONS: Final = tuple(field.name for field in DownloadOptions._meta.local_fields)
# Browsers, and downloaders that imitate a browser, send their own user agent.
_USUAL_USER_AGENT: Final[dict[str, str]] = {DownloaderKind.HTTP: DownloaderSettings().user_agent}


def contradictions(values: Mapping[str, Any]) -> dict[str, str]:
    """Return errors of fields that depend on each other, by the field to change.

    Fields that are missing or invalid are not checked.
    """
    errors: dict[str, str] = {}
    download = values.get("timeout_seconds")
    given = values.get("request_timeout_seconds")
    request = USUAL_REQUEST_TIMEOUT_SECONDS if given is None else given
    if download is not None and request < download <= MAX_TIMEOUT_SECONDS:
        # Requests would be repeated while their first download is still running.
        errors["request_timeout_seconds"] = gettext(
            "Must be at least the download timeout (%(download)g s): otherwise every "
            "slow page would be requested again."
        ) % {"download": download}
    if values.get("redial") and not values.get("switch_pattern"):
        errors["switch_pattern"] = gettext(
            "Enter a switch pattern: it decides which responses make the agent redial."
        )
    order = TlsVersion.values
    lowest, highest = values.get("tls_minimum"), values.get("tls_maximum")
    if lowest and highest and order.index(lowest) > order.index(highest):
        errors["tls_maximum"] = gettext("Must not be below the minimum version.")
    return errors
