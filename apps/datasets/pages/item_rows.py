"""Rows of a table of items: values as text, links, images and files of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec
from django.urls import reverse

from apps.datasets.engine.filters import FilterOp, ItemFilter, written
from apps.datasets.engine.item_types import Item
from apps.datasets.models import Dataset, StoredFile
from apps.datasets.queries.files import IMAGE_TYPES, files_by_name
from apps.datasets.texts import reason_text
from yardkit.items import columns as names
from yardkit.items.files import LINK

_CELL_CHARACTERS: Final = 160
_JSON_CHARACTERS: Final = 10_000
# A larger item is shown as it came: to indent it takes long.
_MOST_INDENTED: Final = 200_000
_MOST_FILES: Final = 4
# A larger image is a link: there are no smaller copies of it.
_MOST_PREVIEW_BYTES: Final = 2 * 1024 * 1024
_IMAGE_ENDINGS: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".svg", ".bmp")


@dataclass(frozen=True, slots=True)
class CellFile:
    """A file of the run that a value names. ``is_image``: it is shown in the table."""

    name: str
    address: str
    is_image: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """Value of a field: its text, the address if it is one, the files that it names."""

    name: str
    text: str = ""
    address: str = ""
    is_image: bool = False
    is_number: bool = False
    is_missing: bool = False
    files: list[CellFile] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One item. ``whole``: its address in REST; ``history``: parameters of all items of its key."""

    item: Item
    cells: list[Cell]
    json: str
    is_cut: bool
    flags: str
    address: str
    whole: str
    history: str


def rows_of(items: Sequence[Item], fields: Sequence[str], dataset: Dataset) -> list[ItemRow]:
    """Return the rows of items. One query if any of them names a file."""
    values = [(item, item.data) for item in items]
    wanted = {
        (item.run, name)
        for item, data in values
        for shown in fields
        for name in file_names(data.get(shown))
    }
    files = files_by_name(dataset, wanted)
    return [_row(item, data, fields, dataset, files) for item, data in values]


def file_names(value: Any) -> Iterator[str]:
    """Yield the names of files in a value, in lists and objects as well."""
    if isinstance(value, str):
        if value.startswith(LINK):
            yield value.removeprefix(LINK)
    elif isinstance(value, dict | list):
        inner: Iterable[Any] = value.values() if isinstance(value, dict) else value
        for each in inner:
            yield from file_names(each)


def _row(
    item: Item,
    data: dict[str, Any],
    fields: Sequence[str],
    dataset: Dataset,
    files: dict[tuple[int, str], StoredFile],
) -> ItemRow:
    text = item.json
    if len(text) <= _MOST_INDENTED:
        text = msgspec.json.format(text.encode(), indent=2).decode()
    cut = len(text) > _JSON_CHARACTERS
    return ItemRow(
        item=item,
        cells=[_cell(name, data.get(name), item.run, files) for name in fields],
        json=f"{text[:_JSON_CHARACTERS]}…" if cut else text,
        is_cut=cut,
        flags=", ".join(reason_text(flag) for flag in item.flags.split(", ") if flag),
        address=item.url if is_web_address(item.url) else "",
        whole=_whole(item, dataset),
        history=_history(data, dataset),
    )


def _cell(name: str, value: Any, run: int, files: dict[tuple[int, str], StoredFile]) -> Cell:
    if value is None:
        return Cell(name, is_missing=True)
    named = [files[run, each] for each in file_names(value) if (run, each) in files]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    address = text if is_web_address(text) else ""
    if named and isinstance(value, str):
        # The link stands for it.
        text = ""
    return Cell(
        name,
        text if len(text) <= _CELL_CHARACTERS else f"{text[:_CELL_CHARACTERS]}…",
        address,
        is_image=bool(address) and _looks_like_image(address),
        is_number=isinstance(value, int | float) and not isinstance(value, bool),
        files=[_file(file) for file in named[:_MOST_FILES]],
    )


def _file(file: StoredFile) -> CellFile:
    address = reverse("run-file", args=[file.run_number, file.pk])
    is_image = file.content_type in IMAGE_TYPES
    return CellFile(
        file.name,
        f"{address}?inline=true" if is_image else address,
        is_image and file.size <= _MOST_PREVIEW_BYTES,
    )


def is_web_address(text: str) -> bool:
    """Return whether a text may become a link: ``javascript:`` would run in this page."""
    return text.startswith(("http://", "https://")) and not any(map(str.isspace, text))


def _looks_like_image(address: str) -> bool:
    try:
        return urlsplit(address).path.lower().endswith(_IMAGE_ENDINGS)
    except ValueError:
        return False


def _whole(item: Item, dataset: Dataset) -> str:
    filters = [
        ItemFilter(names.RUN, FilterOp.EQUALS, item.run),
        ItemFilter(names.INCARNATION, FilterOp.EQUALS, item.incarnation),
        ItemFilter(names.SEQ, FilterOp.EQUALS, item.seq),
    ]
    parameters = urlencode([("filter", written(each)) for each in filters])
    return f"/api/v1/datasets/{dataset.pk}/items?{parameters}"


def _history(data: dict[str, Any], dataset: Dataset) -> str:
    """Return the parameters of all items with the same key, "" without a complete key."""
    values = [(name, data.get(name)) for name in dataset.key_fields]
    if not values or any(value is None or isinstance(value, dict | list) for _, value in values):
        return ""
    filters = [ItemFilter(name, FilterOp.EQUALS, _plain(value)) for name, value in values]
    return urlencode([*(("filter", written(each)) for each in filters), ("sort", "-")])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
