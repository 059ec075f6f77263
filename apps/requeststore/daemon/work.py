"""A request in the hands of this process, and what became of its download."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

from apps.requeststore.engine.entity import Entity
from apps.requeststore.engine.errors import StoreUnavailable, UnknownNode
from apps.requeststore.queues.base import Taken
from apps.requeststore.sinks.base import SinkUnavailable
from apps.requeststore.stores.base import StepKind, StoredRequest
from apps.runtime.errors import DATABASE_AWAY
from yardkit.broker import BrokerError
from yardkit.protocol import DownloadRequest, FailureKind

# An outage rather than a fault of one request: the same work is repeated later.
OUTAGES: Final = (
    StoreUnavailable,
    SinkUnavailable,
    UnknownNode,
    BrokerError,
    *DATABASE_AWAY,
    OSError,
)
# Asked again, these may answer otherwise.
_PASSING: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
# And these failures will not be mended by trying again.
_LASTING: Final = frozenset({FailureKind.ADDRESS_REFUSED, FailureKind.BAD_REQUEST})


@dataclass(slots=True, eq=False)
class Work:
    """``expires``: by the loop's clock; what has not ended by then is no longer ours to end.

    ``parts``: what it is to be ended with, those it was taken with.
    """

    taken: Taken
    request: StoredRequest
    entity: Entity
    expires: float
    parts: Any = None

    @property
    def again(self) -> bool:
        """An earlier owner may have stored its records: he has not given it back.

        A fetcher gives nothing back that it has begun to store.
        """
        returned = sum(step.kind is StepKind.RETURNED for step in self.request.steps)
        return returned < self.request.tries - 1


@dataclass(frozen=True, slots=True)
class Answer:
    """A page. ``url``: after redirects; ``body``: decoded from its HTTP compression."""

    url: str
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    elapsed_ms: float = 0.0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why there is no page, or why it is of no use.

    ``lasting``: trying again would not mend it. ``untried``: it is not the request's fault that
    nothing came of it, such as a fetcher that stops; ``status``: of the page, 0 without any.
    """

    text: str
    lasting: bool = False
    untried: bool = False
    status: int = 0


Result: TypeAlias = Answer | Trouble


def host_of(url: str) -> str:
    """The host of a URL as limits are kept by it; "" where there is none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def download_of(
    entity: Entity, *, headers: Mapping[str, str], timeout_seconds: float
) -> DownloadRequest:
    """As an agent needs it. ``headers``: the biz's own, below those of the request."""
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


def trouble_of_status(status: int) -> Trouble | None:
    """What is wrong with an answer that no rule has asked for."""
    if status < HTTPStatus.BAD_REQUEST:
        return None
    passing = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _PASSING
    return Trouble(f"HTTP {status}", lasting=not passing, status=status)


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
    """What a downloader's answer means for a stored request."""
    if failure is not FailureKind.NONE:
        return Trouble(f"{failure.value}: {error}", lasting=failure in _LASTING)
    return Answer(url, status, headers, body, elapsed_ms, truncated)
