"""Kinds of failed downloads by the exceptions of the HTTP client."""

from __future__ import annotations

import errno
import ssl
from typing import Final

import aiohttp
from yarl import URL

from yardkit import addresses
from yardkit.addresses import AddressFault, AddressRefused
from yardkit.content import BadContent
from yardkit.protocol import DownloadRequest, FailureKind

_ERROR_CHARACTERS: Final = 300
_RESETS: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})


def classify(
    error: Exception, request: DownloadRequest, networks: tuple[addresses.Network, ...]
) -> tuple[FailureKind, str]:
    """Return the failure kind and text of an exception."""
    if isinstance(error, TimeoutError):
        return FailureKind.TIMEOUT, "no complete answer in time"
    if isinstance(error, (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError)):
        return FailureKind.PROXY, text_of(error)
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return FailureKind.TLS, text_of(error)
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, AddressRefused):
            return FailureKind.ADDRESS_REFUSED, text_of(error.os_error)
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return FailureKind.DNS, text_of(error.os_error)
        refused = error.os_error.errno == errno.ECONNREFUSED
        kind = FailureKind.REFUSED if refused else FailureKind.CONNECTION
        return kind, text_of(error.os_error)
    if isinstance(error, aiohttp.TooManyRedirects):
        return FailureKind.TOO_MANY_REDIRECTS, "too many redirects"
    if isinstance(error, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)):
        return _classify_url(error, request, networks)
    if isinstance(error, BadContent):
        return FailureKind.BAD_CONTENT, text_of(error)
    if isinstance(error, aiohttp.ClientResponseError):
        return FailureKind.BAD_CONTENT, shortened(f"no valid HTTP: {error.message}")
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError) or (
        isinstance(error, OSError) and error.errno in _RESETS
    ):
        return FailureKind.RESET, text_of(error)
    if isinstance(error, (aiohttp.ClientError, OSError)):
        return FailureKind.CONNECTION, text_of(error)
    return FailureKind.BAD_REQUEST, text_of(error)


def _classify_url(
    error: Exception, request: DownloadRequest, networks: tuple[addresses.Network, ...]
) -> tuple[FailureKind, str]:
    """Return the failure of a URL that the client rejected."""
    text = str(getattr(error, "url", request.url))
    try:
        host = URL(text).host or text
    except ValueError:
        host = text
    verdict = addresses.check_address(host, allowed_networks=networks, resolve=lambda _: ())
    if verdict.problem == AddressFault.BLOCKED:
        return FailureKind.ADDRESS_REFUSED, shortened(f"{host}: {verdict.reason}")
    return FailureKind.BAD_REQUEST, shortened(f"bad URL: {error}")


def text_of(error: BaseException) -> str:
    return shortened(str(error) or type(error).__name__)


def shortened(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")[:_ERROR_CHARACTERS]
