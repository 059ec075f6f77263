"""Rows of the requests of a run: one for each request that has ended."""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

# Largest saved request, as JSON: what is needed to make a failed request again.
MAX_SAVED_BYTES: Final = 64 * 1024
MAX_TRACEBACK_CHARACTERS: Final = 4000
_ERROR_CHARACTERS: Final = 500
_URL_CHARACTERS: Final = 2000
_GROUP_CHARACTERS: Final = 300
# What differs between failures of one kind: addresses, quoted values, numbers.
_VARIABLE: Final = re.compile(r"https?://\S+|'[^']*'|\"[^\"]*\"|0x[0-9a-fA-F]+|[0-9]+")


class RequestOutcome(enum.StrEnum):
    """How a request has ended. ``REFUSED``: robots.txt forbids it."""

    SUCCESS = "success"
    FAILED = "failed"
    REFUSED = "refused"


class RequestRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One ended request, with all its attempts.

    ``id`` counts from 1 in (run, incarnation), and is that of the messages to agents; ``parent`` is
    the request whose page it was made from, 0 for a start request. ``elapsed_ms`` and ``bytes`` are
    those of the last attempt. ``kind`` of a failure: that of the download, or ``http``,
    ``callback``, ``robots``, ``lost`` (no answer). Failures with the same ``group`` have the same
    cause. ``request``: what is needed to make it again, or ``not_saved``: why it cannot be made.
    """

    id: int
    url: str
    host: str
    method: str
    outcome: RequestOutcome
    status: int
    attempts: int
    elapsed_ms: int
    bytes: int
    depth: int
    items: int
    parent: int = 0
    agent: str = ""
    callback: str = ""
    kind: str = ""
    error: str = ""
    group: str = ""
    traceback: str = ""
    request: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    not_saved: str = ""

    def limit(self) -> None:
        """Cut texts that are too long."""
        self.url = self.url[:_URL_CHARACTERS]
        self.error = " ".join(self.error.split())[:_ERROR_CHARACTERS]
        self.group = self.group[:_GROUP_CHARACTERS]
        if len(self.traceback) > MAX_TRACEBACK_CHARACTERS:
            # The end names the error.
            self.traceback = "…" + self.traceback[-MAX_TRACEBACK_CHARACTERS:]


def generalized(text: str) -> str:
    """Return the text of an error without what differs between failures of one kind."""
    return _VARIABLE.sub("…", " ".join(text.split()))


def saved(request: dict[str, object]) -> tuple[msgspec.Raw | msgspec.UnsetType, str]:
    """Return a request as JSON, or why it cannot be saved: it must be the same when it is read."""
    try:
        text = msgspec.json.encode(request)
        # Tuples, times and keys that are numbers come back as something else.
        if msgspec.json.decode(text) != request:
            return msgspec.UNSET, "meta has values that JSON cannot hold"
    except (TypeError, ValueError, RecursionError) as error:
        return msgspec.UNSET, f"not writable as JSON: {str(error)[:200]}"
    if len(text) > MAX_SAVED_BYTES:
        return msgspec.UNSET, f"larger than {MAX_SAVED_BYTES} bytes"
    return msgspec.Raw(text), ""
