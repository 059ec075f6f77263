"""Differences between two versions, each with its place.

Entries of a list that have a ``name`` are matched by it, so that an entry inserted in front does
not make all others look changed. Other lists are compared by content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import islice
from typing import Any, Final

MOST_CHANGES: Final = 2_000
# Longer lists without names are shown as one change: comparing them takes too long.
_LONG: Final = 1_000
_SHOWN: Final = 200


class ChangeKind(StrEnum):
    """Kind of a difference."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class DataChange:
    """One difference: ``before`` is None for added data, ``after`` for removed data.

    For ``moved`` both are the names of the list's entries in order.
    """

    place: str
    what: ChangeKind
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        if self.what is ChangeKind.ADDED:
            return f"+ {self.place}: {_short(self.after)}"
        if self.what is ChangeKind.REMOVED:
            return f"- {self.place}: {_short(self.before)}"
        mark = "~" if self.what is ChangeKind.CHANGED else "^"
        return f"{mark} {self.place}: {_short(self.before)} -> {_short(self.after)}"


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[DataChange]:
    """Return the differences of two plain data structures, at most ``MOST_CHANGES``."""
    return list(islice(_mappings("", old, new), MOST_CHANGES))


def _values(place: str, old: Any, new: Any) -> Iterator[DataChange]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _mappings(place, old, new)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _lists(place, old, new)
    elif not _same(old, new):
        yield DataChange(place, ChangeKind.CHANGED, old, new)


def _same(old: Any, new: Any) -> bool:
    # To Python 1 == True == 1.0 and 0.0 == -0.0; to a reader of the file they differ.
    return _text(old) == _text(new)


def _mappings(place: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[DataChange]:
    for key in [*old, *(key for key in new if key not in old)]:
        where = f"{place}.{key}" if place else key
        if key not in new:
            yield DataChange(where, ChangeKind.REMOVED, before=old[key])
        elif key not in old:
            yield DataChange(where, ChangeKind.ADDED, after=new[key])
        else:
            yield from _values(where, old[key], new[key])


def _lists(place: str, old: list[Any], new: list[Any]) -> Iterator[DataChange]:
    was, now = _by_name(old), _by_name(new)
    if was is not None and now is not None and (was or now):
        for name in [*was, *(name for name in now if name not in was)]:
            where = f"{place}[{name}]"
            if name not in now:
                yield DataChange(where, ChangeKind.REMOVED, before=was[name])
            elif name not in was:
                yield DataChange(where, ChangeKind.ADDED, after=now[name])
            else:
                yield from _mappings(where, was[name], now[name])
        stayed = [name for name in was if name in now]
        order = [name for name in now if name in was]
        if stayed != order:
            yield DataChange(place, ChangeKind.MOVED, stayed, order)
        return
    if max(len(old), len(new)) > _LONG:
        if _text(old) != _text(new):
            yield DataChange(place, ChangeKind.CHANGED, old, new)
        return
    yield from _plain_lists(place, old, new)


def _plain_lists(place: str, old: list[Any], new: list[Any]) -> Iterator[DataChange]:
    left, right = [_text(element) for element in old], [_text(element) for element in new]
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            continue
        paired = min(i2 - i1, j2 - j1)
        for step in range(paired):
            yield from _values(f"{place}[{j1 + step}]", old[i1 + step], new[j1 + step])
        for index in range(i1 + paired, i2):
            yield DataChange(f"{place}[{index}]", ChangeKind.REMOVED, before=old[index])
        for index in range(j1 + paired, j2):
            yield DataChange(f"{place}[{index}]", ChangeKind.ADDED, after=new[index])


def _by_name(entries: list[Any]) -> dict[str, Mapping[str, Any]] | None:
    """Map entries by their ``name``; None unless all entries are mappings with unique names."""
    by_name: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or name in by_name:
            return None
        by_name[name] = entry
    return by_name


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _short(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
