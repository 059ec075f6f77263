"""Lazily opened Elasticsearch client, and translation of the server's errors."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

import msgspec
from elasticsearch import (
    ApiError,
    AuthorizationException,
    Elasticsearch,
    TransportError,
    UnsupportedProductError,
)

from apps.joblogs.stores.base import LogStoreUnavailable
from apps.joblogs.stores.elastic.address import ElasticAddress
from yardkit.backoff import back_off
from yardkit.log_lines import one_line

# The client would log every request, and failures with a traceback; here they are raised.
logging.getLogger("elastic_transport").setLevel(logging.ERROR)

Answer = dict[str, Any]

REQUEST_SECONDS: Final = 15.0
# Bytes of a bulk request, well below the limits of servers and proxies.
BULK_OPERATIONS: Final = 2000
BULK_BYTES: Final = 4 * 1024 * 1024
# Pauses between retries of an overloaded operation; then the call fails, and its caller waits.
TRIES: Final = 6
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 2.0
OK: Final = range(200, 300)
CONFLICT: Final = 409
NOT_FOUND: Final = 404
BLOCKED: Final = 403
TOO_LARGE: Final = 413
_TEXT: Final = 300
_CLIENT: Final = version("elasticsearch")
_WRITE_BLOCK: Final = "index.blocks.write"
_OTHER_VERSION: Final = re.compile(r"Accept version must be either version (\d+) or")
# Temporary errors: a full queue, a full disk, a moving shard.
_FOR_NOW: Final = frozenset({403, 408, 429, 500, 502, 503, 504})
# Errors for which a retry within the call helps.
_BRIEF: Final = frozenset({408, 429, 502, 503, 504})


@dataclass(slots=True)
class BulkOperation:
    """One or two lines of a bulk request. ``head``: such as ``{"create": {"_index": ...}}``."""

    head: dict[str, dict[str, Any]]
    document: Any = None
    body: bytes = field(init=False)

    def __post_init__(self) -> None:
        encode = msgspec.json.encode
        ends = [self.head] if self.document is None else [self.head, self.document]
        self.body = b"\n".join(map(encode, ends))


@dataclass(frozen=True, slots=True)
class BulkResult:
    """Result of one bulk operation."""

    status: int
    error: str = ""
    seq_no: int = -1
    primary_term: int = -1


class ElasticConnection:
    """Client of one Elasticsearch. Thread-safe; a forked process opens its own connections.

    Every method raises ``LogStoreUnavailable``; its text contains no password.
    """

    def __init__(self, address: ElasticAddress) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._made: Elasticsearch | None = None
        self._abandoned: list[object] = []

    @property
    def client(self) -> Elasticsearch:
        """Return the library's client, which connects by itself."""
        with self._lock:
            if os.getpid() != self._process:
                # The connection of the parent process is neither used nor closed: both would share
                # its sockets.
                self._abandoned.append(self._made)
                self._made, self._process = None, os.getpid()
            if self._made is None:
                self._made = _make(self.address)
            return self._made

    def close(self) -> None:
        """Close the sockets; a later call connects again."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None and os.getpid() == self._process:
            made.close()

    def ask(self, call: Callable[[Elasticsearch], Any], *, missing: Any = None) -> Any:
        """Return the body of the answer, or ``missing`` (if given) for a 404."""
        try:
            return call(self.client).body
        except (ApiError, TransportError) as error:
            if missing is not None and _status(error) == NOT_FOUND:
                return missing
            raise self._unavailable(error) from error

    def search(self, indexes: str, body: Answer) -> Answer:
        """Execute ``_search``; a missing index counts as empty.

        All shards must answer, so that a partial log is never shown as a whole one.
        """

        def call(client: Elasticsearch) -> Any:
            return client.search(
                index=indexes,
                body=body,
                ignore_unavailable=True,
                allow_no_indices=True,
                allow_partial_search_results=False,
            )

        answer: Answer = self.ask(call)
        if answer.get("timed_out"):
            raise LogStoreUnavailable(f"Elasticsearch at {self.address.shown}: a search timed out")
        return answer

    def refresh(self, indexes: str) -> None:
        """Make written documents searchable."""
        self.ask(
            lambda client: client.indices.refresh(
                index=indexes, ignore_unavailable=True, allow_no_indices=True
            )
        )

    def counts(self, indexes: str) -> dict[str, int]:
        """Return the number of documents of each index, without those not refreshed yet."""
        answer: Answer = self.ask(
            lambda client: client.indices.stats(index=indexes, metric="docs"), missing={}
        )
        indexes_stats = answer.get("indices", {})
        return {name: stats["primaries"]["docs"]["count"] for name, stats in indexes_stats.items()}

    def write_blocked(self, indexes: str) -> set[str]:
        """Return the indexes that refuse writes by a setting."""
        answer: Answer = self.ask(
            lambda client: client.indices.get_settings(
                index=indexes, name=_WRITE_BLOCK, flat_settings=True, ignore_unavailable=True
            )
        )
        return {
            name
            for name, settings in answer.items()
            if settings["settings"].get(_WRITE_BLOCK) == "true"
        }

    def block_writes(self, index: str) -> bool:
        """Block writes to an index; running ones have ended when this returns.

        False: the user lacks the privilege ``manage``.
        """
        try:
            self.ask(lambda client: client.indices.add_block(index=index, block="write"))
        except LogStoreUnavailable as error:
            if isinstance(error.__cause__, AuthorizationException):
                return False
            raise
        return True

    def unblock_writes(self, index: str) -> None:
        """Remove the write block of an index."""
        self.ask(
            lambda client: client.indices.put_settings(
                index=index, settings={_WRITE_BLOCK: None}, ignore_unavailable=True
            )
        )

    def bulk(self, operations: Sequence[BulkOperation]) -> list[BulkResult]:
        """Execute bulk operations; return their results in order. Retried while the server is
        overloaded.
        """
        results: list[BulkResult | None] = [None] * len(operations)
        left = list(range(len(operations)))
        for attempt in range(TRIES):
            if attempt:
                # Blocking is fine here: the thread has nothing else to do.
                time.sleep(back_off(attempt, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS))
            for places in _pieces(operations, left):
                for place, result in zip(
                    places, self._send([operations[place] for place in places]), strict=True
                ):
                    results[place] = result
            left = [place for place in left if _is_brief(operations[place], results[place])]
            if not left:
                break
        complete = [result for result in results if result is not None]
        for result in complete:
            if result.status in _FOR_NOW:
                raise LogStoreUnavailable(
                    f"Elasticsearch at {self.address.shown} takes nothing for now: {result.error}"
                )
        return complete

    def _send(self, operations: list[BulkOperation]) -> list[BulkResult]:
        """Send one bulk request, split in halves while it is too large."""
        # Already encoded, which the client's types do not allow for.
        body: Any = [operation.body for operation in operations]
        try:
            answer = self.client.bulk(operations=body).body
        except (ApiError, TransportError) as error:
            status = _status(error)
            if status == TOO_LARGE and len(operations) > 1:
                half = len(operations) // 2
                return self._send(operations[:half]) + self._send(operations[half:])
            if status == TOO_LARGE:
                return [BulkResult(TOO_LARGE, "it is larger than the server accepts")]
            if status in _BRIEF:
                return [BulkResult(status, one_line(str(error))[:_TEXT])] * len(operations)
            raise self._unavailable(error) from error
        return [_result(item) for item in answer["items"]]

    def _unavailable(self, error: ApiError | TransportError) -> LogStoreUnavailable:
        text = one_line(str(error))[:_TEXT]
        if isinstance(error, TransportError):
            reason = f"does not answer: {text}"
        elif isinstance(error, UnsupportedProductError):
            reason = "is not an Elasticsearch server"
        elif older := _OTHER_VERSION.search(str(error)):
            reason = (
                f"is of version {older[1]}, which the installed client {_CLIENT} does not"
                f" support: pip install 'elasticsearch>={older[1]},<{int(older[1]) + 1}'"
            )
        elif error.status_code in (401, 403):
            reason = f"refuses access: {text}"
        else:
            reason = f"refuses: {text}"
        return LogStoreUnavailable(f"Elasticsearch at {self.address.shown} {reason}")


def _status(error: ApiError | TransportError) -> int:
    return error.status_code if isinstance(error, ApiError) else 0


def _make(address: ElasticAddress) -> Elasticsearch:
    options: dict[str, Any] = {}
    if address.user:
        options["basic_auth"] = (address.user, address.password)
    if address.api_key:
        options["api_key"] = address.api_key
    if address.ca:
        options["ca_certs"] = address.ca
    return Elasticsearch(
        list(address.nodes),
        request_timeout=REQUEST_SECONDS,
        # The client must not retry by itself: what a lost answer means depends on the request.
        max_retries=0,
        retry_on_timeout=False,
        **options,
    )


def _pieces(operations: Sequence[BulkOperation], places: Sequence[int]) -> list[list[int]]:
    pieces: list[list[int]] = []
    size = 0
    for place in places:
        length = len(operations[place].body)
        if not pieces or len(pieces[-1]) == BULK_OPERATIONS or size + length > BULK_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(place)
        size += length
    return pieces


def _is_brief(operation: BulkOperation, result: BulkResult | None) -> bool:
    """Return whether the operation may succeed in a moment."""
    if result is None or result.status in _BRIEF:
        return True
    # The index is being dropped: blocked for writes, or deleted and not created again yet.
    if result.status == NOT_FOUND:
        return "create" in operation.head
    return result.status == BLOCKED and result.error.startswith("cluster_block_exception")


def _result(item: Answer) -> BulkResult:
    ((_kind, result),) = item.items()
    error = result.get("error")
    text = ""
    if error:
        cause = error.get("caused_by") or {}
        reasons = [error.get("type"), error.get("reason"), cause.get("reason")]
        text = one_line(": ".join(str(reason) for reason in reasons if reason))[:_TEXT]
    return BulkResult(
        result["status"], text, result.get("_seq_no", -1), result.get("_primary_term", -1)
    )
