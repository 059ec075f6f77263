"""Files in a folder or a bucket: JSON lines, CSV or Parquet.

A file is named after the place of its first item, so a repeated delivery replaces it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from apps.datasets.engine.targets.base import BadTarget, Chunk, TargetUnavailable, stamp
from yardkit.items import segments
from yardkit.items.batches import ReadItem
from yardkit.items.columns import Columns
from yardkit.objects import ObjectStore, ObjectStoreUnavailable

DEFAULT_TEMPLATE: Final = "{dataset}/{date}/{batch}-{offset}.{format}"
_FIELDS: Final = ("dataset", "date", "run", "batch", "offset", "format")
# A spreadsheet takes a text that begins with one of these for a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


class FileTarget:
    """One file for each chunk."""

    def __init__(self, store: ObjectStore, file_format: str, template: str) -> None:
        self._store = store
        self._format = file_format
        self._template = template or DEFAULT_TEMPLATE

    def write(self, chunk: Chunk) -> Mapping[int, str]:
        first = chunk.items[0]
        key = self._template.format(
            dataset=_safe(chunk.dataset),
            date=first.at.date().isoformat(),
            run=first.run,
            batch=chunk.batch,
            offset=chunk.offset,
            format=self._format,
        )
        content = WRITERS[self._format](chunk)
        try:
            self._store.put(key, content)
        except ValueError as error:
            raise TargetUnavailable(f"template: {error}") from error
        except ObjectStoreUnavailable as error:
            raise TargetUnavailable(str(error)) from error
        return {}

    def close(self) -> None:
        pass


def check_template(template: str) -> None:
    """Raise ``BadTarget`` for a template that names unknown fields, or no place of a chunk."""
    try:
        sample = template.format(**dict.fromkeys(_FIELDS, "x"))
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise BadTarget(f"template: {error}; use {', '.join(_FIELDS)} in braces") from None
    if "{batch}" not in template or "{offset}" not in template:
        raise BadTarget("template: {batch} and {offset} keep files apart; use both")
    if sample.startswith("/") or ".." in sample.split("/"):
        raise BadTarget("template: a path below the folder")


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)


def _json_lines(chunk: Chunk) -> bytes:
    return b"".join(item.json.encode() + b"\n" for item in chunk.items)


def _csv(chunk: Chunk) -> bytes:
    rows = [item.data for item in chunk.items]
    fields = list(dict.fromkeys(field for row in rows for field in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["_id", "_at", "_url", *map(_cell, fields)])
    for item, row in zip(chunk.items, rows, strict=True):
        writer.writerow(
            [item.id, stamp(item.at), _cell(item.url), *(_cell(row.get(name)) for name in fields)]
        )
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    """Return a value for a cell: texts cannot become formulas."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"'{text}" if text.startswith(_FORMULA) else text


def _parquet(chunk: Chunk) -> bytes:
    rows = segments.ItemRows(chunk.items[0].run)
    for item in chunk.items:
        rows.add(
            incarnation=item.incarnation,
            seqs=[item.seq],
            at=item.at.timestamp(),
            items=[ReadItem(item.url, item.json.encode(), item.data)],
            flags=[item.flags or None],
        )
    table, _statistics = segments.build(rows, Columns())
    return segments.write(table)


WRITERS: Final[Mapping[str, Callable[[Chunk], bytes]]] = {
    "jsonl": _json_lines,
    "csv": _csv,
    "parquet": _parquet,
}
FORMATS: Final[Sequence[str]] = tuple(WRITERS)
