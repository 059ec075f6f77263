"""Leased requests and results of their downloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

from apps.requeststore.engine.entity import Entity
from apps.requeststore.engine.errors import RequestStoreUnavailable, UnknownNode
from apps.requeststore.queues.base import TakenEntry
from apps.requeststore.sinks.base import SinkUnavailable
from apps.requeststore.stores.base import HistoryStepKind, StoredRequest
from apps.runtime.errors import DATABASE_AWAY
from yardkit.broker import BrokerError
from yardkit.protocol import DownloadRequest, FailureKind

# An outage rather than a fault of one request: the same work is repeated later.
OUTAGES: Final = (
    RequestStoreUnavailable,
    SinkUnavailable,
    UnknownNode,
    BrokerError,
    *DATABASE_AWAY,
    OSError,
)
# Statuses worth a retry.
_PASSING: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
# Failures that a retry does not fix.
_LASTING: Final = frozenset({FailureKind.ADDRESS_REFUSED, FailureKind.BAD_REQUEST})


@dataclass(slots=True, eq=False)
class LeasedRequest:
    """Leased request.

    ``expires``: end of the lease by the event loop's clock. ``parts``: the services that end it,
    those of the plan under which it was taken.
    """

    taken: TakenEntry
    request: StoredRequest
    entity: Entity
    expires: float
    parts: Any = None

    @property
    def again(self) -> bool:
        """Return whether an earlier lease may have stored records: it was not returned.

        A fetcher returns no request whose records it has begun to store.
        """
        returned = sum(step.kind is HistoryStepKind.RETURNED for step in self.request.steps)
        return returned < self.request.tries - 1


@dataclass(frozen=True, slots=True)
class DownloadedPage:
    """Downloaded page. ``url``: after redirects; ``body``: without HTTP compression."""

    url: str
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    elapsed_ms: float = 0.0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """Failure of a download or an extraction.

    ``lasting``: a retry would not help. ``untried``: not the request's fault, for example a
    shutdown; it costs no try. ``status``: of the HTTP answer, 0 without one.
    """

    text: str
    lasting: bool = False
    untried: bool = False
    status: int = 0


Result: TypeAlias = DownloadedPage | RequestFailure


def host_of(url: str) -> str:
    """Return the host by which limits are kept; "" for a URL without one."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def download_of(
    entity: Entity, *, headers: Mapping[str, str], timeout_seconds: float
) -> DownloadRequest:
    """Return the download request for an agent. ``headers``: defaults of the biz."""
    return DownloadRequest(
        url=_with_params(entity.url, entity.params),
        method=entity.method,
        headers={**headers, **entity.headers},
        body=entity.body,
        timeout_seconds=timeout_seconds,
    )


def _with_params(url: str, params: Mapping[str, str]) -> str:
    if not params:
        return url
    address, mark, fragment = url.partition("#")
    joint = "" if address.endswith(("?", "&")) else "&" if "?" in address else "?"
    return f"{address}{joint}{urlencode(params)}{mark}{fragment}"


def trouble_of_status(status: int) -> RequestFailure | None:
    """Return the failure of an HTTP status that no rule accepts; None for success."""
    if status < HTTPStatus.BAD_REQUEST:
        return None
    passing = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _PASSING
    return RequestFailure(f"HTTP {status}", lasting=not passing, status=status)


def result_of(
    *,
    url: str,
    status: int,
    headers: list[tuple[str, str]],
    body: bytes,
    failure: FailureKind,
    error: str,
    elapsed_ms: float,
    truncated: bool,
) -> Result:
    """Convert an answer of a downloader into a page or a failure."""
    if failure is not FailureKind.NONE:
        return RequestFailure(f"{failure.value}: {error}", lasting=failure in _LASTING)
    return DownloadedPage(url, status, headers, body, elapsed_ms, truncated)
