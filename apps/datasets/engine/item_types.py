"""Files, queries, items and results of the reader."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from apps.datasets.engine.errors import BadItemQuery, gettext_noop
from apps.datasets.engine.filters import ItemFilter
from yardkit.items import columns as names

# Order of storing, unique within a dataset.
PLACE: Final = (names.RUN, names.BATCH, names.INCARNATION, names.SEQ)
# Most items of one page.
MOST_ITEMS: Final = 1000
# Columns of an ``Item``, in the order of its fields.
ITEM_COLUMNS: Final = ", ".join(
    (
        names.RUN,
        names.INCARNATION,
        names.SEQ,
        names.AT,
        names.URL,
        names.FLAGS,
        names.BATCH,
        names.ITEM,
    )
)


class File(msgspec.Struct, frozen=True):
    """A file of the manifest. ``batch``: of a segment, None for a file of the table."""

    key: str
    run: int
    items: int
    batch: int | None
    first_batch: int
    last_batch: int
    raw_bytes: int = 0


class ItemQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which items, in which order. ``latest``: only the last one of each key.

    ``newest``: the last page in the order of storing instead of the first one.
    """

    filters: tuple[ItemFilter, ...] = ()
    text: str = ""
    sort: str = ""
    latest: bool = False
    newest: bool = False
    limit: int = 50
    after: str = ""

    @property
    def is_plain(self) -> bool:
        """Return whether the query takes all items in the order of storing."""
        return not (self.filters or self.text or self.sort or self.latest)


class Item(msgspec.Struct, frozen=True):
    """One item with its identity. ``json`` is the item as it came."""

    run: int
    incarnation: str
    seq: int
    at: datetime
    url: str
    flags: str
    batch: int
    json: str

    @property
    def data(self) -> dict[str, Any]:
        """Return the item's fields."""
        found: dict[str, Any] = msgspec.json.decode(self.json)
        return found

    @property
    def id(self) -> str:
        """Return the identity as text, such as ``7-b2f0-15``."""
        return f"{self.run}-{self.incarnation}-{self.seq}"


class ItemPage(msgspec.Struct, frozen=True):
    """Items, and the cursor of the next page; "" at the end.

    ``last``: cursor of what is stored after the last item; "" in a sorted list.
    """

    items: list[Item]
    next: str
    last: str = ""


class FieldValues(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one field. ``top``: the most frequent values; ``bins``: [from, to, count]."""

    count: int
    distinct: int
    low: str | None
    high: str | None
    mean: float | None
    top: list[tuple[str, int]]
    bins: list[tuple[float, float, int]]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of keys by what became of them from one run to another.

    ``without_key``: items of either run whose key has a missing field. ``duplicates``: items whose
    key an earlier item of the same run has; they are not compared.
    """

    added: int
    removed: int
    changed: int
    equal: int
    without_key: int
    duplicates: int


class ComparedItem(msgspec.Struct, frozen=True):
    """An item in two runs, by its key; None where a run does not have it."""

    key: list[str]
    old: dict[str, Any] | None
    new: dict[str, Any] | None

    @property
    def fields(self) -> list[str]:
        """Return the fields that differ."""
        old, new = self.old or {}, self.new or {}
        return [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]


def item_of(row: Sequence[Any]) -> Item:
    """Return the item of a row of ``ITEM_COLUMNS``."""
    run, incarnation, seq, at, url, flags, batch, text = row
    return Item(run, incarnation, seq, at, url or "", flags or "", batch, text)


def cursor_of(item: Item) -> str:
    """Return the cursor of what follows an item in the order of storing."""
    place = [item.run, item.batch, item.incarnation, item.seq]
    return msgspec.json.encode(place).hex()


def place_of(cursor: str) -> list[Any] | None:
    """Return the place that a cursor names, None for the beginning. Raises ``BadItemQuery``."""
    if not cursor:
        return None
    try:
        place = msgspec.json.decode(bytes.fromhex(cursor), type=tuple[int, int, str, int])
    except (ValueError, msgspec.DecodeError):
        raise _bad_cursor(cursor) from None
    return list(place)


def offset_of(cursor: str) -> int:
    """Return the number of items before a cursor of a sorted list. Raises ``BadItemQuery``."""
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 12):
        raise _bad_cursor(cursor)
    return int(cursor)


def bad_limit() -> BadItemQuery:
    """Return the error of a page that is too large."""
    return BadItemQuery(gettext_noop("limit is 1 to %(most)s."), most=MOST_ITEMS)


def _bad_cursor(cursor: str) -> BadItemQuery:
    text = gettext_noop("“%(cursor)s” is not a cursor of this list.")
    return BadItemQuery(text, cursor=cursor[:50])
