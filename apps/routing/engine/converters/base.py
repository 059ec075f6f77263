"""What a converter is, for ours and for those of other packages.

A converter is a class. It is made once of the ``init`` of its entry, by keyword, and its
``convert`` is called with each item: one dict in, one dict out. Deriving several items of one is
the business of several inbounds, each of which counts its own.

- ``convert`` may change the dict it is given and return it, or return another: it is given one of
  its own. It may be called by several threads at a time.
- An item that it cannot handle makes it raise ``ConvertError``: the item is refused with that
  reason. Any other exception refuses the item as well, as ``converter_failed``.
- An ``init`` that it cannot work with makes its class raise ``ValueError`` or ``TypeError``: the
  rule set is refused at the place of the entry. A ``msgspec.Struct`` does so by itself.

Other packages name theirs in the entry point group ``crawlyard.converters``: the name of an entry
point is the class as rules say it (``ic.ExtractTaskParams``), its value is where it is.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import msgspec

from apps.routing.engine.items import Item, NoItem, read_json


class ConvertError(Exception):
    """This item cannot be converted; ``code`` says why in a word, the text for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        # Filled in by the chain: which step it was, from 0, and its class as the rules say it.
        self.step: int | None = None
        self.cls = ""


class Converter(Protocol):
    """One step of a chain."""

    def convert(self, item: Item) -> Item:
        """The item after this step. Raises ``ConvertError``."""
        ...


class Own(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of our own converters: fields are parameters, checked when they are made.

    They leave what lies inside the values of an item as it is, so a flat copy of it is enough.
    """

    # False: what it returns has no key and no value that could be none of an item.
    adds: ClassVar[bool] = True

    def convert(self, item: Item) -> Item:
        """The item after this step; the dict is the converter's own."""
        raise NotImplementedError


def as_dict(value: Any, *, key: str) -> dict[str, Any]:
    """``value`` as the dict that it is or is the JSON text of. Raises ``ConvertError``."""
    if isinstance(value, str):
        value = as_json(value, key=key)
    if not isinstance(value, dict):
        raise ConvertError("not_a_dict", f"{key} holds no object but {_shown(value)}")
    return value


def as_json(text: str, *, key: str) -> Any:
    """What the JSON in ``text`` says. Raises ``ConvertError``."""
    try:
        return read_json(text)
    except NoItem as error:
        raise ConvertError("not_json", f"{key} holds a text that is refused: {error}") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
