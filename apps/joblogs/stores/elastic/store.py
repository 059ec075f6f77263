"""``LogStore`` on Elasticsearch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime

from apps.joblogs.stores.base import (
    ErrorCount,
    FoundLines,
    LineBatch,
    Ref,
    Search,
    StoredLine,
    StreamState,
    Usage,
)
from apps.joblogs.stores.elastic.address import ElasticAddress
from apps.joblogs.stores.elastic.connection import ElasticConnection
from apps.joblogs.stores.elastic.indexes import IndexNames, set_up
from apps.joblogs.stores.elastic.pages import ElasticPages
from apps.joblogs.stores.elastic.retention import ElasticRetention
from apps.joblogs.stores.elastic.search import ElasticSearch
from apps.joblogs.stores.elastic.stream_records import StreamRecords
from apps.joblogs.stores.elastic.writes import write


def _wall_clock() -> datetime:
    return datetime.now(UTC)


class ElasticLogStore:
    """See ``LogStore``. Has one index per day, and one of stream records.

    Written lines are found by searches within a second; ``page``, ``find`` and ``first`` find them
    at once.
    """

    def __init__(
        self, address: ElasticAddress, clock: Callable[[], datetime] = _wall_clock
    ) -> None:
        self._connection = ElasticConnection(address)
        self._names = IndexNames(address.prefix)
        self._records = StreamRecords(self._connection, self._names)
        self._reading = ElasticPages(self._connection, self._records, self._names, clock)
        self._searching = ElasticSearch(self._connection, self._names)
        self._forgetting = ElasticRetention(self._connection, self._records, self._names)

    def setup(self) -> None:
        """See ``LogStore.setup``."""
        set_up(self._connection, self._names)

    def close(self) -> None:
        """See ``LogStore.close``."""
        self._connection.close()

    def check(self) -> str:
        """See ``LogStore.check``."""
        answer = self._connection.ask(lambda client: client.info())
        version, cluster = answer["version"]["number"], answer["cluster_name"]
        return f"Elasticsearch {version}, cluster {cluster}, {self._connection.address.shown}"

    def write(self, batches: Sequence[LineBatch], *, now: datetime) -> int:
        """See ``LogStore.write``."""
        return write(self._connection, self._records, self._names, batches, now)

    def page(
        self,
        stream: str,
        *,
        after: Ref | None = None,
        before: Ref | None = None,
        limit: int,
        levels: Collection[str] = (),
        contains: str = "",
    ) -> list[StoredLine]:
        """See ``LogStore.page``."""
        return self._reading.page(
            stream, after=after, before=before, limit=limit, levels=levels, contains=contains
        )

    def stream_state(self, stream: str) -> StreamState | None:
        """See ``LogStore.stream_state``."""
        record = self._reading.record(stream)
        return None if record is None else record.state()

    def find(self, stream: str, ref: Ref) -> StoredLine | None:
        """See ``LogStore.find``."""
        return self._reading.find(stream, ref)

    def first(self, stream: str, levels: Collection[str]) -> StoredLine | None:
        """See ``LogStore.first``."""
        return self._reading.first(stream, levels)

    def search(self, search: Search, *, cursor: str = "", limit: int) -> FoundLines:
        """See ``LogStore.search``."""
        return self._searching.search(search, cursor=cursor, limit=limit)

    def groups(self, search: Search, *, limit: int) -> list[ErrorCount]:
        """See ``LogStore.groups``."""
        return self._searching.groups(search, limit=limit)

    def delete(
        self,
        *,
        project: int,
        job: int,
        before: datetime,
        levels: Collection[str] | None = None,
        limit: int,
    ) -> int:
        """See ``LogStore.delete``."""
        return self._forgetting.delete(
            project=project, job=job, before=before, levels=levels, limit=limit
        )

    def delete_oldest(self, *, project: int, job: int, keep_bytes: int, limit: int) -> int:
        """See ``LogStore.delete_oldest``."""
        return self._forgetting.delete_oldest(
            project=project, job=job, keep_bytes=keep_bytes, limit=limit
        )

    def usages(self) -> list[Usage]:
        """See ``LogStore.usages``."""
        return self._forgetting.usages()

    def prune(self, *, now: datetime) -> None:
        """See ``LogStore.prune``."""
        self._forgetting.prune(now)
