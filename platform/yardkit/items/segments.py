"""Parquet files of items: made from items, and written with statistics of their fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from yardkit.items import columns as names
from yardkit.items.batches import ReadItem
from yardkit.items.columns import KINDS, LONGEST, Columns, ColumnType, type_of
from yardkit.names import UNSTORABLE

if TYPE_CHECKING:
    import pyarrow as pa

COMPRESSION: Final = "zstd"
# Of segments, which are written again when they are merged.
COMPRESSION_LEVEL: Final = 1
ROW_GROUP_ROWS: Final = 100_000
# Longest text kept as the minimum or maximum of a field.
_MOST_TEXT: Final = 100
_MOST_NUMBER: Final = 10**300
_NUMBERS: Final = {ColumnType.LONG, ColumnType.DOUBLE}

_UNIQUE: Final = frozenset({names.ITEM, names.SEQ})
# Microseconds.
_DAY: Final = 24 * 3600 * 1_000_000

_json: Final = msgspec.json.Encoder()


class ItemRows:
    """Items of one run that become one segment, in the order of storing."""

    def __init__(self, run: int) -> None:
        self.run = run
        self.incarnations: list[str] = []
        self.seqs: list[int] = []
        # Unix microseconds.
        self.times: list[int] = []
        self.urls: list[str] = []
        self.flags: list[str | None] = []
        self.raws: list[bytes] = []
        self.items: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self.items)

    @property
    def raw_bytes(self) -> int:
        """Return the size of the items as JSON."""
        return sum(map(len, self.raws))

    def add(
        self,
        *,
        incarnation: str,
        seqs: Sequence[int],
        at: float,
        items: Sequence[ReadItem],
        flags: Sequence[str | None],
    ) -> None:
        """Append items of one producer. ``at``: Unix seconds."""
        count = len(items)
        self.incarnations += [incarnation] * count
        self.seqs += seqs
        self.times += [round(at * 1_000_000)] * count
        self.urls += [item.url for item in items]
        self.raws += [item.raw for item in items]
        self.items += [item.data for item in items]
        self.flags += flags


class FieldStatistics(msgspec.Struct, omit_defaults=True):
    """Values of one field: how many, of which types, between which limits.

    ``low`` and ``high`` are numbers if all values are numbers, texts (cut) if all are texts, else
    None. ``total`` is the sum of numbers.
    """

    count: int = 0
    types: dict[str, int] = {}
    low: float | str | None = None
    high: float | str | None = None
    total: float = 0.0

    def merged(self, other: FieldStatistics) -> FieldStatistics:
        """Return the statistics of both."""
        types = dict(self.types)
        for kind, count in other.types.items():
            types[kind] = types.get(kind, 0) + count
        low, high = self.low, self.high
        if not self.count:
            low, high = other.low, other.high
        elif other.count:
            low = _least(self.low, other.low)
            high = _greatest(self.high, other.high)
        return FieldStatistics(self.count + other.count, types, low, high, self.total + other.total)


def build(rows: ItemRows, columns: Columns) -> tuple[pa.Table, dict[str, FieldStatistics]]:
    """Return a table of the system columns and of every field, and the fields' statistics.

    ``columns`` grows by what is new.
    """
    import pyarrow as pa

    count = len(rows)
    times = pa.array(rows.times, pa.int64())
    days = pa.array([at // _DAY for at in rows.times], pa.int32())
    arrays: dict[str, Any] = {
        names.RUN: pa.array([rows.run] * count, pa.int64()),
        names.DAY: days.cast(pa.date32()),
        names.INCARNATION: pa.array(rows.incarnations, pa.string()),
        names.SEQ: pa.array(rows.seqs, pa.int64()),
        names.AT: times.cast(system_type(names.AT)),
        names.URL: pa.array(rows.urls, pa.string()),
        names.FLAGS: pa.array(rows.flags, pa.string()),
        names.ITEM: pa.array(rows.raws, pa.string()),
    }
    statistics: dict[str, FieldStatistics] = {}
    for field, values in _values(rows.items, columns):
        kinds = Counter(map(type, values))
        missing = kinds.pop(type(None), 0)
        parts = _parts(field, values, kinds, columns)
        if parts:
            arrays.update(parts)
            present = [value for value in values if value is not None] if missing else values
            statistics[field] = _statistics(present, kinds)
    return pa.table(arrays), statistics


def write(table: pa.Table) -> bytes:
    """Return the Parquet file of a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=ROW_GROUP_ROWS,
        compression=COMPRESSION,
        compression_level=COMPRESSION_LEVEL,
        # A dictionary of whole items would only be given up again.
        use_dictionary=[name for name in table.column_names if name not in _UNIQUE],
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def arrow_type(kind: ColumnType) -> Any:
    """Return the Arrow type of a column."""
    import pyarrow as pa

    return {
        ColumnType.BOOLEAN: pa.bool_(),
        ColumnType.LONG: pa.int64(),
        ColumnType.DOUBLE: pa.float64(),
        ColumnType.STRING: pa.string(),
        ColumnType.JSON: pa.string(),
    }[kind]


