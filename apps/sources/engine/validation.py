"""Validation of source settings: all problems at once, each with its place.

Pure: no database, no network. Checks that need Django (cron, the broker's URL) are passed in.
"""

from __future__ import annotations

import difflib
import enum
import re
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from apps.configcenter.engine.kinds import DataProblem
from apps.sources.engine import paths
from apps.sources.engine.settings import (
    MAX_SOURCES,
    MOST_OF_OTHERS,
    MOST_REQUESTS_A_SECOND,
    Mode,
    NamedBroker,
    Source,
    SourceKind,
    merged,
)
from yardkit.names import SLUG
from yardkit.own_queues import is_own

# Raises ``ValueError`` with a text for people.
CheckCron = Callable[[str], None]

_TOP: Final = ("defaults", "sources", "broker")
_FIELDS: Final = {field.name: field.type for field in msgspec.structs.fields(Source)}
_BROKER_FIELDS: Final = {field.name: field.type for field in msgspec.structs.fields(NamedBroker)}
# RabbitMQ's maximum TTL: 2**32 ms.
_LONGEST_TTL: Final = 4_000_000
_RANGES: Final[dict[str, tuple[float, float]]] = {
    "batch_size": (1, 1000),
    "filter_days": (0, 36_500),
    "future_seconds": (0, 10 * 366 * 86_400),
    "max_expired_batches": (0, 1_000_000),
    "ttl_seconds": (0.001, _LONGEST_TTL),
    "rate_limit": (0.01, MOST_OF_OTHERS),
    "timeout_seconds": (0.1, 600),
    "retries": (0, 20),
}
_LONGEST: Final = {"description": 500, "base_url": 2000, "task_id": 200, "date_format": 100}
# Reserved prefix: queues of records of bizzes, which have other consumers.
_RECORDS: Final = "records."
_QUEUE_OR_TASK: Final = re.compile(r"[A-Za-z0-9_.:-]{1,200}")


def check(data: Mapping[str, Any], *, cron: CheckCron, broker_url: str) -> Iterator[DataProblem]:
    """Return all problems of a configuration, warnings included."""
    yield from _unknown("", data, _TOP)
    defaults = data.get("defaults", {})
    sources = data.get("sources", {})
    if not isinstance(defaults, dict) or not isinstance(sources, dict):
        bad = "defaults" if not isinstance(defaults, dict) else "sources"
        yield DataProblem(bad, "not_a_mapping", "expected a mapping")
        return
    in_defaults = list(_fields("defaults", defaults, cron))
    yield from in_defaults
    yield from _broker(data.get("broker"), broker_url)
    if len(sources) > MAX_SOURCES:
        yield DataProblem("sources", "too_many", f"at most {MAX_SOURCES} sources")
        return
    for name, entry in sources.items():
        yield from _source(name, entry, defaults, cron, bool(in_defaults))


def _source(
    name: str, entry: Any, defaults: Mapping[str, Any], cron: CheckCron, broken: bool
) -> Iterator[DataProblem]:
    place = f"sources.{name}"
    if not SLUG.fullmatch(name):
        text = "use lower-case letters, digits, '-' and '_', a letter first, at most 64"
        yield DataProblem(place[:100], "bad_name", text)
    entry = {} if entry is None else entry
    if not isinstance(entry, dict):
        yield DataProblem(place, "not_a_mapping", "expected a mapping")
        return
    problems = list(_fields(place, entry, cron))
    yield from problems
    if not broken and all(problem.warning for problem in problems):
        yield from _whole(place, msgspec.convert(merged(defaults, entry), Source))


# --- one field --------------------------------------------------------------------------------


def _fields(place: str, entry: Mapping[str, Any], cron: CheckCron) -> Iterator[DataProblem]:
    yield from _unknown(place, entry, _FIELDS)
    for key, value in entry.items():
        if key in _FIELDS:
            where = f"{place}.{key}"
            wrong = _of_type(where, value, _FIELDS[key]) or _of_value(where, key, value, cron)
            if wrong is not None:
                yield wrong
            elif key == "json":
                yield from _json(where, value)


def _json(place: str, value: Mapping[str, Any]) -> Iterator[DataProblem]:
    for key in ("total", "records"):
        if key in value and (text := paths.problem(value[key])):
            yield DataProblem(f"{place}.{key}", "bad_path", text)
    for key in ("offset_parameter", "size_parameter"):
        if value.get(key) == "":
            yield DataProblem(f"{place}.{key}", "bad_value", "expected the name of a parameter")


def _of_type(place: str, value: Any, wanted: Any) -> DataProblem | None:
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        if isinstance(wanted, enum.EnumMeta):
            return DataProblem(place, "bad_value", f"one of: {', '.join(map(str, wanted))}")
        # "Expected `int`, got `str` - at `$.total`": the inner place stays in the text.
        text = str(error).replace("`", "").replace(" - at $", " at ")
        return DataProblem(place, "bad_value", text)
    return None


def _of_value(place: str, key: str, value: Any, cron: CheckCron) -> DataProblem | None:
    if key in _RANGES:
        least, most = _RANGES[key]
        if not least <= value <= most:
            return DataProblem(place, "out_of_range", f"from {least:g} to {most:g}")
    if key in _LONGEST and len(value) > _LONGEST[key]:
        return DataProblem(place, "too_long", f"at most {_LONGEST[key]} characters")
    text = _text_problem(key, value, cron)
    return DataProblem(place, "bad_value", text) if text else None


