"""Converters for single keys: ``common.Rename``, ``Copy``, ``Set``, ``Delete``, ``ParseJson``."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from apps.routing.engine.converters.base import BuiltInConverter, ConvertError, as_json
from apps.routing.engine.items import Item, ItemError, check_item

Names = Annotated[dict[str, str], msgspec.Meta(min_length=1)]
Keys = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Existing = Literal["replace", "keep"]


class Rename(BuiltInConverter, frozen=True, kw_only=True):
    """Rename keys: ``keys: {old: new}``. Missing keys are ignored.

    All keys are renamed at once, so two keys can swap names. With ``existing: keep``, a value
    already stored under the new name is kept and the renamed one is dropped.
    """

    keys: Names
    existing: Existing = "replace"

    def __post_init__(self) -> None:
        _refuse_twins(self.keys)

    def convert(self, item: Item) -> Item:
        moved = {new: item.pop(old) for old, new in self.keys.items() if old in item}
        return moved | item if self.existing == "keep" else item | moved


class Copy(BuiltInConverter, frozen=True, kw_only=True):
    """Copy values: ``keys: {from: to}``. Missing keys are ignored.

    With ``existing: keep``, a key that already exists is not overwritten.
    """

    keys: Names
    existing: Existing = "replace"

    def __post_init__(self) -> None:
        _refuse_twins(self.keys)

    def convert(self, item: Item) -> Item:
        copied = {new: item[old] for old, new in self.keys.items() if old in item}
        return copied | item if self.existing == "keep" else item | copied


class Set(BuiltInConverter, frozen=True, kw_only=True):
    """Set keys to fixed values: ``values: {key: value}``.

    With ``existing: keep``, only keys that are missing or null are set.
    """

    values: Annotated[dict[str, Any], msgspec.Meta(min_length=1)]
    existing: Existing = "replace"

    def __post_init__(self) -> None:
        try:
            check_item(self.values)
        except ItemError as error:
            raise ValueError(str(error)) from None

    def convert(self, item: Item) -> Item:
        for key, value in self.values.items():
            if self.existing == "replace" or item.get(key) is None:
                item[key] = value
        return item


class Delete(BuiltInConverter, frozen=True, kw_only=True):
    """Remove keys: ``keys: [...]``. Missing keys are ignored."""

    adds: ClassVar[bool] = False

    keys: Keys

    def convert(self, item: Item) -> Item:
        for key in self.keys:
            item.pop(key, None)
        return item


class ParseJson(BuiltInConverter, frozen=True, kw_only=True):
    """Parse values that are JSON texts: ``keys: [...]``.

    Values that are not strings (they may have been parsed before) and blank strings are kept. A
    string that is not valid JSON rejects the item, or is kept with ``wrong: leave``.
    """

    keys: Keys
    wrong: Literal["refuse", "leave"] = "refuse"

    def convert(self, item: Item) -> Item:
        for key in self.keys:
            value = item.get(key)
            if isinstance(value, str) and value.strip():
                try:
                    item[key] = as_json(value, key=key)
                except ConvertError:
                    if self.wrong == "refuse":
                        raise
        return item


def _refuse_twins(names: dict[str, str]) -> None:
    """Raise ``ValueError`` if two keys map to the same new name: the result would be ambiguous."""
    twice = [new for new in names.values() if list(names.values()).count(new) > 1]
    if twice:
        raise ValueError(f"two keys would become {twice[0]!r}")
