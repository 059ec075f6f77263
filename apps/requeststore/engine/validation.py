"""Validation of biz settings; each problem has its place: ``bizzes.news.epochs[1].splits``.

``book, flaws = read_book(data)``: ``book`` is None when a flaw is more than a warning. A flaw is a
code with values; ``apps.requeststore.texts`` has the texts.
"""

from __future__ import annotations

import difflib
import enum
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeGuard, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from apps.requeststore.engine.biz import (
    MAX_BIZZES,
    MAX_SPLITS,
    RECORDS_NAME,
    Biz,
    BizSettings,
    DownloaderKind,
    Epoch,
    Fetch,
    Records,
)
from apps.requeststore.engine.entity import MAX_PRIORITY
from apps.requeststore.engine.flags import FAILED, MAX_FLAG, PROCESSED
from apps.requeststore.engine.request_checks import BREAKS
from yardkit.names import IDENTIFIER, is_token
from yardkit.protocol import DownloaderSettings, Policy

MAX_EPOCHS: Final = 100
MAX_FLAGS: Final = 100
MAX_TEXT: Final = 500
MAX_TTL_SECONDS: Final = 366 * 24 * 3600
MIN_TTL_SECONDS: Final = 60
# The accounting of a 10-minute span is closed 11 minutes after its first request has expired. A
# store with TTL indexes must not delete earlier, not even after an outage of the upkeep.
MIN_KEEP_SECONDS: Final = 3600
MAX_DAY: Final = 24 * 3600
MAX_WAITING: Final = 1_000_000_000
MAX_SAMPLE: Final = 1_000_000
MAX_PAGE_DAYS: Final = 3650
MAX_RECORD_SECONDS: Final = 10 * 366 * 24 * 3600

_S = TypeVar("_S", bound=msgspec.Struct)

_FLAG: Final = re.compile(r"[1-9][0-9]{0,2}")
# Downloader fields that a biz sets elsewhere or must not set.
_NOT_DOWNLOADER: Final = frozenset({"allowed_networks", "concurrency", "timeout_seconds"})
DOWNLOADER_FIELDS: Final = frozenset(DownloaderSettings.__struct_fields__) - _NOT_DOWNLOADER


class SettingsProblem(msgspec.Struct, frozen=True):
    """Validation problem at a place. ``values`` fill the text of ``code``."""

    place: str
    code: str
    values: Mapping[str, Any] = {}
    warning: bool = False


def read_settings(data: Mapping[str, Any]) -> tuple[BizSettings | None, list[SettingsProblem]]:
    """Return the bizzes of a version, or None when they are invalid, and all problems."""
    reader = _Reader()
    book = reader.struct(dict(data), BizSettings, "")
    flaws = reader.flaws
    if len(book.bizzes) > MAX_BIZZES:
        flaws.append(SettingsProblem("bizzes", "too_many", {"most": MAX_BIZZES}))
    for name, biz in book.bizzes.items():
        # Invalid parts have their defaults: each problem is reported once.
        refused = {flaw.place for flaw in flaws if not flaw.warning}
        place = f"bizzes.{name}"
        flaws += [flaw for flaw in _biz(place, name, biz) if flaw.place not in refused]
    flaws += _shared(book)
    return (None if any(not flaw.warning for flaw in flaws) else book), flaws


# --- from plain data to structs -------------------------------------------------------------------


class _Reader:
    """Converts data field by field, so that every problem is found with its place."""

    def __init__(self) -> None:
        self.flaws: list[SettingsProblem] = []

    def struct(self, value: object, cls: type[_S], place: str) -> _S:
        """Return the struct; unreadable fields have their defaults."""
        if not isinstance(value, dict):
            self.flaws.append(SettingsProblem(place, "not_mapping"))
            return cls()
        types = _types_of(cls)
        values = dict[str, Any]()
        for key, element in value.items():
            where = f"{place}.{key}" if place else key
            if key not in types:
                self.flaws.append(_unknown(where, key, types))
                continue
            converted = self.value(element, types[key], where)
            if converted is not None:
                values[key] = converted
        return cls(**values)

    def value(self, value: object, kind: Any, place: str) -> Any:
        """Return ``value`` as ``kind``; None when it does not fit."""
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self.struct(value, kind, place)
        origin = get_origin(kind)
        if origin is list:
            return self._list(value, get_args(kind)[0], place)
        if origin is dict:
            return self._dict(value, get_args(kind)[1], place)
        if kind is Any:
            return value
        if issubclass(kind, enum.Enum):
            return self._choice(value, kind, place)
        if _is(value, kind):
            return float(value) if kind is float else value
        self.flaws.append(SettingsProblem(place, _NOT[kind]))
        return None

    def _list(self, value: object, kind: Any, place: str) -> list[Any] | None:
        if not isinstance(value, list):
            self.flaws.append(SettingsProblem(place, "not_list"))
            return None
        values = [self.value(element, kind, f"{place}[{n}]") for n, element in enumerate(value)]
        # One unreadable item invalidates the list: number and order matter.
        return None if any(element is None for element in values) else values

    def _dict(self, value: object, kind: Any, place: str) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            self.flaws.append(SettingsProblem(place, "not_mapping"))
            return None
        values = {
            key: self.value(element, kind, f"{place}.{key}") for key, element in value.items()
        }
        return {
            key: element for key, element in values.items() if element is not None or kind is Any
        }

    def _choice(self, value: object, kind: type[enum.Enum], place: str) -> enum.Enum | None:
        names = [member.value for member in kind]
        if isinstance(value, str) and value in names:
            return kind(value)
        self.flaws.append(
            SettingsProblem(place, "not_choice", {"names": ", ".join(map(str, names))})
        )
        return None


