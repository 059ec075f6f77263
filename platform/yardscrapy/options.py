"""Settings of a Scrapy project as those of the platform."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from scrapy.settings import BaseSettings

from yardkit.protocol import MAX_CONTENT_BYTES, DownloaderSettings
from yardspider.environment import RunEnvironment
from yardspider.errors import BadInput
from yardspider.settings import SpiderSettings
from yardspider.transports.remote import RESULT_VERSION

PROXY: Final = "CRAWLYARD_PROXY"
POLITENESS: Final = "CRAWLYARD_POLITENESS"
DIRECT_SCHEMES: Final = "CRAWLYARD_DIRECT_SCHEMES"
BROWSER: Final = "CRAWLYARD_BROWSER"
IMPERSONATE: Final = "CRAWLYARD_IMPERSONATE"
# Written by the add-on: the project's handlers by scheme.
REPLACED_HANDLERS: Final = "CRAWLYARD_REPLACED_HANDLERS"
# Written by the add-on: whether the center obeys robots.txt in place of Scrapy's middleware.
OBEY_ROBOTS: Final = "CRAWLYARD_OBEY_ROBOTS"

# The first is the default.
CHOICES: Final[dict[str, tuple[str, ...]]] = {
    PROXY: ("refuse", "agent", "pass"),
    POLITENESS: ("scrapy", "center"),
    BROWSER: ("agent", "direct"),
    IMPERSONATE: ("agent", "direct"),
}
# A project that sets DOWNLOAD_TIMEOUT to 0 has none; an agent needs one.
_NO_TIMEOUT_SECONDS: Final = 3600.0
# Beside an agent's own timeout: its queue, and the way there and back.
_ANSWER_SECONDS: Final = 15.0
_ANSWER_SHARE: Final = 1.25

# Scrapy's names as those of ``DownloaderSettings``.
_TLS_VERSIONS: Final = {
    "TLS": "",
    "TLSv1.0": "TLSv1",
    "TLSv1.1": "TLSv1.1",
    "TLSv1.2": "TLSv1.2",
    "TLSv1.3": "TLSv1.3",
}


def choice(settings: BaseSettings, name: str) -> str:
    """Return the value of a setting with choices. Raises ``BadInput``."""
    values = CHOICES[name]
    value = str(settings.get(name) or values[0])
    if value not in values:
        raise BadInput(f"{name} is {value!r}; use one of {', '.join(values)}")
    return value


def download_timeout(settings: BaseSettings) -> float:
    """Return the seconds that an agent may take for a download."""
    return settings.getfloat("DOWNLOAD_TIMEOUT") or _NO_TIMEOUT_SECONDS


def answer_seconds(timeout_seconds: float) -> float:
    """Return how long an answer may take when the agent may take ``timeout_seconds``."""
    return timeout_seconds * _ANSWER_SHARE + _ANSWER_SECONDS


def spider_settings(run: RunEnvironment, settings: BaseSettings) -> SpiderSettings:
    """Return the settings of the transport: the job's, with the project's timeout."""
    known = {name: run.settings[name] for name in run.settings if name.islower()}
    seconds = answer_seconds(download_timeout(settings))
    return SpiderSettings(request_timeout_seconds=seconds).changed(
        known, origin="CRAWLYARD_SETTINGS"
    )


def downloader_settings(run: RunEnvironment, settings: BaseSettings) -> DownloaderSettings:
    """Return the settings of the run's downloaders: raw answers, which Scrapy then handles.

    Raises ``ValueError`` for an unknown version of TLS.
    """
    minimum, maximum = _tls_versions(settings)
    ciphers = settings.get("DOWNLOADER_CLIENT_TLS_CIPHERS") or ""
    return msgspec.structs.replace(
        run.downloader,
        result_version=RESULT_VERSION,
        exact_headers=True,
        raw_bodies=True,
        follow_redirects=False,
        use_cookies=False,
        cookies={},
        encoding="",
        decode_html=False,
        cut=[],
        certificates=True,
        max_body_bytes=max(run.downloader.max_body_bytes, MAX_CONTENT_BYTES),
        timeout_seconds=download_timeout(settings),
        # Not sent, as headers are exact: the name that robots.txt is read for.
        user_agent=str(settings.get("ROBOTSTXT_USER_AGENT") or settings.get("USER_AGENT") or ""),
        obey_robots=settings.getbool(OBEY_ROBOTS),
        verify_tls=_verifies(settings),
        tls_minimum=minimum or run.downloader.tls_minimum,
        tls_maximum=maximum or run.downloader.tls_maximum,
        tls_ciphers="" if ciphers == "DEFAULT" else str(ciphers),
    )


def _verifies(settings: BaseSettings) -> bool:
    factory: Any = settings.get("DOWNLOADER_CLIENTCONTEXTFACTORY")
    name = factory if isinstance(factory, str) else getattr(factory, "__name__", "")
    return settings.getbool("DOWNLOAD_VERIFY_CERTIFICATES") or name.endswith(
        "BrowserLikeContextFactory"
    )


def _tls_versions(settings: BaseSettings) -> tuple[str, str]:
    """Return the lowest and the highest version; "" leaves it to OpenSSL. Raises ``ValueError``."""
    method = str(settings.get("DOWNLOADER_CLIENT_TLS_METHOD") or "TLS")
    versions: list[str] = []
    for name in ("DOWNLOAD_TLS_MIN_VERSION", "DOWNLOAD_TLS_MAX_VERSION"):
        version = str(settings.get(name) or method)
        if version not in _TLS_VERSIONS:
            raise ValueError(f"Unknown {name} value: {version}")
        versions.append(_TLS_VERSIONS[version])
    return versions[0], versions[1]
