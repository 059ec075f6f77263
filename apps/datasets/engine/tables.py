"""Iceberg tables of datasets, as other programs read them. Requires pyiceberg, imported on use.

A table ``p<project>.d<dataset>`` is partitioned by run and day. Each commit of a compaction carries
its number in the snapshot's summary, so that after a crash it is looked up and not guessed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from yardkit.items import columns as names
from yardkit.items.columns import Column, ColumnType
from yardkit.objects import ObjectStore, ObjectStoreUnavailable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

# It warns of every column without limits, such as one that is empty.
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)

CATALOG: Final = "crawlyard"
COMPACTION: Final = "crawlyard.compaction"
FENCE: Final = "crawlyard.fence"
_PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "write.parquet.compression-codec": "zstd",
    # A repeated commit would overtake ``fence``; compactions are repeated by their rows.
    "commit.retry.num-retries": "0",
}
# Snapshots that stay for readers that are at work, and to look back.
KEEP_SNAPSHOTS: Final = timedelta(hours=24)
# So many stay, however old they are.
FEWEST_SNAPSHOTS: Final = 10


class CatalogUnavailable(ObjectStoreUnavailable):
    """The catalog or the table's files do not answer; a repeat is harmless."""


class Batches(msgspec.Struct, frozen=True):
    """Batches ``first`` to ``last`` of one run and day."""

    run: int
    day: date
    first: int
    last: int


