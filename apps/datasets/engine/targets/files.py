"""Files in a folder or a bucket: JSON lines, CSV or Parquet.

A file is named after the place of its first item, so a repeated delivery replaces it.
"""

from __future__ import annotations

import csv
import io
import string
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from apps.datasets.engine.errors import gettext_noop
from apps.datasets.engine.exports import harmless
from apps.datasets.engine.targets.base import (
    SYSTEM,
    BadTarget,
    Chunk,
    TargetUnavailable,
    as_json,
    identified,
    stamp,
)
from yardkit.items import segments
from yardkit.items.batches import ReadItem
from yardkit.items.columns import Columns
from yardkit.objects import ObjectStore, ObjectStoreUnavailable

DEFAULT_TEMPLATE: Final = "{dataset}/{date}/{batch}-{offset}.{format}"
_FIELDS: Final = ("dataset", "date", "run", "batch", "offset", "format")


class FileTarget:
    """One file for each chunk."""

    most_items = 20_000
    by_place = True

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
        fields = {
            # Plain names only: attributes and widths reach further than a path needs.
            name if not (spec or conversion) else f"{name}:{spec}"
            for _text, name, spec, conversion in string.Formatter().parse(template)
            if name is not None
        }
    except ValueError as error:
        raise BadTarget("template", str(error)) from None
    unknown = sorted(fields - set(_FIELDS))
    if unknown:
        raise BadTarget(
            "template",
            gettext_noop("{%(name)s} is unknown. Use: %(known)s"),
            name=unknown[0][:80],
            known=", ".join(_FIELDS),
        )
    if not {"batch", "offset"} <= fields:
        raise BadTarget(
            "template", gettext_noop("Use both {batch} and {offset}: they keep files apart.")
        )
    parts = template.format(**dict.fromkeys(_FIELDS, "x")).split("/")
    if not all(parts) or {".", ".."} & set(parts):
        raise BadTarget(
            "template",
            gettext_noop("Use a path below the folder, such as {date}/{batch}-{offset}.jsonl."),
        )


def _safe(name: str) -> str:
    """Return a name for a path; different names stay different."""
    safe = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in name)
    return safe if safe == name else f"{safe[:100]}-{zlib.crc32(name.encode()):08x}"


def _json_lines(chunk: Chunk) -> bytes:
    lines = []
    for item in chunk.items:
        if any(f'"{name}"' in item.json for name in SYSTEM):
            lines.append(as_json(identified(item)))
            continue
        head = as_json({"_id": item.id, "_run": item.run, "_at": stamp(item.at), "_url": item.url})
        # As it came: numbers keep all their digits.
        fields = item.json.strip()[1:-1].strip()
        lines.append(head[:-1] + b"," + fields.encode() + b"}" if fields else head)
    return b"\n".join(lines) + b"\n"


def _csv(chunk: Chunk) -> bytes:
    rows = [identified(item) for item in chunk.items]
    fields = list(dict.fromkeys(field for row in rows for field in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(field) for field in fields])
    writer.writerows([_cell(row.get(name)) for name in fields] for row in rows)
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    """Return a value for a cell: texts cannot become formulas."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return harmless(value if isinstance(value, str) else msgspec.json.encode(value).decode())


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
