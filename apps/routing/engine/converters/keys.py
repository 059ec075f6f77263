"""``common.Rename``, ``Set``, ``Delete``, ``Copy`` and ``ParseJson``: work on single keys."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from apps.routing.engine.converters.base import ConvertError, Own, as_json
from apps.routing.engine.items import Item, NoItem, check_item

Names = Annotated[dict[str, str], msgspec.Meta(min_length=1)]
Keys = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Existing = Literal["replace", "keep"]


class Rename(Own, frozen=True, kw_only=True):
    """``keys: {old: new}``; all at once, so two keys can change places. Missing ones are passed.

    ``existing: keep`` leaves a key that has the new name already, and drops the old one.
    """

    keys: Names
    existing: Existing = "replace"

    def __post_init__(self) -> None:
        _refuse_twins(self.keys)

    def convert(self, item: Item) -> Item:
        """The item under its new names."""
        moved = {new: item.pop(old) for old, new in self.keys.items() if old in item}
        return moved | item if self.existing == "keep" else item | moved


class Copy(Own, frozen=True, kw_only=True):
    """``keys: {from: to}``. Missing ones are passed; ``existing: keep`` leaves what is there."""

    keys: Names
    existing: Existing = "replace"

    def __post_init__(self) -> None:
        _refuse_twins(self.keys)

    def convert(self, item: Item) -> Item:
        """The item with each value under both names."""
        copied = {new: item[old] for old, new in self.keys.items() if old in item}
        return copied | item if self.existing == "keep" else item | copied


class Set(Own, frozen=True, kw_only=True):
    """``values: {key: value}``; ``existing: keep`` sets only what is missing or null."""

    values: Annotated[dict[str, Any], msgspec.Meta(min_length=1)]
    existing: Existing = "replace"

    def __post_init__(self) -> None:
        try:
            check_item(self.values)
        except NoItem as error:
            raise ValueError(str(error)) from None

    def convert(self, item: Item) -> Item:
        """The item with these values."""
        for key, value in self.values.items():
            if self.existing == "replace" or item.get(key) is None:
                item[key] = value
        return item


class Delete(Own, frozen=True, kw_only=True):
    """``keys: [...]``: drop them."""

    adds: ClassVar[bool] = False

    keys: Keys

    def convert(self, item: Item) -> Item:
        """The item without them."""
        for key in self.keys:
            item.pop(key, None)
        return item


class ParseJson(Own, frozen=True, kw_only=True):
    """``keys: [...]`` whose values are JSON texts become what these say.

    What is no text (it may have been read already) and an empty one stay as they are. A text that
    is no JSON refuses the item, or stays as it is with ``wrong: leave``.
    """

    keys: Keys
    wrong: Literal["refuse", "leave"] = "refuse"

    def convert(self, item: Item) -> Item:
        """The item with values for texts."""
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
    """Two old names for one new one: which value stayed would be chance."""
    twice = [new for new in names.values() if list(names.values()).count(new) > 1]
    if twice:
        raise ValueError(f"two keys would become {twice[0]!r}")