class Tables:
    """Tables of one catalog.

    Args:
        database: SQLAlchemy's URL of the database that holds the catalog.
        catalog_url: ``https://token@host/path?warehouse=name`` of a REST catalog instead; "" for
            none.
    """

    def __init__(self, store: ObjectStore, database: str, catalog_url: str = "") -> None:
        self._store = store
        self._database = database
        self._catalog_url = catalog_url
        self._opened: Catalog | None = None

    def commit(
        self,
        *,
        project_id: int,
        dataset_id: int,
        location: str,
        columns: Sequence[Column],
        files: Sequence[str],
        compaction: int,
        replaces: Batches | None = None,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """Add files to the table in one commit; its schema grows by the columns.

        Args:
            location: key of the table's place in the object store; it is created if needed.
            files: keys of Parquet files, each with one run and one day.
            replaces: whose earlier files the new ones replace; none is replaced in part.
            check: raises if the caller has lost its lease. It is called after the table is loaded:
                a later owner of the lease that called ``fence`` makes this commit fail.
        """
        table = self._table(project_id, dataset_id, location)
        check()
        with _errors(f"table p{project_id}.d{dataset_id}"), table.transaction() as change:
            _add_columns(table, change, columns)
            summary = {COMPACTION: str(compaction)}
            if replaces is not None:
                change.delete(_condition(replaces), snapshot_properties=summary)
            if files:
                change.add_files(
                    [self._store.location(key) for key in files],
                    snapshot_properties=summary,
                    # Reads the whole table; names carry the compaction's number.
                    check_duplicate_files=False,
                )

    def is_committed(self, *, project_id: int, dataset_id: int, compaction: int) -> bool:
        """Return whether a snapshot carries the number of this compaction."""
        table = self._existing(project_id, dataset_id)
        return table is not None and any(
            snapshot.summary is not None and snapshot.summary.get(COMPACTION) == str(compaction)
            for snapshot in table.snapshots()
        )

    def fence(self, *, project_id: int, dataset_id: int, compaction: int) -> None:
        """Make commits fail that were begun before, by an empty snapshot.

        A process that was frozen between its files and its commit must not wake up and commit files
        that have been deleted meanwhile.
        """
        table = self._existing(project_id, dataset_id)
        if table is not None:
            summary = {FENCE: str(compaction)}
            with (
                _errors(f"table p{project_id}.d{dataset_id}"),
                table.transaction() as change,
                change.update_snapshot(snapshot_properties=summary).fast_append(),
            ):
                pass

    def delete_runs(
        self,
        *,
        project_id: int,
        dataset_id: int,
        runs: Sequence[int],
        days: Sequence[date] | None = None,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """Delete the partitions of runs, or of some of their days; ``check`` as in ``commit``."""
        table = self._existing(project_id, dataset_id)
        if table is None:
            return
        check()
        deleted = _of_runs(runs, days)
        with _errors(f"table p{project_id}.d{dataset_id}"):
            # A repetition finds nothing, of which pyiceberg warns.
            if any(True for _file in table.scan(deleted).plan_files()):
                table.delete(deleted)

    def expire(self, *, project_id: int, dataset_id: int, now: datetime) -> int:
        """Forget old snapshots; return how many. Their data files are the caller's."""
        table = self._existing(project_id, dataset_id)
        if table is None:
            return 0
        limit = (now - KEEP_SNAPSHOTS).timestamp() * 1000
        known = sorted(table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms)
        old = [
            snapshot.snapshot_id
            for snapshot in known[:-FEWEST_SNAPSHOTS]
            if snapshot.timestamp_ms < limit and snapshot != table.current_snapshot()
        ]
        if old:
            with _errors(f"table p{project_id}.d{dataset_id}"):
                table.maintenance.expire_snapshots().by_ids(old).commit()
        return len(old)

    def metadata_files(self, *, project_id: int, dataset_id: int) -> set[str]:
        """Return the names of the metadata files to which a table refers; none without it."""
        table = self._existing(project_id, dataset_id)
        if table is None:
            return set()
        known = table.metadata
        found = {table.metadata_location, *(entry.metadata_file for entry in known.metadata_log)}
        found |= {file.statistics_path for file in known.statistics}
        found |= {file.statistics_path for file in known.partition_statistics}
        with _errors(f"table p{project_id}.d{dataset_id}"):
            for snapshot in table.snapshots():
                found.add(snapshot.manifest_list)
                found |= {file.manifest_path for file in snapshot.manifests(table.io)}
        return {path.rpartition("/")[2] for path in found}

    def drop(self, *, project_id: int, dataset_id: int, location: str) -> None:
        """Take the table at this place out of the catalog. Its objects are the caller's."""
        table = self._existing(project_id, dataset_id)
        # A REST catalog may have a table of this name that belongs to another installation.
        if table is not None and table.location() == self._store.location(location):
            with _errors(f"table p{project_id}.d{dataset_id}"):
                self._catalog().drop_table(_identifier(project_id, dataset_id))

    def drop_namespace(self, *, project_id: int) -> None:
        """Take the namespace of a project out of the catalog, unless it has tables."""
        from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError

        with (
            _errors(f"namespace p{project_id}"),
            contextlib.suppress(NamespaceNotEmptyError, NoSuchNamespaceError),
        ):
            self._catalog().drop_namespace(f"p{project_id}")

    # --- the catalog ----------------------------------------------------------------------------

    def _existing(self, project_id: int, dataset_id: int) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        with _errors(f"table p{project_id}.d{dataset_id}"):
            try:
                return self._catalog().load_table(_identifier(project_id, dataset_id))
            except NoSuchTableError:
                return None

    def _table(self, project_id: int, dataset_id: int, location: str) -> Table:
        found = self._existing(project_id, dataset_id)
        if found is not None:
            return found
        from pyiceberg.exceptions import TableAlreadyExistsError

        with _errors(f"table p{project_id}.d{dataset_id}"):
            catalog = self._catalog()
            catalog.create_namespace_if_not_exists(f"p{project_id}")
            try:
                return catalog.create_table(
                    _identifier(project_id, dataset_id),
                    _system_schema(),
                    location=self._store.location(location),
                    partition_spec=_partition_spec(),
                    properties=_PROPERTIES,
                )
            except TableAlreadyExistsError:
                return catalog.load_table(_identifier(project_id, dataset_id))

    def _catalog(self) -> Catalog:
        if self._opened is None:
            access = dict(self._store.iceberg_properties())
            if self._catalog_url:
                from pyiceberg.catalog.rest import RestCatalog

                self._opened = RestCatalog(CATALOG, **rest_properties(self._catalog_url), **access)
            else:
                from pyiceberg.catalog.sql import SqlCatalog

                self._opened = SqlCatalog(
                    CATALOG,
                    uri=self._database,
                    # Tables of the catalog are created by migrations.
                    init_catalog_tables="false",
                    pool_pre_ping="true",
                    **access,
                )
        return self._opened


def rest_properties(url: str) -> dict[str, str]:
    """Return pyiceberg's properties of a REST catalog; the user part of the URL is its token."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    found = {"uri": f"{parts.scheme}://{host}{parts.path}", **dict(parse_qsl(parts.query))}
    if parts.username:
        found["token"] = parts.username
    return found


def _identifier(project_id: int, dataset_id: int) -> tuple[str, str]:
    return f"p{project_id}", f"d{dataset_id}"


def _condition(replaced: Batches) -> str:
    return (
        f"{names.RUN} = {replaced.run:d} AND {names.DAY} = '{replaced.day.isoformat()}'"
        f" AND {names.BATCH} >= {replaced.first:d} AND {names.BATCH} <= {replaced.last:d}"
    )


def _of_runs(runs: Sequence[int], days: Sequence[date] | None) -> str:
    condition = f"{names.RUN} IN ({', '.join(f'{run:d}' for run in runs)})"
    if days is None:
        return condition
    return f"{condition} AND {names.DAY} IN ({', '.join(repr(day.isoformat()) for day in days)})"


def _system_schema() -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestamptzType

    types = {
        names.RUN: LongType(),
        names.DAY: DateType(),
        names.SEQ: LongType(),
        names.AT: TimestamptzType(),
        names.BATCH: LongType(),
    }
    return Schema(
        *(
            NestedField(number, name, types.get(name, StringType()), required=False)
            for number, name in enumerate(names.SYSTEM, 1)
        )
    )


def _partition_spec() -> Any:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    return PartitionSpec(
        *(
            PartitionField(names.SYSTEM.index(name) + 1, 1000 + place, IdentityTransform(), name)
            for place, name in enumerate((names.RUN, names.DAY))
        )
    )


def _add_columns(table: Table, change: Any, columns: Sequence[Column]) -> None:
    from pyiceberg.types import BooleanType, DoubleType, LongType, StringType

    types: Mapping[ColumnType, Any] = {
        ColumnType.BOOLEAN: BooleanType(),
        ColumnType.LONG: LongType(),
        ColumnType.DOUBLE: DoubleType(),
        ColumnType.STRING: StringType(),
        ColumnType.JSON: StringType(),
    }
    known = set(table.schema().column_names)
    new = [column for column in columns if column.column not in known]
    if new:
        with change.update_schema() as schema:
            for column in new:
                # A tuple: a text would be a path of nested fields.
                schema.add_column((column.column,), types[column.type], doc=column.type.value)


class _errors:
    """Turn failures of the catalog's database, its server and the object store into one error."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None:
            return
        from pyiceberg.exceptions import CommitFailedException, RESTError, ServerError
        from requests import RequestException
        from sqlalchemy.exc import SQLAlchemyError

        passing = (
            CommitFailedException,
            RESTError,
            ServerError,
            RequestException,
            SQLAlchemyError,
            OSError,
        )
        if isinstance(error, passing):
            raise CatalogUnavailable(f"{self._what}: {error}") from error
