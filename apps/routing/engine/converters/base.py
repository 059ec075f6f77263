"""Interface of converters, both built-in ones and plug-ins of other packages.

A converter is a class. The router creates one instance for each entry of ``convert``, passing the
keys of ``init`` as keyword arguments, and calls ``convert`` with each item: one dict in, one dict
out. A converter cannot turn one item into several; use several inbounds for that.

- ``convert`` receives a copy, so it may modify and return that dict or return a new one. It must
  be thread-safe: several threads may call it at the same time.
- ``convert`` raises ``ConvertError`` for an item that it cannot handle; the item is rejected with
  that reason. Any other exception rejects the item with the code ``converter_failed``.
- The class raises ``ValueError`` or ``TypeError`` for an invalid ``init``; the rule set is
  rejected and the problem names the entry. A ``msgspec.Struct`` validates ``init`` by itself.

Packages register plug-ins in the entry point group ``crawlyard.converters``: the name of the entry
point is the class name used in rules (``ic.ExtractTaskParams``), its value the import path.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import msgspec

from apps.routing.engine.items import Item, ItemError, read_json


class ConvertError(Exception):
    """Conversion failure of one item, with a stable ``code`` and a ``text`` for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        # Set by the chain: index of the failed step, from 0, and its class name in the rules.
        self.step: int | None = None
        self.cls = ""


class Converter(Protocol):
    """Protocol of a converter, one step of a chain."""

    def convert(self, item: Item) -> Item:
        """Return the converted item. Raises ``ConvertError`` if the item cannot be converted."""
        ...


class BuiltInConverter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base class of the built-in converters; the fields are the parameters, validated on creation.

    Subclasses must not modify nested values of an item: they receive a shallow copy.
    """

    # False if the result needs no check, because ``convert`` cannot make a valid item invalid.
    adds: ClassVar[bool] = True

    def convert(self, item: Item) -> Item:
        """Return the converted item. ``item`` is a shallow copy that may be modified."""
        raise NotImplementedError


def as_dict(value: Any, *, key: str) -> dict[str, Any]:
    """Return ``value``, a dict or the JSON text of one, as a dict. Raises ``ConvertError``."""
    if isinstance(value, str):
        value = as_json(value, key=key)
    if not isinstance(value, dict):
        raise ConvertError("not_a_dict", f"{key} holds no object but {_shown(value)}")
    return value


def as_json(text: str, *, key: str) -> Any:
    """Parse ``text`` as JSON. Raises ``ConvertError`` naming ``key`` if it is invalid."""
    try:
        return read_json(text)
    except ItemError as error:
        raise ConvertError("not_json", f"{key} holds a text that is refused: {error}") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