def system_type(name: str) -> Any:
    """Return the Arrow type of a system column."""
    import pyarrow as pa

    return {
        names.RUN: pa.int64(),
        names.DAY: pa.date32(),
        names.SEQ: pa.int64(),
        names.AT: pa.timestamp("us", tz="UTC"),
        names.BATCH: pa.int64(),
    }.get(name, pa.string())


def _values(
    items: Sequence[dict[str, Any]], columns: Columns
) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield each field that can have a column, in the order in which they first appear."""
    # Items mostly have the same keys: few shapes, each looked at once.
    shapes = dict.fromkeys(map(tuple, items))
    if len(shapes) == 1:
        yield from zip(items[0], zip(*map(dict.values, items), strict=True), strict=True)
        return
    for field in dict.fromkeys(field for shape in shapes for field in shape):
        # Of objects whose keys are data there are more fields than columns.
        if columns.may_hold(field):
            yield field, [item.get(field) for item in items]


def _parts(
    field: str, values: Sequence[Any], kinds: Mapping[type, int], columns: Columns
) -> dict[str, Any]:
    """Return the arrays of a field by column."""
    if not kinds:
        return {}
    if len(kinds) == 1:
        kind = KINDS[next(iter(kinds))]
        if kind is not ColumnType.LONG or _are_long(values):
            target = columns.target(field, kind)
            return {} if target is None else {target.column: _array(values, target.type, kind)}
    return _split(field, values, columns)


def _are_long(values: Iterable[int | None]) -> bool:
    numbers = [value for value in values if value is not None]
    return min(numbers) >= -LONGEST - 1 and max(numbers) <= LONGEST


def _split(field: str, values: Sequence[Any], columns: Columns) -> dict[str, Any]:
    """Return one array for each type among the values, and None elsewhere."""
    # Doubles first, so that the whole numbers among them need no column of their own.
    order = [ColumnType.DOUBLE, *(kind for kind in ColumnType if kind is not ColumnType.DOUBLE)]
    by_kind: dict[ColumnType, list[int]] = {}
    for place, value in enumerate(values):
        if value is not None:
            by_kind.setdefault(type_of(value), []).append(place)
    by_column: dict[str, tuple[ColumnType, list[Any]]] = {}
    for kind in sorted(by_kind, key=order.index):
        target = columns.target(field, kind)
        if target is None:
            continue
        _, kept = by_column.setdefault(target.column, (target.type, [None] * len(values)))
        for place in by_kind[kind]:
            kept[place] = _converted(values[place], target.type)
    return {
        name: _array(kept, kind, ColumnType.STRING if kind is ColumnType.JSON else kind)
        for name, (kind, kept) in by_column.items()
    }


def _array(values: Sequence[Any], column: ColumnType, kind: ColumnType) -> Any:
    """Return values of one kind as an array of their column's type."""
    import pyarrow as pa

    if kind is ColumnType.JSON:
        values = [value if value is None else _json.encode(value) for value in values]
    elif kind is ColumnType.LONG and column is ColumnType.DOUBLE:
        values = [value if value is None else float(value) for value in values]
    return pa.array(values, arrow_type(column))


def _converted(value: Any, column: ColumnType) -> Any:
    if column is ColumnType.DOUBLE:
        return float(value)
    if column is ColumnType.JSON:
        return _json.encode(value).decode()
    if column is ColumnType.STRING:
        return str(value)
    return value


def _statistics(present: Sequence[Any], kinds: Mapping[type, int]) -> FieldStatistics:
    statistics = FieldStatistics(count=len(present), types={})
    for python, count in kinds.items():
        kind = KINDS[python].value
        statistics.types[kind] = statistics.types.get(kind, 0) + count
    if set(statistics.types) <= _NUMBERS:
        low, high = min(present), max(present)
        # Python's whole numbers have no limit, floats have.
        if low > -_MOST_NUMBER and high < _MOST_NUMBER:
            statistics.low, statistics.high, statistics.total = (
                float(low),
                float(high),
                float(sum(present)),
            )
    elif set(statistics.types) == {ColumnType.STRING}:
        statistics.low = UNSTORABLE.sub("?", min(present)[:_MOST_TEXT])
        statistics.high = UNSTORABLE.sub("?", max(present)[:_MOST_TEXT])
    return statistics


def _least(one: Any, other: Any) -> Any:
    return min(one, other) if type(one) is type(other) and one is not None else None


def _greatest(one: Any, other: Any) -> Any:
    return max(one, other) if type(one) is type(other) and one is not None else None
