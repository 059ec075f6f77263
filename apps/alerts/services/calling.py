"""The one place from which channels reach the network: public addresses, and those allowed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from django.conf import settings

from apps.alerts.engine.channels import Answer, Call
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind

if TYPE_CHECKING:
    from yardkit.fetcher import Fetched

TIMEOUT_SECONDS: Final = 10.0
_MOST_ANSWER_BYTES: Final = 64 * 1024


class NoAnswer(Exception):
    """Nothing came back; the text says why, and may hold parts of the address."""


class AddressNotAllowed(Exception):
    """The address is not public, and ALERTS_ALLOWED_NETWORKS does not name it."""


def call(asked: Call) -> Answer:
    """Send it and wait for the answer. Raises ``NoAnswer`` and ``AddressNotAllowed``.

    The guard sits where sockets are made, and redirects are answers, so that a name that changes
    its address leads nowhere.
    """
    got = asyncio.run(_fetch(asked))
    if got.failure is FailureKind.ADDRESS_REFUSED:
        raise AddressNotAllowed
    if got.failure is not FailureKind.NONE:
        raise NoAnswer(f"{got.failure}: {got.error}" if got.error else str(got.failure))
    names = {name.lower(): value for name, value in got.headers}
    return Answer(status=got.status, body=got.body, headers=names)


async def _fetch(asked: Call) -> Fetched:
    # Only here: it takes a quarter of a second, and every web process reads this module.
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
