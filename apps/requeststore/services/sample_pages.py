"""Sample pages for rule tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from django.db import transaction
from django.utils.translation import gettext as _

from apps.access.models import User
from apps.access.services import record
from apps.projects.models import Project
from apps.requeststore.engine.biz import Biz
from apps.requeststore.errors import BadSample, NotFetched, TooManySamples
from apps.requeststore.extraction import ResponsePage
from apps.requeststore.extraction.page import absolute
from apps.requeststore.models import SamplePage
from yardkit.protocol import DownloaderSettings, DownloadRequest

if TYPE_CHECKING:
    from yardkit.fetched import Fetched

MAX_BODY_BYTES: Final = 1024 * 1024
MAX_SAMPLES: Final = 50
_MAX_HEADERS: Final = 100
_MAX_HEADER: Final = 2000
_TIMEOUT_SECONDS: Final = 20.0
# Cookies are secrets, and no rule needs them.
_NEVER_KEPT: Final = frozenset(
    {"set-cookie", "set-cookie2", "authorization", "proxy-authorization", "www-authenticate"}
)


@transaction.atomic
def keep_page(
    *,
    project: Project,
    biz: str,
    rule: str,
    page: ResponsePage,
    actor: User | None,
    fetched: bool = False,
) -> SamplePage:
    """Store a page without cookies.

    Raises:
        BadSample: larger than 1 MiB, or not an http or https URL.
        TooManySamples: the biz has 50 already.
    """
    if len(page.body) > MAX_BODY_BYTES:
        text = _("At most %(most)d bytes.") % {"most": MAX_BODY_BYTES}
        raise BadSample(fields={"body": [text]})
    url = absolute(page.url, "")
    if url is None:
        raise BadSample(fields={"url": [_("Use an http or https URL.")]})
    # Locked: concurrent calls must not exceed the limit.
    Project.objects.select_for_update().get(pk=project.pk)
    if SamplePage.objects.filter(project=project, biz=biz).count() >= MAX_SAMPLES:
        raise TooManySamples
    sample = SamplePage.objects.create(
        project=project,
        biz=biz,
        rule=rule,
        url=url,
        status=page.status,
        headers=kept_headers(page.headers),
        body=page.body,
        truncated=page.truncated,
        fetched=fetched,
        created_by=actor.get_username() if actor is not None else "",
    )
    after = {"biz": biz, "rule": rule, "url": url, "bytes": len(page.body)}
    record(actor=actor, action="requeststore.add_samplepage", obj=sample, after=after)
    return sample


@transaction.atomic
def drop_page(*, sample: SamplePage, actor: User | None) -> None:
    """Delete a sample page."""
    before = {"biz": sample.biz, "rule": sample.rule, "url": sample.url}
    record(actor=actor, action="requeststore.delete_samplepage", obj=sample, before=before)
    sample.delete()


def fetch_page(*, project: Project, biz: Biz, url: str) -> ResponsePage:
    """Download a URL with the settings of the biz and the project's networks.

    Raises:
        BadSample: not an http or https URL.
        NotFetched: no answer; the text says why.
    """
    if absolute(url, "") is None:
        raise BadSample(fields={"url": [_("Use an http or https URL.")]})
    try:
        settings = msgspec.convert(
            biz.fetch.downloader
            | {
                "allowed_networks": list(project.allowed_networks),
                "max_body_bytes": MAX_BODY_BYTES,
                "timeout_seconds": min(_TIMEOUT_SECONDS, biz.fetch.timeout_seconds),
            },
            DownloaderSettings,
        )
        fetched = asyncio.run(_fetched(settings, url, biz.fetch.headers))
    except (msgspec.ValidationError, ValueError) as error:
        raise NotFetched(str(error)[:300]) from None
    if fetched.failure:
        raise NotFetched(f"{NotFetched.detail} {fetched.error}"[:500])
    return ResponsePage(
        url=fetched.url,
        status=fetched.status,
        headers=list(fetched.headers),
        body=fetched.body,
        truncated=fetched.truncated,
    )


async def _fetched(settings: DownloaderSettings, url: str, headers: dict[str, str]) -> Fetched:
    # Imported on demand: the import takes 0.25 s in every web process.
    from yardkit.fetcher import Fetcher

    fetcher = Fetcher(settings)
    try:
        return await fetcher.fetch(DownloadRequest(url=url, headers=headers))
    finally:
        await fetcher.close()


def kept_headers(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the response headers that may be stored."""
    kept = [(name, value) for name, value in headers if name.lower() not in _NEVER_KEPT]
    return [(name[:200], value[:_MAX_HEADER]) for name, value in kept[:_MAX_HEADERS]]


def page_of(sample: SamplePage) -> ResponsePage:
    """Return the stored page for extraction."""
    return ResponsePage(
        url=sample.url,
        status=sample.status,
        headers=[(str(name), str(value)) for name, value in sample.headers],
        body=bytes(sample.body),
        truncated=sample.truncated,
    )
