"""The settings of a biz, as one entry of the configuration ``biz`` of a project (seed S4.9).

    nodes and names -> where its requests lie, by epochs; queue -> where they wait; rules -> how
    pages become records; fetch -> how they are downloaded; records -> where those go

Everything here is data that ``check`` (engine.checking) has accepted.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec

from apps.requeststore.engine.flags import FAILED

DEFAULT_NODE: Final = "default"
MAX_SPLITS: Final = 256
MAX_BIZZES: Final = 200
NAME: Final = r"[a-z][a-z0-9_]{0,31}"


class Balance(enum.StrEnum):
    """From an id to a split (seed S4.11)."""

    MODULO = "modulo"
    CONSISTENT = "consistent"


class Epoch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests with ``ts >= since`` (ms) are spread, until the next epoch begins (seed S4.14).

    Split n lies on node ``nodes[n % len(nodes)]``.
    """

    since: int = 0
    splits: int = 1
    nodes: list[str] = msgspec.field(default_factory=lambda: [DEFAULT_NODE])
    balance: Balance = Balance.MODULO


class Through(enum.StrEnum):
    """How pages are downloaded."""

    CENTER = "center"
    DIRECT = "direct"


class Fetch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the pages of a biz are downloaded.

    ``agents``: how many the center is asked for, 0 leaves it to the policy. ``downloader``: fields
    of ``yardkit.protocol.DownloaderSettings`` but networks and concurrency.
    """

    through: Through = Through.DIRECT
    policy: str = "random"
    agents: int = 0
    concurrency: int = 16
    timeout_seconds: float = 30.0
    headers: dict[str, str] = {}
    downloader: dict[str, Any] = {}


class RecordsTo(enum.StrEnum):
    """Where records go."""

    NOWHERE = "nowhere"
    TABLE = "table"
    JSON_LINES = "json_lines"
    QUEUE = "queue"


class Records(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``name``: of the table, the file or the queue; "" is the name of the biz."""

    to: RecordsTo = RecordsTo.TABLE
    name: str = ""
    ttl_seconds: int = 0


class Biz(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One biz. Names that are "" are made of its own name.

    ``ttl_seconds``: a request that nobody has processed by then has expired.
    ``keep_seconds``: so much longer it can be looked up. ``take_seconds``: the deadline of who took
    one. ``priority``: of its requests in a queue that has such, and of the biz among those that a
    fetcher serves. ``finish_by_seconds``: when work is planned to be done after it came, 0: ttl.
    ``max_waiting``: with so many in its queue it takes no new ones, 0: any number (seed S4.24).
    ``flags``: the biz's own, with what they mean.
    """

    description: str = ""
    enabled: bool = True
    database: str = ""
    collection: str = "requests"
    queue: str = ""
    epochs: list[Epoch] = msgspec.field(default_factory=lambda: [Epoch()])
    ttl_seconds: int = 7 * 24 * 3600
    keep_seconds: int = 24 * 3600
    take_seconds: int = 300
    max_tries: int = 3
    retry_seconds: int = 30
    priority: int = 0
    finish_by_seconds: int = 0
    max_waiting: int = 0
    failed_flag: int = FAILED
    flags: dict[str, str] = {}
    fetch: Fetch = Fetch()
    records: Records = Records()
    # By name or number (seed S4.5): see engine.rules.
    rules: dict[str, Any] = {}

    def cutoff(self, now: int) -> int:
        """Requests with this ``ts`` (ms) or an older one have expired."""
        return now - self.ttl_seconds * 1000

    @property
    def delete_after_seconds(self) -> int:
        """After its ``ts`` a request is gone for good."""
        return self.ttl_seconds + self.keep_seconds


class BizBook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data of a version: ``{"bizzes": {"news": {...}}}``."""

    bizzes: dict[str, Biz] = {}