_NOT: Final[Mapping[type, str]] = {
    str: "not_text",
    int: "not_whole",
    float: "not_number",
    bool: "not_bool",
}


def _types_of(cls: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {name: hints[name] for name in cls.__struct_fields__}


def _is(value: object, kind: type) -> TypeGuard[Any]:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, kind)


def _unknown(place: str, name: str, known: Iterable[str]) -> SettingsProblem:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    if near:
        return SettingsProblem(place, "unknown_field_near", {"near": near[0]})
    return SettingsProblem(place, "unknown_field", {"names": ", ".join(sorted(known))})


# --- what the values mean -------------------------------------------------------------------------


def _biz(place: str, name: str, biz: Biz) -> Iterator[SettingsProblem]:
    if not IDENTIFIER.fullmatch(name):
        yield SettingsProblem(place, "bad_name")
    for field in ("database", "collection", "queue"):
        value = getattr(biz, field)
        if not IDENTIFIER.fullmatch(value) and (value or field == "collection"):
            yield SettingsProblem(f"{place}.{field}", "bad_name")
    if len(biz.description) > MAX_TEXT:
        yield SettingsProblem(f"{place}.description", "too_long", {"most": MAX_TEXT})
    yield from _epochs(place, biz.epochs)
    yield from _times(place, biz)
    yield from _flags(place, biz)
    yield from _fetch(f"{place}.fetch", biz.fetch)
    yield from _records(f"{place}.records", biz.records)
    yield from _within(f"{place}.pages", "sample", biz.pages.sample, 1, MAX_SAMPLE)
    yield from _within(f"{place}.pages", "days", biz.pages.days, 1, MAX_PAGE_DAYS)


def _times(place: str, biz: Biz) -> Iterator[SettingsProblem]:
    yield from _within(place, "ttl_seconds", biz.ttl_seconds, MIN_TTL_SECONDS, MAX_TTL_SECONDS)
    yield from _within(place, "keep_seconds", biz.keep_seconds, MIN_KEEP_SECONDS, MAX_TTL_SECONDS)
    yield from _within(place, "take_seconds", biz.take_seconds, 1, MAX_DAY)
    yield from _within(place, "max_tries", biz.max_tries, 1, 100)
    yield from _within(place, "retry_seconds", biz.retry_seconds, 0, MAX_DAY)
    yield from _within(place, "priority", biz.priority, 0, MAX_PRIORITY)
    yield from _within(place, "max_waiting", biz.max_waiting, 0, MAX_WAITING)
    yield from _within(place, "finish_by_seconds", biz.finish_by_seconds, 0, MAX_TTL_SECONDS)
    if biz.finish_by_seconds > biz.ttl_seconds:
        yield SettingsProblem(
            f"{place}.finish_by_seconds", "after_ttl", {"ttl": biz.ttl_seconds}, True
        )
    if 0 < biz.take_seconds < biz.fetch.timeout_seconds:
        values = {"timeout": biz.fetch.timeout_seconds}
        yield SettingsProblem(f"{place}.take_seconds", "taken_too_short", values, True)


def _epochs(place: str, epochs: list[Epoch]) -> Iterator[SettingsProblem]:
    if not 1 <= len(epochs) <= MAX_EPOCHS:
        yield SettingsProblem(f"{place}.epochs", "epochs_count", {"most": MAX_EPOCHS})
        return
    before = -1
    for number, epoch in enumerate(epochs):
        where = f"{place}.epochs[{number}]"
        if number == 0 and epoch.since != 0:
            yield SettingsProblem(f"{where}.since", "first_epoch")
        elif epoch.since <= before:
            yield SettingsProblem(f"{where}.since", "epochs_not_rising", {"before": before})
        before = epoch.since
        yield from _within(where, "splits", epoch.splits, 1, MAX_SPLITS)
        if not 1 <= len(epoch.nodes) <= MAX_SPLITS:
            yield SettingsProblem(f"{where}.nodes", "nodes_count", {"most": MAX_SPLITS})
        for index, node in enumerate(epoch.nodes):
            if not IDENTIFIER.fullmatch(node):
                yield SettingsProblem(f"{where}.nodes[{index}]", "bad_name")
            elif node in epoch.nodes[:index]:
                yield SettingsProblem(f"{where}.nodes[{index}]", "node_twice", {"node": node}, True)
        if len(epoch.nodes) > epoch.splits > 0:
            values = {"nodes": len(epoch.nodes), "splits": epoch.splits}
            yield SettingsProblem(f"{where}.nodes", "idle_nodes", values, True)


