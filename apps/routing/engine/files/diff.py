"""Differences between two rule sets, and masking of passwords in data that is displayed."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

import re2

from apps.routing.engine.files.data import Data, to_data
from apps.routing.engine.files.fields import one_line, same
from apps.routing.engine.outbounds.parameters import SECRET_QUERY
from apps.routing.engine.rules import RuleSet

_SHOWN: Final = 200
_HIDDEN: Final = "****"
# RE2 matches in linear time, so a long text cannot stall the page.
_PASSWORD: Final = re2.compile(r"://([^/\s:@]*):\S*@")
_SECRET: Final = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|cookie|(api|access|private|sign(ing)?)[_-]?key"
    r"|authori",
    re.IGNORECASE,
)
_HEADERS: Final = "headers"
_SECRET_HEADER: Final = re.compile(r"auth|key|token|secret|cookie|pass|session|sign", re.IGNORECASE)


class Kind(StrEnum):
    """Kind of a change to an entry or a field."""

    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"
    ENABLED = "enabled"
    DISABLED = "disabled"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """Difference between two rule sets. Positions are counted from 1."""

    kind: Kind
    # "inbound", "outbound", or "rules" for a setting of the rule set itself.
    of: str
    # Name of the inbound or outbound; "" for the rule set itself.
    name: str
    # Path of the field, such as "selector" or "init.key"; "" for the entry as a whole.
    field: str = ""
    # Values of a changed field, or positions of an entry that was moved, added or removed.
    old: Any = None
    new: Any = None

    def __str__(self) -> str:
        # Names and texts of a rule set may contain line breaks.
        return one_line(self._text())

    def _text(self) -> str:
        subject = f"{self.of} {self.name}".strip()
        if self.kind is Kind.CHANGED:
            where = f"{subject}: {self.field}" if self.name else self.field
            return f"{where}: {_shown(self.old)} -> {_shown(self.new)}"
        if self.kind is Kind.MOVED:
            return f"{subject} moved from place {self.old} to {self.new}"
        if self.kind is Kind.ADDED:
            return f"{subject} added at place {self.new}"
        return f"{subject} {self.kind}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a dict, with ``text`` as a summary on one line."""
        return asdict(self) | {"kind": str(self.kind), "text": str(self)}


def diff_rules(old: RuleSet, new: RuleSet) -> list[Change]:
    """List the differences: settings of the rule set, inbounds, outbounds, in the new order."""
    left, other = to_data(old), to_data(new)
    changes = [
        change
        for key in ("project", "server", "routing", "failure", "logging")
        for change in _changed("rules", "", left[key], other[key], (key,))
    ]
    for key in ("inbound", "outbound"):
        changes += _entries(key, left[key], other[key])
    return changes


def _entries(of: str, old: Sequence[Data], new: Sequence[Data]) -> Iterator[Change]:
    before = {entry["name"]: (number, _compared(entry)) for number, entry in enumerate(old, 1)}
    after = {entry["name"]: (number, _compared(entry)) for number, entry in enumerate(new, 1)}
    for name, (number, _entry) in before.items():
        if name not in after:
            yield Change(Kind.REMOVED, of, name, old=number)
    stayed = _stayed([name for name in before if name in after], [*after])
    for name, (number, entry) in after.items():
        if name not in before:
            yield Change(Kind.ADDED, of, name, new=number)
            continue
        was, former = before[name]
        if name not in stayed:
            yield Change(Kind.MOVED, of, name, old=was, new=number)
        if former["disable"] != entry["disable"]:
            yield Change(Kind.DISABLED if entry["disable"] else Kind.ENABLED, of, name)
        for field in [field for field in entry if field not in ("name", "disable")]:
            yield from _changed(of, name, former[field], entry[field], (field,))


def _compared(entry: Data) -> Data:
    """Return the entry without file names and line numbers."""
    compared = {name: value for name, value in entry.items() if name != "place"}
    if "convert" in entry:
        compared["convert"] = [_compared(convert) for convert in entry["convert"]]
    return compared


def _stayed(old: Sequence[str], new: Sequence[str]) -> set[str]:
    """Return the largest set of names in unchanged relative order; all other entries moved."""
    places = {name: number for number, name in enumerate(old)}
    common = [name for name in new if name in places]
    # Longest increasing subsequence of old positions: ``last[n]`` is the smallest position at which
    # a subsequence of length n + 1 ends.
    last: list[int] = []
    ends: list[str] = []
    before: dict[str, str] = {}
    for name in common:
        length = bisect_left(last, places[name])
        if length:
            before[name] = ends[length - 1]
        last[length : length + 1] = [places[name]]
        ends[length : length + 1] = [name]
    stayed: set[str] = set()
    name = ends[-1] if ends else ""
    while name:
        stayed.add(name)
        name = before.get(name, "")
    return stayed


def _changed(of: str, name: str, old: Any, new: Any, path: tuple[str, ...]) -> Iterator[Change]:
    """Yield one change for each value that differs, descending into mappings."""
    if same(old, new):
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _changed(of, name, old.get(key), new.get(key), (*path, key))
        return
    # The first step is a common parameter and never secret, though token_scope matches _SECRET.
    secret = any(_is_secret(step, inside=inside) for inside, step in pairwise(path))
    shown = [_masked(value, secret=secret, inside=path[-1]) for value in (old, new)]
    yield Change(Kind.CHANGED, of, name, ".".join(path), *shown)


def _masked(value: Any, *, secret: bool = False, inside: str = "") -> Any:
    if isinstance(value, Mapping):
        return {
            name: _masked(part, secret=secret or _is_secret(name, inside=inside), inside=name)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [_masked(part, secret=secret, inside=inside) for part in value]
    if secret and value not in (None, ""):
        return _HIDDEN
    return _without_logins(value) if isinstance(value, str) else value


def _is_secret(name: str, *, inside: str) -> bool:
    """Return whether a value with this name is probably a secret.

    Headers are matched by a wider pattern. Elsewhere, "key" alone is the name of a Redis list.
    """
    sounds = _SECRET_HEADER if inside.lower() == _HEADERS else _SECRET
    return sounds.search(name) is not None


def _without_logins(text: str) -> str:
    """Mask passwords and secret query parameters in the URLs of a text."""
    if "://" not in text:
        return text
    text = str(_PASSWORD.sub(rf"://\1:{_HIDDEN}@", text))
    return str(SECRET_QUERY.sub(rf"\1{_HIDDEN}", text))


def without_secrets(entry: Data) -> Data:
    """Return the data of an inbound or outbound with passwords masked."""
    return {
        name: _masked(value) if name in ("init", "constants", "convert") else value
        for name, value in entry.items()
    }


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def public_data(data: Data) -> Data:
    """Return the data of a rule set with passwords masked, for users with read-only access."""
    entries = {
        key: [without_secrets(entry) for entry in data.get(key) or ()]
        for key in ("inbound", "outbound")
    }
    return data | entries | {"logging": _masked(data.get("logging"))}
