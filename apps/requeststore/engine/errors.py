"""Errors of engine and stores, each with a stable code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class RequestStoreError(Exception):
    """Base class; the text is shown to users and holds no secret."""

    code: ClassVar[str] = "request_store_error"


class BadSetting(RequestStoreError):
    """Address or option of a store that cannot be used."""

    code = "bad_setting"


class RequestStoreUnavailable(RequestStoreError):
    """Storage node or queue does not answer. Try again later; repeating the call is harmless."""

    code = "store_unavailable"


class SubmitInterrupted(RequestStoreUnavailable):
    """Some of the requests may be stored. A repeat with ``ids`` stores each of them once.

    Without a repeat, the stored ones are queued and processed all the same.
    """

    code = "submit_interrupted"

    def __init__(self, text: str, ids: Sequence[int]) -> None:
        super().__init__(text)
        self.ids = list(ids)


class UnknownBiz(RequestStoreError):
    """The active configuration of the project has no such biz."""

    code = "unknown_biz"


class UnknownNode(RequestStoreError):
    """REQUESTS_NODES of this process lacks a node that a biz names."""

    code = "unknown_node"


class InvalidRequest(RequestStoreError):
    """Request that cannot be stored; the text says where and why."""

    code = "bad_request"


class TooLarge(InvalidRequest):
    """Data larger than a request may be."""

    code = "too_large"


class BadEntry(RequestStoreError):
    """Queue entry that is not ``{id, biz, ts}``; it becomes a dead letter."""

    code = "bad_entry"
