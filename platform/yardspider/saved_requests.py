"""Requests that a run makes instead of its start: failed ones of an earlier run."""

from __future__ import annotations

import logging
import time
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import msgspec
import zstandard

from yardspider.errors import RunFailed
from yardspider.request import Request

log = logging.getLogger("yardspider")

_SECONDS: Final = 30.0
_TRIES: Final = 5
_PLAIN: Final = (
    "url",
    "method",
    "priority",
    "meta",
    "depth",
    "timeout_seconds",
    "max_bytes",
    "timeout_retries",
    "download_retries",
)


def read_saved(address: str) -> Iterator[dict[str, Any]]:
    """Yield the requests of an object: a zstd frame of JSON lines. Raises ``RunFailed``."""
    lines = BytesIO(zstandard.ZstdDecompressor().stream_reader(_fetched(address)).readall())
    return (msgspec.json.decode(line) for line in lines)


def _fetched(address: str) -> bytes:
    for tried in range(1, _TRIES + 1):
        try:
            with urlopen(address, timeout=_SECONDS) as answer:  # noqa: S310 - of the platform
                return bytes(answer.read())
        except HTTPError as error:
            if error.code < 500:
                raise RunFailed(
                    f"the requests to make again cannot be read: HTTP {error.code}"
                ) from error
            failure: Exception = error
        except (URLError, OSError) as error:
            failure = error
        log.warning("the requests to make again cannot be read, try %d: %s", tried, failure)
        time.sleep(min(2.0 ** (tried - 1), 5.0))
    raise RunFailed(f"the requests to make again cannot be read: {failure}")


def restored(values: dict[str, Any]) -> Request:
    """Return a saved request; it is made even if the run makes the same one by itself."""
    headers = [
        (name.encode("latin-1"), value.encode("latin-1"))
        for name, value in values.get("headers", ())
    ]
    return Request(
        callback=values.get("callback") or None,
        headers=headers,
        body=b64decode(values.get("body", "")),
        dont_filter=True,
        **{name: values[name] for name in _PLAIN if name in values},
    )
