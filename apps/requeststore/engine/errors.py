"""What this app's engine and stores refuse, each with a stable code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class RequestStoreError(Exception):
    """Base of them all; the text is for people and holds no secret."""

    code: ClassVar[str] = "request_store_error"


class BadSetting(RequestStoreError):
    """An address or an option of a store that cannot be used."""

    code = "bad_setting"


class StoreUnavailable(RequestStoreError):
    """A storage node or a queue does not answer: try again later, nothing was changed unless a
    repeat would do no harm."""

    code = "store_unavailable"


class SubmitInterrupted(StoreUnavailable):
    """Some of the requests may be stored. ``ids``: a repeat with these stores each one once.

    Without a repeat those that are stored are queued and processed all the same.
    """

    code = "submit_interrupted"

    def __init__(self, text: str, ids: Sequence[int]) -> None:
        super().__init__(text)
        self.ids = list(ids)


class UnknownBiz(RequestStoreError):
    """No active configuration of the project has this biz."""

    code = "unknown_biz"


class UnknownNode(RequestStoreError):
    """A biz names a storage node that this process has no address of."""

    code = "unknown_node"


class BadRequest(RequestStoreError):
    """A request that cannot be stored: what is wrong, and where in it."""

    code = "bad_request"


class TooLarge(BadRequest):
    """The data is larger than a request may be."""

    code = "too_large"


class BadEntry(RequestStoreError):
    """A queue entry that is no ``{id, biz, ts}``: a dead letter."""

    code = "bad_entry"
