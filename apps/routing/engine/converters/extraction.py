"""Converters that copy a nested dict to the top level of an item.

``common.ExtractTaskParams`` and ``common.ExtractMetadata`` exist because an outbound reads its
``task_params`` only from the top level of an item, while the log of a spider has the
parameters of the task in ``task_params`` and the results in ``metadata``.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from apps.routing.engine.converters.base import BuiltInConverter, as_dict
from apps.routing.engine.items import Item, check_item

# The spider reports the outcome of the attempt at the top level of its log. A value left over in
# the parameters of the task must not replace it.
_NEVER_LIFTED = "task_result"
# A dict that was already part of the item and has at most this many keys is copied unchecked.
_FEW = 1000


class _Extraction(BuiltInConverter, frozen=True, kw_only=True):
    """Copy the entries of the dict under ``_key`` to the top level of the item.

    - ``existing``: how a key that already exists at the top level is handled. By default the
      nested value replaces it: a log has keys of its own (``data_type: task_distribution``), but
      a retry needs the value from the task (``data_type: change``). ``keep`` keeps the value at
      the top level. ``task_result`` is never replaced.
    - ``keep_dict``: whether the dict itself is kept. True by default, because the seed's selectors
      read ``task_params['province']`` after such a step. If the dict contains a key with its own
      name, that value replaces the dict, so that a task that is retried does not gain a nesting
      level each time.

    The value may also be the JSON text of an object. A missing key, null or an empty string leaves
    the item unchanged; any other value rejects the item.
    """

    # ``convert`` checks the result itself, and only if it may be invalid.
    adds: ClassVar[bool] = False
    _key: ClassVar[str] = ""

    existing: Literal["replace", "keep"] = "replace"
    keep_dict: bool = True

    def convert(self, item: Item) -> Item:
        key = self._key
        stored = item.get(key)
        if stored is None or stored == "":
            return item
        inside = as_dict(stored, key=key)
        if self.keep_dict:
            item[key] = inside
        else:
            del item[key]
        for name, value in inside.items():
            taken = name in item and (self.existing == "keep" or name == _NEVER_LIFTED)
            if not taken or name == key:
                item[name] = value
        if inside is not stored or len(inside) > _FEW:
            check_item(item)
        return item


class ExtractTaskParams(_Extraction, frozen=True, kw_only=True):
    """Copy the entries of ``task_params`` to the top level."""

    _key = "task_params"


class ExtractMetadata(_Extraction, frozen=True, kw_only=True):
    """Copy the entries of ``metadata`` to the top level."""

    _key = "metadata"
