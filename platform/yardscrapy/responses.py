"""Results of agents as responses of Scrapy: classes, flags, limits, signals."""

from __future__ import annotations

import ipaddress
import logging
from typing import Any, Final

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import StopDownload
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from twisted.python.failure import Failure

from yardkit.protocol import DownloadResult, FailureKind, header_pairs
from yardscrapy import texts
from yardscrapy.client import ClientResult
from yardscrapy.failures import failure
from yardscrapy.request_rows import note_download

# Under the name that projects filter their logs by.
log = logging.getLogger("scrapy.core.downloader.handlers.http11")

AGENT: Final = "crawlyard_agent"
_tls_log = logging.getLogger("scrapy.core.downloader.tls")
_CHUNK_BYTES: Final = 64 * 1024


class ResponseMaker:
    """Makes the response, or raises the exception, of each download of one crawler."""

    def __init__(self, crawler: Crawler, *, chained: bool) -> None:
        settings = crawler.settings
        self._crawler = crawler
        self._chained = chained
        self._maxsize = settings.getint("DOWNLOAD_MAXSIZE")
        self._warnsize = settings.getint("DOWNLOAD_WARNSIZE")
        self._fail_on_dataloss = settings.getbool("DOWNLOAD_FAIL_ON_DATALOSS")
        self._has_warned_of_dataloss = False
        self._logs_tls = settings.getbool("DOWNLOADER_CLIENT_TLS_VERBOSE_LOGGING")

    def maxsize(self, request: Request) -> int:
        """Return the largest body that the request takes; 0 for any."""
        return int(request.meta.get("download_maxsize", self._maxsize) or 0)

    def response(self, request: Request, url: str, answer: ClientResult) -> Response:
        """Return the response to a request for ``url``. Raises the exception of a failure."""
        if answer.agent:
            request.meta[AGENT] = answer.agent
        note_download(request, answer)
        result = answer.result
        if result is None or not result.status:
            if answer.kind == "robots":
                self._count("robotstxt/forbidden")
                log.debug("Forbidden by robots.txt: %s", request)
            if answer.kind is FailureKind.TIMEOUT:
                raise failure(answer.kind, texts.timeout(url, request.meta["download_timeout"]))
            raise failure(answer.kind, answer.error)
        latency_ms = result.headers_ms or result.elapsed_ms
        request.meta["download_latency"] = latency_ms / 1000.0
        headers = _headers(result)
        if stop := self._stopped(signals.headers_received, request, result, headers=headers):
            return self._made(request, url, result, headers, b"", ["download_stopped"], stop)
        self._check_size(request, result)
        body, stop = self._received(request, result.body)
        if stop is not None:
            return self._made(request, url, result, headers, body, ["download_stopped"], stop)
        flags = []
        if result.failure is FailureKind.DATA_LOSS:
            self._check_dataloss(request, result)
            flags.append("dataloss")
        elif result.failure is not FailureKind.NONE:
            raise failure(result.failure, result.error)
        return self._made(request, url, result, headers, body, flags)

    def _made(
        self,
        request: Request,
        url: str,
        result: DownloadResult,
        headers: Headers,
        body: bytes,
        flags: list[str],
        stop: StopDownload | None = None,
    ) -> Response:
        if self._chained:
            flags.append(f"agent={request.meta[AGENT]}")
        if self._logs_tls and result.certificate:
            _log_certificate(result.certificate)
        kind = responsetypes.from_args(headers=headers, url=url, body=body)
        response = kind(
            url=url,
            status=result.status,
            headers=headers,
            body=body,
            flags=flags,
            certificate=_certificate(result.certificate),
            ip_address=_address(result.peer),
            protocol=result.protocol or None,
        )
        if stop is not None and stop.fail:
            stop.response = response
            raise stop
        return response

    # --- limits ---------------------------------------------------------------------------------

    def _check_size(self, request: Request, result: DownloadResult) -> None:
        limit = self.maxsize(request)
        expected = result.length >= 0
        size = result.length if expected else len(result.body)
        if result.failure is FailureKind.TOO_LARGE or result.truncated:
            # An agent has a limit of its own, which is lower: that of one message.
            if expected and size > limit > 0:
                text = texts.maxsize(size, limit, request, expected=True)
            elif limit and not expected and f"{limit} bytes" in result.error:
                text = texts.maxsize(limit + 1, limit, request, expected=False)
            else:
                text = f"{result.error or 'the agent has cut the body'} in request {request}."
            log.warning(text)
            raise failure(FailureKind.TOO_LARGE, text)
        warnsize = int(request.meta.get("download_warnsize", self._warnsize) or 0)
        if warnsize and size > warnsize:
            log.warning(texts.warnsize(size, warnsize, request, expected=expected))

    def _check_dataloss(self, request: Request, result: DownloadResult) -> None:
        if not request.meta.get("download_fail_on_dataloss", self._fail_on_dataloss):
            return
        if not self._has_warned_of_dataloss:
            self._has_warned_of_dataloss = True
            log.warning(texts.dataloss(request.url))
        raise failure(FailureKind.DATA_LOSS, result.error)

    # --- signals --------------------------------------------------------------------------------

    def _received(self, request: Request, body: bytes) -> tuple[bytes, StopDownload | None]:
        """Signal the parts of a body; return what was received until a receiver stopped it."""
        for start in range(0, len(body), _CHUNK_BYTES):
            end = start + _CHUNK_BYTES
            stop = self._sent(signals.bytes_received, request, data=body[start:end])
            if stop is not None:
                return body[:end], stop
        return body, None

    def _stopped(
        self, signal: object, request: Request, result: DownloadResult, *, headers: Headers
    ) -> StopDownload | None:
        length = result.length if result.length >= 0 else texts.UNKNOWN_LENGTH
        return self._sent(signal, request, headers=headers, body_length=length)

    def _sent(self, signal: object, request: Request, **values: Any) -> StopDownload | None:
        sent = self._crawler.signals.send_catch_log(
            signal=signal, request=request, spider=self._crawler.spider, **values
        )
        for receiver, answer in sent:
            if isinstance(answer, Failure) and isinstance(answer.value, StopDownload):
                log.debug(
                    "Download stopped for %(request)s from signal handler %(handler)s",
                    {"request": request, "handler": receiver.__qualname__},
                )
                return answer.value
        return None

    def _count(self, name: str) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(name)


def _headers(result: DownloadResult) -> Headers:
    pairs = header_pairs(result.headers)
    if not result.protocol:
        # An older agent, which has decoded the body and left the header.
        pairs = [pair for pair in pairs if pair[0].lower() != b"content-encoding"]
    return Headers(pairs)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text) if text else None
    except ValueError:
        return None


def _certificate(der: bytes) -> Any:
    """Return a certificate as Twisted's handler does, the default of every version."""
    if not der:
        return None
    from twisted.internet.ssl import Certificate

    return Certificate.loadPEM(_pem(der))


def _log_certificate(der: bytes) -> None:
    from cryptography.x509 import load_der_x509_certificate

    certificate = load_der_x509_certificate(der)
    _tls_log.debug(
        'SSL connection certificate: issuer "%s", subject "%s"',
        certificate.issuer.rfc4514_string(),
        certificate.subject.rfc4514_string(),
    )


def _pem(der: bytes) -> bytes:
    import ssl

    return ssl.DER_cert_to_PEM_cert(der).encode()
