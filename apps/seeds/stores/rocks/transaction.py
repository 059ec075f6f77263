"""Open RocksDB folder: its state in memory, and atomic changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DbClosedError,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from apps.seeds.engine.errors import (
    SeedStoreUnavailable,
    StoreInUse,
    UnknownSegment,
    WrongSeedLease,
)
from apps.seeds.engine.seeds import State
from apps.seeds.engine.segments import segment_text
from apps.seeds.stores.base import Guard, SegmentCounts
from apps.seeds.stores.rocks.bloom_cache import BloomFilterCache
from apps.seeds.stores.rocks.layout import (
    PLACE,
    ROOT,
    ROOT_KEY,
    VERSION,
    Grant,
    SegmentRecord,
    Status,
    beyond,
    generation_of,
    grant_key,
    pending_key,
    place,
    read_status,
)
from yardkit import failpoints

_BUFFER_BYTES = 32 << 20
_CACHE_BYTES = 64 << 20
_OPEN_FILES = 256
_grant_decoder = msgspec.msgpack.Decoder(Grant)
_record_decoder = msgspec.msgpack.Decoder(SegmentRecord)


class StoreTransaction:
    """Pending changes of one call. They take effect together, when the batch is written."""

    def __init__(self, folder: RocksFolder) -> None:
        self._folder = folder
        self.batch = WriteBatch(raw_mode=True)
        self.records: dict[tuple[int, int], SegmentRecord] = {}
        self.dropped: tuple[int, int] | None = None
        # Per segment: the smallest key that became pending, and how far the queue was emptied.
        self.pushed: dict[bytes, bytes] = {}
        self.taken: dict[bytes, bytes] = {}
        # Per generation: number of seeds that left the lease; and leases created or extended.
        self.left: dict[int, int] = {}
        self.granted: dict[int, Grant] = {}

    def record(self, frontier: int, segment: int) -> SegmentRecord:
        """Return the counts of a segment for changing, created if missing."""
        record = self.records.get((frontier, segment))
        if record is None:
            known = self._folder.records.get(frontier, {}).get(segment)
            record = SegmentRecord(SegmentCounts()) if known is None else known.copy()
            self.records[frontier, segment] = record
        return record

    def push(self, where: bytes, key_hash: bytes, due: int, turn: int, status: bytes) -> None:
        """Queue a seed as pending, with this status."""
        key = pending_key(where, due, turn)
        self.batch.put(b"s" + where + key_hash, status)
        self.batch.put(key, key_hash + status)
        smallest = self.pushed.get(where)
        if smallest is None or key < smallest:
            self.pushed[where] = key

    def leave(self, generation: int) -> None:
        """Count a seed that leaves its lease."""
        self.left[generation] = self.left.get(generation, 0) + 1

    def grant(self, generation: int, grant: Grant) -> None:
        """Store a new lease, or its new deadline."""
        self.batch.put(grant_key(generation), msgspec.msgpack.encode(grant))
        self.granted[generation] = grant


class RocksFolder:
    """Open folder: RocksDB with lock, and its counts, leases and filters in memory."""

    def __init__(self, path: Path, *, sync: bool, max_filters: int) -> None:
        self.lock = threading.RLock()
        self.guard = Guard()
        self.records: dict[int, dict[int, SegmentRecord]] = {}
        self.grants: dict[int, Grant] = {}
        # Per segment: lower bound of its queue, so that scans skip tombstones. Empty at first.
        self.heads: dict[bytes, bytes] = {}
        self.generation = self.turn = 0
        self._write_options = WriteOptions()
        self._write_options.sync = sync
        self.db = _open(path)
        try:
            self._read_root(path)
            self._read_counts()
            self._read_grants()
        except BaseException:
            self.db.close()
            raise
        self.filters = BloomFilterCache(self, path / "filters", max_filters)
        self.closed = False
        # Set when memory may differ from the disk; all later writes are rejected.
        self.broken = ""

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of ``keys``; None for a missing key."""
        if not keys:
            return []
        with translated():
            values: list[bytes | None] = self.db.get(list(keys)) or []
            return values

    def scan(self, start: bytes, end: bytes, source: Any = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values from ``start`` (included) to ``end`` (excluded), as of this
        moment.
        """
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        with translated():
            yield from (source or self.db).items(from_key=start, read_opt=options)

    def leased(self, generation: int) -> list[tuple[bytes, Status]]:
        """Return what a lease still holds: frontier, segment and hash of each seed, and its
        status.
        """
        keys = self.grants[generation].keys()
        statuses = zip(keys, self.get([b"s" + key for key in keys]), strict=True)
        members = [(key, read_status(raw)) for key, raw in statuses if raw is not None]
        return [
            (key, status)
            for key, status in members
            if status.state == State.RUNNING and status.generation == generation
        ]

    def next_generation(self) -> int:
        """Return a lease number that was never used."""
        self.generation += 1
        return self.generation

    def next_turns(self, count: int) -> int:
        """Reserve ``count`` queue numbers; return the first one."""
        first = self.turn + 1
        self.turn += count
        return first

    def known(self, frontier: int, segment: int) -> SegmentRecord:
        """Return the record of a segment. Raises ``UnknownSegment``."""
        record = self.records.get(frontier, {}).get(segment)
        if record is None:
            raise UnknownSegment(f"there is no segment {segment_text(segment)}")
        return record

    def held(self, frontier: int, generation: int, owner: str) -> Grant:
        """Return the owner's lease. Raises ``WrongSeedLease``."""
        grant = self.grants.get(generation)
        if grant is None or (grant.frontier, grant.owner) != (frontier, owner):
            raise WrongSeedLease(f"{owner} has no lease {generation}; it may have expired")
        return grant

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock for reading. Raises ``SeedStoreUnavailable`` when closed."""
        with self.lock:
            if self.closed or self.broken:
                raise SeedStoreUnavailable(self.broken or "the store is closed")
            yield

    @contextmanager
    def change(self, name: str) -> Iterator[StoreTransaction]:
        """Write the changes of the block atomically, and then apply them to memory."""
        with self.reading():
            change = StoreTransaction(self)
            yield change
            written = self._write(name, change)
            self._believe(name, change, written=written)

    def _write(self, name: str, change: StoreTransaction) -> bool:
        """Write the batch; return whether it was not empty. After an error RocksDB accepts no more
        writes.
        """
        batch = change.batch
        for (frontier, segment), record in change.records.items():
            batch.put(b"k" + place(frontier, segment), msgspec.msgpack.encode(record))
        for generation, count in change.left.items():
            if self.grants[generation].left <= count:
                batch.delete(grant_key(generation))
        if batch.is_empty():
            return False
        batch.put(ROOT_KEY, ROOT.pack(VERSION, self.generation, self.turn))
        failpoints.hit(f"seeds.{name}.before_write")
        with translated():
            self.db.write(batch, self._write_options)
        return True

    def _believe(self, name: str, change: StoreTransaction, *, written: bool) -> None:
        """Apply a written change to memory. After an error the memory is read again at the next
        open.
        """
        try:
            if written:
                failpoints.hit(f"seeds.{name}.after_write")
            self._apply(change)
        except Exception as error:
            self.broken = f"what was written cannot be noted: {type(error).__name__}: {error}"
            raise SeedStoreUnavailable(self.broken) from error

    def _apply(self, change: StoreTransaction) -> None:
        for (frontier, segment), record in change.records.items():
            self.records.setdefault(frontier, {})[segment] = record
        if change.dropped is not None:
            frontier, segment = change.dropped
            del self.records[frontier][segment]
            self.heads.pop(place(frontier, segment), None)
        self.heads.update(change.taken)
        for where, key in change.pushed.items():
            if where in self.heads:
                self.heads[where] = min(key, self.heads[where])
        self.grants.update(change.granted)
        for generation, count in change.left.items():
            grant = self.grants[generation]
            grant.left -= count
            if grant.left <= 0:
                del self.grants[generation]

    def close(self) -> None:
        """Idempotent."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self.filters.save_all()
            with translated():
                self.db.close()

    def _read_root(self, path: Path) -> None:
        raw = self.get([ROOT_KEY])[0]
        if raw is None:
            return
        version, self.generation, self.turn = ROOT.unpack(raw)
        if version != VERSION:
            raise SeedStoreUnavailable(
                f"{path} is of version {version}, this program reads {VERSION}"
            )

    def _read_counts(self) -> None:
        for key, raw in self.scan(b"k", b"l"):
            frontier, segment = PLACE.unpack_from(key, 1)
            self.records.setdefault(frontier, {})[segment] = _record_decoder.decode(raw)

    def _read_grants(self) -> None:
        for key, raw in self.scan(b"g", b"h"):
            generation = generation_of(key)
            grant = self.grants[generation] = _grant_decoder.decode(raw)
            grant.left = len(self.leased(generation))


def pending_scan(folder: RocksFolder, where: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the queue entries of a segment below ``end``, in queue order."""
    start = folder.heads.get(where, b"p" + where)
    return folder.scan(start, end) if start < end else iter(())


def all_states(where: bytes) -> tuple[bytes, bytes]:
    """Return the range of a segment in table ``s``."""
    return b"s" + where, beyond(b"s" + where)


def next_states(
    folder: RocksFolder, where: bytes, after: bytes, most: int
) -> list[tuple[bytes, bytes]]:
    """Return up to ``most`` entries of table ``s`` after a hash; b"" starts at the first one."""
    first, end = all_states(where)
    start = first + after + b"\0" if after else first
    return list(islice(folder.scan(start, end), most))


def move(record: SegmentRecord, old: int | None, new: int | None) -> None:
    """Count the move of a seed from one state to another."""
    record.books.move(None if old is None else State(old), None if new is None else State(new))


@contextmanager
def translated() -> Iterator[None]:
    """Translate errors of RocksDB, which have a single class, to ``SeedStoreUnavailable``."""
    try:
        yield
    except Exception as error:
        # Our own exceptions and Python's are subclasses of Exception; RocksDB raises Exception
        # itself.
        if type(error) is not Exception and not isinstance(error, DbClosedError):
            raise
        raise SeedStoreUnavailable(f"RocksDB: {error}") from error


def _open(path: Path) -> Rdict:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SeedStoreUnavailable(f"{path}: {error.strerror}") from None
    try:
        return Rdict(str(path / "db"), _options())
    except Exception as error:  # noqa: BLE001 - RocksDB knows no other
        text = str(error)
        if "lock file" in text or "lock hold" in text:
            raise StoreInUse(
                f"{path} belongs to another seed service that is running; one process alone may "
                "own it, several can share a postgresql:// store"
            ) from None
        raise SeedStoreUnavailable(f"{path}: {text}") from None


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_BUFFER_BYTES)
    options.set_max_open_files(_OPEN_FILES)
    options.set_keep_log_file_num(2)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(_CACHE_BYTES))
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    return options
