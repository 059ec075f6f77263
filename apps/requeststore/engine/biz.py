"""Settings of a biz: an entry of the configuration ``biz`` of a project.

nodes, epochs, splits -> storage; queue -> waiting; rules -> extraction; fetch -> download; records
-> destination of the results. Validated by ``engine.validation``.
"""

from __future__ import annotations

import enum
import re
from typing import Any, Final

import msgspec

from apps.requeststore.engine.flags import FAILED
from yardkit.names import IDENTIFIER
from yardkit.protocol import KeepPages

DEFAULT_NODE: Final = "default"
MAX_SPLITS: Final = 256
MAX_BIZZES: Final = 200
# Names of records: of a table, a folder or a queue.
RECORDS_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# A biz in URLs: ID of its project and name, ``7.news``.
BIZ_ID: Final = rf"[0-9]{{1,18}}\.{IDENTIFIER.pattern}"


class Balance(enum.StrEnum):
    """Mapping from ID to split."""

    MODULO = "modulo"
    CONSISTENT = "consistent"


class Epoch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Distribution of requests with ``ts >= since`` (ms), until the next epoch.

    Split n is on node ``nodes[n % len(nodes)]``.
    """

    since: int = 0
    splits: int = 1
    nodes: list[str] = msgspec.field(default_factory=lambda: [DEFAULT_NODE])
    balance: Balance = Balance.MODULO


class DownloaderKind(enum.StrEnum):
    """Kind of downloader."""

    CENTER = "center"
    DIRECT = "direct"


class Fetch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Download settings.

    ``agents``: number requested from the center, 0 for the policy's default. ``downloader``:
    fields of ``yardkit.protocol.DownloaderSettings`` except networks and concurrency.
    """

    through: DownloaderKind = DownloaderKind.DIRECT
    policy: str = "random"
    agents: int = 0
    concurrency: int = 16
    timeout_seconds: float = 30.0
    headers: dict[str, str] = {}
    downloader: dict[str, Any] = {}


class DestinationKind(enum.StrEnum):
    """Kind of destination of records."""

    NOWHERE = "nowhere"
    # The biz's dataset, from which tables and files are deliveries.
    DATASET = "dataset"
    TABLE = "table"
    JSON_LINES = "json_lines"
    QUEUE = "queue"


class Records(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Destination of records beside the biz's dataset, which has them all except of ``nowhere``.

    ``name``: of table, folder or queue; "" for the name of the biz.
    """

    to: DestinationKind = DestinationKind.DATASET
    name: str = ""
    ttl_seconds: int = 0


class PageKeeping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which pages are kept, so that records can be extracted again without a download.

    ``failed``: an error status, or a failed extraction. ``sample``: one in this many addresses.
    ``days``: after which they are deleted.
    """

    keep: KeepPages = KeepPages.NONE
    sample: int = 10
    days: int = 30


class Biz(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one biz. Empty names default to names derived from the biz.

    Args:
        ttl_seconds: time from ``ts`` to expiry.
        keep_seconds: time from expiry to deletion.
        take_seconds: duration of a lease.
        priority: of its requests in the queue, and of the biz in a fetcher.
        finish_by_seconds: planned processing time for forecasts; 0 for ``ttl_seconds``.
        max_waiting: queue length from which requests are refused; 0 for no limit.
        flags: final flags of the biz with their meanings.
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
    pages: PageKeeping = PageKeeping()
    # By name or number; see ``extraction.rules``.
    rules: dict[str, Any] = {}

    def cutoff(self, now: int) -> int:
        """Return the latest ``ts`` (ms) that has expired."""
        return now - self.ttl_seconds * 1000

    @property
    def delete_after_seconds(self) -> int:
        """Return the seconds from ``ts`` to deletion."""
        return self.ttl_seconds + self.keep_seconds


class BizSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Data of a configuration version: ``{"bizzes": {"news": {...}}}``."""

    bizzes: dict[str, Biz] = {}
