"""``common.ExtractTaskParams`` and ``common.ExtractMetadata``: from inside to the top level.

An outbound takes its ``task_params`` from the top level of an item alone (seed S2.26), while a
spider's log has what it was asked in ``task_params`` and what it found in ``metadata``.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from apps.routing.engine.converters.base import Own, as_dict
from apps.routing.engine.items import Item, check_item

# How the attempt has ended is for the spider to say, at the top level of its log: what it was once
# asked must not say it instead.
_NEVER_LIFTED = "task_result"
# What was a part of the item and is small makes no item too large.
_FEW = 1000


class _Lift(Own, frozen=True, kw_only=True):
    """Put what the dict under ``_key`` holds at the top level.

    - ``existing``: what becomes of a key that is at the top level already. By default the lifted
      value replaces it: a log has keys of its own (``data_type: task_distribution``), and the one
      that the task was given (``data_type: change``) is the one that a retry needs. ``keep``
      leaves the one at the top. ``task_result`` is never replaced.
    - ``keep_dict``: by default the dict itself stays, because the seed's selectors read
      ``task_params['province']`` behind such a step. When it holds a key of its own name, that
      takes its place, so a task that goes round does not grow by a level each time.

    The value may be the JSON text of an object. Nothing there, or an empty text, is nothing to
    lift; anything else refuses the item.
    """

    # It looks at what it has made by itself, where that can be no item.
    adds: ClassVar[bool] = False
    _key: ClassVar[str] = ""

    existing: Literal["replace", "keep"] = "replace"
    keep_dict: bool = True

    def convert(self, item: Item) -> Item:
        """The item with what was inside at the top level too."""
        key = self._key
        found = item.get(key)
        if found is None or found == "":
            return item
        inside = as_dict(found, key=key)
        if self.keep_dict:
            item[key] = inside
        else:
            del item[key]
        for name, value in inside.items():
            taken = name in item and (self.existing == "keep" or name == _NEVER_LIFTED)
            if not taken or name == key:
                item[name] = value
        if inside is not found or len(inside) > _FEW:
            check_item(item)
        return item


class ExtractTaskParams(_Lift, frozen=True, kw_only=True):
    """Put what ``task_params`` holds at the top level."""

    _key = "task_params"


class ExtractMetadata(_Lift, frozen=True, kw_only=True):
    """Put what ``metadata`` holds at the top level."""

    _key = "metadata"