def _text_problem(key: str, value: Any, cron: CheckCron) -> str:
    if not value or not isinstance(value, str):
        return "expected a name" if key == "queue" and value == "" else ""
    if key in ("date_field", "id_field"):
        return paths.problem(value)
    if key == "cron":
        return _error_of(lambda: cron(value))
    if key == "time_zone":
        known = value in zoneinfo.available_timezones()
        return "" if known else "unknown time zone; use a name such as Asia/Shanghai"
    if key == "date_format":
        return _bad_format(value)
    if key == "base_url":
        return _bad_url(value)
    if key == "credentials" and not SLUG.fullmatch(value):
        return "expected the name of credentials of this project"
    if key == "task_id" and not _QUEUE_OR_TASK.fullmatch(value):
        return "letters, digits, '-', '_', '.' and ':' only"
    return bad_queue(value) if key == "queue" else ""


def bad_queue(name: str) -> str:
    """Return why records cannot be published to the queue; "" if they can."""
    if is_own(name) or name.startswith(_RECORDS):
        return "reserved for a queue of the platform"
    if not _QUEUE_OR_TASK.fullmatch(name):
        return "letters, digits, '-', '_', '.' and ':' only, at most 200"
    return ""


def _bad_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        bad = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        bad = True
    if bad:
        return "expected a URL such as https://dataapi.octoparse.com"
    if parts.username is not None or parts.password is not None:
        return "no user name and password here; use credentials"
    return "no '#' here" if parts.fragment else ""


def _bad_format(text: str) -> str:
    try:
        moment = datetime(2026, 1, 8, 12, 30)  # noqa: DTZ001 - a format may name no zone
        datetime.strptime(moment.strftime(text), text)  # noqa: DTZ007 - the same
    except ValueError as error:
        return f"invalid date format: {error}"
    return ""


def _error_of(call: Callable[[], None]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


# Keys of the seed's configuration.
_RENAMED: Final = {"tasks": ("sources",)}


def _unknown(place: str, data: Mapping[str, Any], known: Iterable[str]) -> Iterator[DataProblem]:
    names = list(known)
    for key in data:
        if key not in names:
            near = [*difflib.get_close_matches(key, names, n=1), *_RENAMED.get(key, ())]
            text = f"unknown; did you mean {near[0]}?" if near else "unknown"
            yield DataProblem(f"{place}.{key}".lstrip(".")[:200], "unknown_field", text)


# --- a whole source ---------------------------------------------------------------------------


def _whole(place: str, source: Source) -> Iterator[DataProblem]:
    if source.kind is SourceKind.OCTOPARSE:
        if source.rate_limit > MOST_REQUESTS_A_SECOND:
            text = f"Octoparse allows at most {MOST_REQUESTS_A_SECOND:g} requests a second"
            yield DataProblem(f"{place}.rate_limit", "out_of_range", text)
        if not source.task_id:
            yield DataProblem(f"{place}.task_id", "missing", "expected the ID of a task")
        if not source.credentials:
            text = "the API requires user name and password; set credentials"
            yield DataProblem(f"{place}.credentials", "missing", text)
        if "?" in source.url:
            yield DataProblem(f"{place}.base_url", "bad_value", "expected the part before /token")
    else:
        yield from _whole_json(place, source)
    if not source.date_field and source.filter_days and source.mode is Mode.OFFSET:
        text = "without date_field nothing is too old, and a first import reads everything"
        yield DataProblem(f"{place}.date_field", "no_date_field", text, warning=True)
    if source.url.startswith("http://") and source.credentials:
        text = "the password is sent unencrypted"
        yield DataProblem(f"{place}.base_url", "not_encrypted", text, warning=True)


def _whole_json(place: str, source: Source) -> Iterator[DataProblem]:
    if not source.base_url:
        yield DataProblem(f"{place}.base_url", "missing", "expected the URL of the API")
    if source.mode is Mode.NOT_EXPORTED:
        text = "only Octoparse marks exported records; use offset"
        yield DataProblem(f"{place}.mode", "bad_value", text)
    if source.json.auth != "none" and not source.credentials:
        yield DataProblem(
            f"{place}.credentials", "missing", f"json.auth {source.json.auth} requires some"
        )


def _broker(named: Any, broker_url: str) -> Iterator[DataProblem]:
    if named is None:
        return
    if not isinstance(named, dict):
        yield DataProblem("broker", "not_a_mapping", "expected a mapping")
        return
    yield from _unknown("broker", named, _BROKER_FIELDS)
    for key, value in named.items():
        if key in _BROKER_FIELDS and (
            wrong := _of_type(f"broker.{key}", value, _BROKER_FIELDS[key])
        ):
            yield wrong
            return
    used = urlsplit(broker_url)
    wanted = (named.get("host", ""), named.get("port", 5672))
    if wanted != (used.hostname, used.port or 5672):
        text = (
            f"{wanted[0]}:{wanted[1]} is not used: records are published to BROKER_URL, "
            f"that is {used.scheme}://{used.hostname or ''}"
        )
        yield DataProblem("broker", "other_broker", text, warning=True)
