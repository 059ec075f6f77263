"""Failures of downloads as the exceptions that the installed Scrapy raises for them.

Since 2.15 Scrapy has exceptions of its own; before, projects list those of Twisted in
``RETRY_EXCEPTIONS`` and check for them in errbacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import scrapy.exceptions
from scrapy.exceptions import IgnoreRequest, NotSupported
from twisted.internet import error
from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure
from twisted.web.client import ResponseFailed, ResponseNeverReceived

from yardkit.protocol import FailureKind

# "robots": the center refused it; "lost": neither center nor agents answered.
Kind: TypeAlias = FailureKind | Literal["robots", "lost"]
ExceptionMaker: TypeAlias = Callable[[str], Exception]

HAS_OWN_EXCEPTIONS: Final = hasattr(scrapy.exceptions, "DownloadTimeoutError")


class DownloadRefused(Exception):
    """The platform refuses a request, or it cannot be sent; a retry would end alike.

    No exception of Scrapy, so that its ``RetryMiddleware`` does not retry.
    """


# Twisted's classes have no types.
_failure: Final[Any] = Failure
_response_failed: Final[Any] = ResponseFailed
_never_received: Final[Any] = ResponseNeverReceived


def _lost(text: str) -> list[Any]:
    return [_failure(error.ConnectionLost(text))]


_TWISTED: Final[dict[str, ExceptionMaker]] = {
    "timeout": error.TimeoutError,
    "dns": error.DNSLookupError,
    "refused": error.ConnectionRefusedError,
    "cancelled": CancelledError,
    "scheme": NotSupported,
    "data_loss": lambda text: _response_failed(_lost(text)),
    "reset": lambda text: _never_received(_lost(text)),
    "connection": error.ConnectError,
    "failed": lambda text: _never_received(_lost(text)),
}


def _own() -> dict[str, ExceptionMaker]:
    exceptions = scrapy.exceptions
    return {
        "timeout": exceptions.DownloadTimeoutError,
        "dns": exceptions.CannotResolveHostError,
        "refused": exceptions.DownloadConnectionRefusedError,
        "cancelled": exceptions.DownloadCancelledError,
        "scheme": exceptions.UnsupportedURLSchemeError,
        "data_loss": exceptions.ResponseDataLossError,
        "reset": exceptions.DownloadFailedError,
        "connection": exceptions.DownloadFailedError,
        "failed": exceptions.DownloadFailedError,
    }


_EXCEPTIONS: Final = _own() if HAS_OWN_EXCEPTIONS else _TWISTED

_BY_KIND: Final[dict[str, str]] = {
    FailureKind.TIMEOUT: "timeout",
    "lost": "timeout",
    FailureKind.DNS: "dns",
    FailureKind.REFUSED: "refused",
    FailureKind.TOO_LARGE: "cancelled",
    FailureKind.DATA_LOSS: "data_loss",
    FailureKind.RESET: "reset",
    FailureKind.CONNECTION: "connection",
    FailureKind.TLS: "failed",
    FailureKind.BAD_CONTENT: "failed",
    FailureKind.BANNED: "failed",
    FailureKind.PROXY: "failed",
    FailureKind.BODY_STORE: "failed",
    FailureKind.DOWNLOADER_MISSING: "failed",
}


def unsupported_scheme(url: str) -> Exception:
    """Return the exception for a URL that is neither http nor https."""
    return _EXCEPTIONS["scheme"](f"{url}: agents download http and https")


def failure(kind: Kind, text: str) -> Exception:
    """Return the exception for a failed download."""
    if kind == "robots":
        return IgnoreRequest("Forbidden by robots.txt")
    name = _BY_KIND.get(kind)
    return DownloadRefused(f"{kind}: {text}") if name is None else _EXCEPTIONS[name](text)
