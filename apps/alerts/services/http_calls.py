"""HTTP client of the channels, restricted to public addresses and ALERTS_ALLOWED_NETWORKS."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from django.conf import settings

from apps.alerts.engine.channels import ChannelRequest, ChannelResponse
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind

if TYPE_CHECKING:
    from yardkit.fetched import Fetched

TIMEOUT_SECONDS: Final = 10.0
_MOST_ANSWER_BYTES: Final = 64 * 1024


class NoResponse(Exception):
    """No HTTP response; the message says why and may contain parts of the URL."""


class AddressNotAllowed(Exception):
    """The address is neither public nor in ALERTS_ALLOWED_NETWORKS."""


def call(asked: ChannelRequest) -> ChannelResponse:
    """Send a request and wait for the response. Raises ``NoResponse`` and ``AddressNotAllowed``.

    Addresses are checked when the socket connects, and redirects are not followed, so DNS rebinding
    cannot reach internal hosts.
    """
    got = asyncio.run(_fetch(asked))
    if got.failure is FailureKind.ADDRESS_REFUSED:
        raise AddressNotAllowed
    if got.failure is not FailureKind.NONE:
        raise NoResponse(f"{got.failure}: {got.error}" if got.error else str(got.failure))
    names = {name.lower(): value for name, value in got.headers}
    return ChannelResponse(status=got.status, body=got.body, headers=names)


async def _fetch(asked: ChannelRequest) -> Fetched:
    # Imported late: it takes 250 ms, and every web process imports this module.
    from yardkit.fetcher import Fetcher

    fetcher = Fetcher(
        DownloaderSettings(
            concurrency=1,
            timeout_seconds=TIMEOUT_SECONDS,
            max_body_bytes=_MOST_ANSWER_BYTES,
            follow_redirects=False,
            use_cookies=False,
            user_agent="crawlyard",
            allowed_networks=list(settings.ALERTS_ALLOWED_NETWORKS),
        )
    )
    request = DownloadRequest(
        url=asked.url,
        method=asked.method,
        headers=dict(asked.headers),
        body=asked.body,
        timeout_seconds=TIMEOUT_SECONDS,
    )
    try:
        return await fetcher.fetch(request)
    finally:
        await fetcher.close()