def _flags(place: str, biz: Biz) -> Iterator[SettingsProblem]:
    if len(biz.flags) > MAX_FLAGS:
        yield SettingsProblem(f"{place}.flags", "too_many", {"most": MAX_FLAGS})
    for flag, text in biz.flags.items():
        where = f"{place}.flags.{flag}"
        if not _FLAG.fullmatch(flag) or int(flag) == PROCESSED:
            yield SettingsProblem(where, "bad_flag", {"least": PROCESSED + 1, "most": MAX_FLAG})
        if len(text) > MAX_TEXT:
            yield SettingsProblem(where, "too_long", {"most": MAX_TEXT})
    if biz.failed_flag != FAILED and str(biz.failed_flag) not in biz.flags:
        yield SettingsProblem(f"{place}.failed_flag", "unknown_flag", {"usual": FAILED})


def _fetch(place: str, fetch: Fetch) -> Iterator[SettingsProblem]:
    policies = [policy.value for policy in Policy]
    if fetch.policy not in policies:
        yield SettingsProblem(f"{place}.policy", "not_choice", {"names": ", ".join(policies)})
    yield from _within(place, "agents", fetch.agents, 0, 1000)
    yield from _within(place, "concurrency", fetch.concurrency, 1, 1000)
    yield from _within(place, "timeout_seconds", fetch.timeout_seconds, 0.1, 600)
    if fetch.through is DownloaderKind.DIRECT and fetch.agents:
        yield SettingsProblem(f"{place}.agents", "not_direct", warning=True)
    for name, value in fetch.headers.items():
        if not is_token(name, 200) or BREAKS.search(value) or len(value) > 8000:
            yield SettingsProblem(f"{place}.headers.{name}", "bad_header")
    yield from _downloader(f"{place}.downloader", fetch.downloader)


def _downloader(place: str, given: Mapping[str, Any]) -> Iterator[SettingsProblem]:
    types = get_type_hints(DownloaderSettings)
    for name, value in given.items():
        where = f"{place}.{name}"
        if name not in DOWNLOADER_FIELDS:
            yield _unknown(where, name, DOWNLOADER_FIELDS)
            continue
        try:
            msgspec.convert(value, types[name])
        except msgspec.ValidationError as error:
            yield SettingsProblem(where, "bad_downloader", {"why": str(error)})


def _records(place: str, records: Records) -> Iterator[SettingsProblem]:
    if records.name and not RECORDS_NAME.fullmatch(records.name):
        yield SettingsProblem(f"{place}.name", "bad_records_name")
    yield from _within(place, "ttl_seconds", records.ttl_seconds, 0, MAX_RECORD_SECONDS)


def _shared(book: BizSettings) -> Iterator[SettingsProblem]:
    """Report bizzes that share a collection or a queue: each would take the other's requests."""
    collections, queues = dict[tuple[str, str], str](), dict[str, str]()
    for name, biz in book.bizzes.items():
        where = (biz.database or name, biz.collection)
        other = collections.setdefault(where, name)
        if other != name:
            yield SettingsProblem(f"bizzes.{name}.collection", "same_collection", {"other": other})
        other = queues.setdefault(biz.queue or name, name)
        if other != name:
            yield SettingsProblem(f"bizzes.{name}.queue", "same_queue", {"other": other})


def _within(
    place: str, field: str, value: float, least: float, most: float
) -> Iterator[SettingsProblem]:
    if not least <= value <= most:
        yield SettingsProblem(f"{place}.{field}", "not_within", {"least": least, "most": most})


def changed_epochs(old: Biz, new: Biz, now: int) -> Iterator[int]:
    """Return indexes of epochs of ``old`` that hold requests and that ``new`` changes.

    An epoch that begins after ``now`` (ms) holds none yet; one whose last request is deleted, none
    any more.
    """
    kept = {epoch.since: epoch for epoch in new.epochs}
    ends = [epoch.since for epoch in old.epochs[1:]] + [now + 1]
    oldest = now - old.delete_after_seconds * 1000
    for index, (epoch, end) in enumerate(zip(old.epochs, ends, strict=True)):
        if epoch.since <= now and end > oldest and kept.get(epoch.since) != epoch:
            yield index
