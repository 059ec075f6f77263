"""Base of all messages and shared enumerations."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

VERSION: Final = 1
ACCEPTED_VERSIONS: Final = frozenset({VERSION, VERSION - 1})


class ProtocolError(ValueError):
    """A body that is no valid message: the problem and its position."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of every message; the tag ``type`` names it, ``v`` is its version."""

    v: int = VERSION


class Policy(enum.StrEnum):
    """Policy by which a run's agents are chosen."""

    RANDOM = "random"
    FIXED = "fixed"
    CHAINED = "chained"


class DownloaderType(enum.StrEnum):
    """Kind of downloader."""

    HTTP = "http"
    # Like a browser on the wire: its TLS, its HTTP/2, its order of headers.
    IMPERSONATE = "impersonate"
    # A real browser, for pages that are made by scripts.
    BROWSER = "browser"
    # Kept pages of an earlier run. Never asked for by a run: the center chooses it, and agents that
    # do not know it, which would fetch from the sites, are not allocated.
    REPLAY = "replay"
    # Files of the agent's own server, below the folder its owner has named.
    FILE = "file"


class FailureKind(enum.StrEnum):
    """Reason why a download has no usable response."""

    NONE = ""
    # No connection, for a reason that none of the next four names.
    CONNECTION = "connection"
    DNS = "dns"
    REFUSED = "refused"
    TLS = "tls"
    RESET = "reset"
    # The body ended early; status, headers and its first part come with the failure.
    DATA_LOSS = "data_loss"
    # Over the request's ``max_bytes``; status and headers come with the failure.
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    ADDRESS_REFUSED = "address_refused"
    TOO_MANY_REDIRECTS = "too_many_redirects"
    BAD_REQUEST = "bad_request"
    BAD_CONTENT = "bad_content"
    DOWNLOADER_MISSING = "downloader_missing"
    # A replay has no recorded response of this request.
    NOT_RECORDED = "not_recorded"
    # A cutting rule found no place to cut.
    BAD_RULE = "bad_rule"
    # The answer matched ``switch_pattern`` and no other address could be had.
    BANNED = "banned"
    # The body was received, and the object store could not take or return it.
    BODY_STORE = "body_store"
    PROXY = "proxy"


# What an agent or the engine may usefully try again; the others would fail the same way.
RETRYABLE_FAILURES: Final = frozenset(
    {
        FailureKind.CONNECTION,
        FailureKind.DNS,
        FailureKind.REFUSED,
        FailureKind.RESET,
        FailureKind.DATA_LOSS,
        FailureKind.TIMEOUT,
        FailureKind.DOWNLOADER_MISSING,
        FailureKind.BANNED,
        FailureKind.PROXY,
        FailureKind.BODY_STORE,
    }
)

# What runs with ``result_version`` 1 know instead of the kinds that came later.
FIRST_KINDS: Final = {
    FailureKind.DNS: FailureKind.CONNECTION,
    FailureKind.REFUSED: FailureKind.CONNECTION,
    FailureKind.TLS: FailureKind.CONNECTION,
    FailureKind.RESET: FailureKind.CONNECTION,
    FailureKind.DATA_LOSS: FailureKind.CONNECTION,
    FailureKind.TOO_LARGE: FailureKind.BAD_CONTENT,
    FailureKind.NOT_RECORDED: FailureKind.BAD_CONTENT,
    FailureKind.BODY_STORE: FailureKind.CONNECTION,
}
