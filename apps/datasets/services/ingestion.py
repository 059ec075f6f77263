"""Stores batches of items: each item once, in segments that the manifest lists.

    segment into the object store -> one transaction: manifest, numbers, sums -> acknowledgement

A crash before the transaction leaves an object that no row names, which is swept; after it the
repeated batches are recognised by their numbers.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F

from apps.datasets.engine import keys
from apps.datasets.engine.accounting import merged_fields, merged_reasons
from apps.datasets.engine.checks import BadChecks, ItemChecker
from apps.datasets.models import DataFile, Dataset, DatasetRun, ItemStream
from apps.datasets.services.datasets import KINDS_OF_RUNS, Destination, UnknownProducer, destination
from apps.datasets.states import Kind
from apps.queuestats.services.rates import count
from apps.runtime.models import ProcessedMessage
from apps.runtime.services.objects import shared_objects
from yardkit import failpoints
from yardkit.items import segments
from yardkit.items.batches import ReadItem, read_batch
from yardkit.items.columns import Columns
from yardkit.items.segments import FieldStatistics, ItemRows
from yardkit.names import UNSTORABLE
from yardkit.protocol import ItemBatch, ProtocolError
from yardkit.spans import Spans, TooManyGaps
from yardkit.tokens import pages_project, verify_run_token

logger = logging.getLogger(__name__)

CONSUMER: Final = "datasets"
_MAX_NUMBER: Final = 2**62
_NAME_CHARACTERS: Final = {"producer": 100, "boot": 64, "once": 150}
# JSON in one transaction: parsed items take several times as much memory.
MAX_STEP_BYTES: Final = 16 * 1024 * 1024
# Longest label of a series.
_LABEL_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class RefusedItems:
    """A batch that cannot be stored, and the reason."""

    message: ItemBatch
    reason: str


@dataclass(frozen=True, slots=True)
class _Batch:
    message: ItemBatch
    run_number: int
    items: list[ReadItem]


@dataclass(slots=True)
class _RunPart:
    """What a step adds to one run."""

    rows: ItemRows
    rejected: Counter[str] = field(default_factory=Counter)
    flagged: int = 0
    duplicates: int = 0
    key: str = ""
    size: int = 0
    statistics: dict[str, FieldStatistics] = field(default_factory=dict)


class _Overtaken(Exception):
    """Another writer has changed the dataset meanwhile; the step is repeated."""


def store_items(*, messages: Sequence[ItemBatch], now: datetime) -> list[RefusedItems]:
    """Store the items of these batches, each once.

    Return the batches to dead-letter: of an unknown producer, damaged, or with an invalid token.

    Raises ``ObjectStoreUnavailable`` and ``DatabaseError``: the call may be repeated as it is.
    """
    refused: list[RefusedItems] = []
    places: dict[str, Destination] = {}
    by_dataset: dict[int, list[tuple[ItemBatch, int]]] = {}
    for message in messages:
        try:
            _check_message(message)
            if message.producer not in places:
                places[message.producer] = destination(message.producer)
        except (ProtocolError, UnknownProducer) as error:
            refused.append(RefusedItems(message, str(error)))
        else:
            place = places[message.producer]
            by_dataset.setdefault(place.dataset_id, []).append((message, place.run_number))
    # In a fixed order, so that two writers do not wait for each other.
    for dataset_id in sorted(by_dataset):
        for part in _steps(by_dataset[dataset_id]):
            refused += _store(dataset_id, part, now)
    return refused


def _steps(messages: Sequence[tuple[ItemBatch, int]]) -> Iterator[list[tuple[ItemBatch, int]]]:
    """Cut messages into parts of at most ``MAX_STEP_BYTES`` of JSON."""
    part: list[tuple[ItemBatch, int]] = []
    size = 0
    for message, run_number in messages:
        if part and size + message.raw_bytes > MAX_STEP_BYTES:
            yield part
            part, size = [], 0
        part.append((message, run_number))
        size += message.raw_bytes
    yield part


def _store(
    dataset_id: int, messages: Sequence[tuple[ItemBatch, int]], now: datetime
) -> list[RefusedItems]:
    refused: list[RefusedItems] = []
    batches: list[_Batch] = []
    for message, run_number in messages:
        try:
            batches.append(_Batch(message, run_number, read_batch(message)))
        except ProtocolError as error:
            refused.append(RefusedItems(message, str(error)))
    while batches:
        try:
            return refused + _Step(dataset_id, batches, now).run()
        except _Overtaken:
            continue
    return refused


def _check_message(message: ItemBatch) -> None:
    """Raise ``ProtocolError`` if a batch cannot be accepted, whatever its items are."""
    for name, most in _NAME_CHARACTERS.items():
        value = getattr(message, name)
        if len(value) > most or not value.isprintable() or (name != "once" and not value):
            raise ProtocolError(f"{name} is {value[:100]!r}")
    if not 0 < message.count <= _MAX_NUMBER or not 0 < message.first <= _MAX_NUMBER:
        raise ProtocolError(f"items {message.first} to {message.first + message.count - 1}")
    if not math.isfinite(message.at) or not 0 <= message.at < 1e11:
        raise ProtocolError(f"at is {message.at!r}")
    problem = token_problem(message.producer, message.token)
    if problem:
        raise ProtocolError(problem)


def token_problem(producer: str, token: str) -> str:
    """Return why a token does not prove this producer, "" if it does.

    Runs have tokens, and agents for the pages of a run; the other producers are processes of the
    platform.
    """
    if producer.partition(":")[0] in KINDS_OF_RUNS and not _token_is_valid(producer, token):
        return f"the token is not that of {producer[:100]}"
    return ""


@lru_cache(maxsize=4096)
def _token_is_valid(producer: str, token: str) -> bool:
    # Checking a signature is slow; the same one comes with every batch of a run.
    kind, _, number = producer.partition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        return False
    if KINDS_OF_RUNS[kind] is Kind.PAGES:
        return pages_project(settings.SECRET_KEY, int(number), token) is not None
    return verify_run_token(settings.SECRET_KEY, int(number), token)


class _Step:
    """Stores some batches of one dataset."""

    def __init__(self, dataset_id: int, batches: Sequence[_Batch], now: datetime) -> None:
        self._now = now
        self._batches = batches
        self._dataset = Dataset.objects.get(pk=dataset_id)
        self._columns = Columns(self._dataset.columns)
        self._checker = _checker(self._dataset)
        self._streams: dict[tuple[str, str], bytes] = {}
        self._spans: dict[tuple[str, str], Spans] = {}
        # Numbers added to the spans, by execution.
        self._taken: defaultdict[tuple[str, str], list[range]] = defaultdict(list)
        self._once: set[str] = set()
        self._known_once: set[str] = set()
        self._parts: dict[int, _RunPart] = {}
        self._refused: list[RefusedItems] = []

    def run(self) -> list[RefusedItems]:
        """Store the batches; return those that cannot be."""
        self._read_known()
        for batch in self._batches:
            self._take(batch)
        self._write()
        try:
            with transaction.atomic():
                self._commit()
        except _Overtaken:
            shared_objects().delete([part.key for part in self._parts.values() if part.key])
            raise
        failpoints.hit("datasets.after_commit")
        self._count()
        return self._refused

    def _count(self) -> None:
        dataset = self._dataset
        if dataset.kind != Kind.ITEMS:
            return
        for part in self._parts.values():
            for series, amount in (
                ("items.stored", len(part.rows)),
                ("items.rejected", part.rejected.total()),
            ):
                if amount:
                    label = dataset.name[:_LABEL_CHARACTERS]
                    count(series, project=dataset.project_id, label=label, amount=amount)

    # --- what is new ----------------------------------------------------------------------------

    def _read_known(self) -> None:
        pairs = {
            (batch.message.producer, batch.message.boot)
            for batch in self._batches
            if not batch.message.once
        }
        self._streams = _streams(pairs)
        self._spans = {pair: Spans(self._streams.get(pair, b"")) for pair in pairs}
        ids = [_once(batch.message) for batch in self._batches if batch.message.once]
        if ids:
            self._known_once = set(
                ProcessedMessage.objects.filter(consumer=CONSUMER, message_id__in=ids).values_list(
                    "message_id", flat=True
                )
            )

    def _take(self, batch: _Batch) -> None:
        message = batch.message
        try:
            slices = self._new(message)
        except TooManyGaps as error:
            self._refused.append(RefusedItems(message, str(error)))
            return
        part = self._parts.setdefault(batch.run_number, _RunPart(ItemRows(batch.run_number)))
        part.duplicates += message.count - sum(end - begin for begin, end in slices)
        for begin, end in slices:
            self._check(part, message, batch.items[begin:end], message.first + begin)

    def _new(self, message: ItemBatch) -> list[tuple[int, int]]:
        """Return the positions of the items that were not stored before, as slices."""
        if message.once:
            once = _once(message)
            if once in self._known_once or once in self._once:
                return []
            self._once.add(once)
            return [(0, message.count)]
        pair = (message.producer, message.boot)
        seqs = range(message.first, message.first + message.count)
        try:
            new = self._spans[pair].add(seqs)
        except TooManyGaps:
            # They hold the refused numbers now: built again without them.
            self._spans[pair] = Spans(self._streams.get(pair, b""))
            for taken in self._taken[pair]:
                self._spans[pair].add(taken)
            raise
        self._taken[pair].append(seqs)
        return new

    def _check(
        self, part: _RunPart, message: ItemBatch, items: Sequence[ReadItem], first: int
    ) -> None:
        seqs: Sequence[int] = range(first, first + len(items))
        flags: list[str | None] = [None] * len(items)
        if self._checker is not None or any(item.reason for item in items):
            kept = list(self._accepted(part, items, first))
            items = [item for item, _seq, _flags in kept]
            seqs = [seq for _item, seq, _flags in kept]
            flags = [found for _item, _seq, found in kept]
            part.flagged += sum(found is not None for found in flags)
        part.rows.add(incarnation=message.boot, seqs=seqs, at=message.at, items=items, flags=flags)

    def _accepted(
        self, part: _RunPart, items: Sequence[ReadItem], first: int
    ) -> Iterator[tuple[ReadItem, int, str | None]]:
        for seq, item in enumerate(items, first):
            reason, flags = item.reason, None
            if not reason and self._checker is not None:
                reason, flags = self._checker.check(item.data)
            if reason:
                part.rejected[UNSTORABLE.sub("?", reason)] += 1
            else:
                yield item, seq, flags

    # --- objects --------------------------------------------------------------------------------

    def _write(self) -> None:
        dataset = self._dataset
        for run_number, part in self._parts.items():
            if not len(part.rows):
                continue
            table, part.statistics = segments.build(part.rows, self._columns)
            content = segments.write(table)
            part.key, part.size = (
                keys.segment(dataset.project_id, dataset.pk, run_number),
                len(content),
            )
            failpoints.hit("datasets.before_put")
            shared_objects().put(part.key, content)
            failpoints.hit("datasets.after_put")

    # --- the transaction ------------------------------------------------------------------------

    def _commit(self) -> None:
        dataset = Dataset.objects.select_for_update().get(pk=self._dataset.pk)
        if dataset.columns != self._dataset.columns or _streams(self._spans) != self._streams:
            raise _Overtaken
        self._remember()
        files = []
        for run_number, part in sorted(self._parts.items()):
            if part.key:
                dataset.last_batch += 1
                files.append(self._file(run_number, part, dataset.last_batch))
            self._account(run_number, part)
        DataFile.objects.bulk_create(files)
        dataset.columns = self._columns.stored()
        dataset.items = F("items") + sum(file.items for file in files)
        dataset.bytes = F("bytes") + sum(file.bytes for file in files)
        dataset.raw_bytes = F("raw_bytes") + sum(file.raw_bytes for file in files)
        dataset.save(update_fields=["last_batch", "columns", "items", "bytes", "raw_bytes"])
        failpoints.hit("datasets.before_commit")

    def _remember(self) -> None:
        """Store the numbers and names of what is stored."""
        for (producer, boot), spans in self._spans.items():
            stored = spans.to_bytes()
            if stored != self._streams.get((producer, boot), b""):
                ItemStream.objects.update_or_create(
                    producer=producer,
                    boot=boot,
                    defaults={"spans": stored, "last_at": self._now, "dataset": self._dataset},
                )
        try:
            # A savepoint: after a collision the transaction must still be able to end.
            with transaction.atomic():
                ProcessedMessage.objects.bulk_create(
                    ProcessedMessage(consumer=CONSUMER, message_id=once, at=self._now)
                    for once in sorted(self._once)
                )
        except IntegrityError:
            raise _Overtaken from None

    def _file(self, run_number: int, part: _RunPart, batch: int) -> DataFile:
        return DataFile(
            dataset=self._dataset,
            run_number=run_number,
            path=part.key,
            items=len(part.rows),
            bytes=part.size,
            raw_bytes=part.rows.raw_bytes,
            first_batch=batch,
            last_batch=batch,
            created_at=self._now,
        )

    def _account(self, run_number: int, part: _RunPart) -> None:
        row, _ = DatasetRun.objects.get_or_create(dataset=self._dataset, run_number=run_number)
        row.stored += len(part.rows)
        row.rejected += part.rejected.total()
        row.flagged += part.flagged
        row.duplicates += part.duplicates
        row.reasons = merged_reasons(row.reasons, part.rejected)
        row.bytes += part.size
        row.raw_bytes += part.rows.raw_bytes
        row.fields = merged_fields(row.fields, part.statistics)
        if len(part.rows):
            first, last = min(part.rows.times), max(part.rows.times)
            row.first_at = min(filter(None, [row.first_at, _moment(first)]))
            row.last_at = max(filter(None, [row.last_at, _moment(last)]))
        if len(part.rows) or part.rejected:
            # What comes after the end of a run makes it unsettled: it is moved and checked again.
            row.settled_at = None
        row.save()


def _once(message: ItemBatch) -> str:
    """Return the name under which a batch is stored once; producers do not share names."""
    return f"{message.producer}/{message.once}"


def _streams(pairs: Any) -> dict[tuple[str, str], bytes]:
    """Return the stored numbers of executions."""
    wanted = set(pairs)
    rows = ItemStream.objects.filter(
        producer__in={producer for producer, _boot in wanted},
        boot__in={boot for _producer, boot in wanted},
    )
    return {
        (row.producer, row.boot): bytes(row.spans)
        for row in rows
        if (row.producer, row.boot) in wanted
    }


def _checker(dataset: Dataset) -> ItemChecker | None:
    if not dataset.item_schema and not dataset.checks:
        return None
    return _made_checker(
        msgspec.json.encode(dataset.item_schema), msgspec.json.encode(dataset.checks)
    )


@lru_cache(maxsize=256)
def _made_checker(schema: bytes, checks: bytes) -> ItemChecker | None:
    try:
        checker = ItemChecker(msgspec.json.decode(schema), msgspec.json.decode(checks))
    except BadChecks:
        # Saved by another version: items are kept unchecked rather than refused.
        logger.exception("the checks of a dataset cannot be used")
        return None
    return checker if checker.has_work else None


def _moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)
