"""Sends the number of wanted fetchers to a webhook.

POST of the advice as JSON to SCALE_WEBHOOK_URL, signed as in Standard Webhooks. Only the newest
number matters: it is repeated with back-off until a 2xx answer, and a newer one replaces it at
once. The state is in a row, so that no worker's death loses it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import F, Q

from apps.requeststore.models import ScaleState
from apps.requeststore.services.scale_advice import Advice
from yardkit.protocol import DownloaderSettings, DownloadRequest, FailureKind
from yardkit.standard_webhooks import signed_headers

if TYPE_CHECKING:
    from yardkit.fetched import Fetched

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS: Final = 10.0
FIRST_PAUSE_SECONDS: Final = 10.0
LONGEST_PAUSE_SECONDS: Final = 300.0
# Private networks are allowed: the URL is a setting of the operator, and autoscalers usually are
# in the private network.
_EVERYWHERE: Final = ["0.0.0.0/0", "::/0"]


def send_scale(advice: Advice) -> bool:
    """Send the wanted number unless it was acknowledged; return whether it was sent."""
    url, now = settings.SCALE_WEBHOOK_URL, advice.at
    if not url or not _claim(advice.wanted, now):
        return False
    problem = _post(url, advice)
    row = ScaleState.objects.filter(pk=1)
    if problem:
        row.update(problem=problem[:500])
        logger.warning(
            "SCALE_WEBHOOK_URL was not told that %d are wanted: %s", advice.wanted, problem
        )
        return False
    row.update(told=advice.wanted, told_at=now, problem="")
    # Unless a newer number waits to be sent.
    row.filter(wanted=advice.wanted).update(tries=0, next_try_at=None)
    logger.info("SCALE_WEBHOOK_URL knows that %d fetchers are wanted", advice.wanted)
    return True


def _claim(wanted: int, now: datetime) -> bool:
    """Claim the delivery for this worker; return whether that succeeded."""
    waiting = ScaleState.objects.filter(~Q(told=wanted) | Q(told=None), pk=1, wanted=wanted)
    due = waiting.filter(Q(next_try_at=None) | Q(next_try_at__lte=now))
    tries = due.values_list("tries", flat=True).first()
    if tries is None:
        return False
    pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(tries, 10))
    until = now + timedelta(seconds=max(pause, TIMEOUT_SECONDS * 1.5))
    return due.filter(tries=tries).update(tries=F("tries") + 1, next_try_at=until) == 1


def _post(url: str, advice: Advice) -> str:
    """Return the error; "" when acknowledged. The text does not contain the URL."""
    body = json.dumps(advice.as_dict(), cls=DjangoJSONEncoder).encode()
    message_id = f"scale_{uuid.uuid4().hex}"
    headers = {
        "Content-Type": "application/json",
        **signed_headers(
            [settings.SCALE_WEBHOOK_SECRET], message_id, int(advice.at.timestamp()), body
        ),
    }
    request = DownloadRequest(
        url=url, method="POST", headers=headers, body=body, timeout_seconds=TIMEOUT_SECONDS
    )
    answer = asyncio.run(_send(request))
    if answer.failure is not FailureKind.NONE:
        return f"no answer ({answer.failure})"
    if not 200 <= answer.status < 300:
        return f"it answers HTTP {answer.status}"
    return ""


async def _send(request: DownloadRequest) -> Fetched:
    # Imported on demand: the import takes 0.25 s in every web process.
    from yardkit.fetcher import Fetcher

    fetcher = Fetcher(
        DownloaderSettings(
            concurrency=1,
            timeout_seconds=TIMEOUT_SECONDS,
            max_body_bytes=64 * 1024,
            follow_redirects=False,
            use_cookies=False,
            user_agent="crawlyard",
            allowed_networks=_EVERYWHERE,
        )
    )
    try:
        return await fetcher.fetch(request)
    finally:
        await fetcher.close()
