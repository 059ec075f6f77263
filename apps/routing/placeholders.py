"""What stands for ``{redis_url}`` and the like in rules, once they run (seed S2.14).

Versions keep placeholders as they are written, so values are in the environment alone. Whoever
writes rules can have a value sent anywhere, so what ``ROUTING_PLACEHOLDERS`` holds is for them to
use; the addresses of the platform's own stores stand for a whole ``url`` of an entry and for
nothing else. There the queues of the platform and of other projects stay closed to rules: the login
that stands in these addresses may read them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from django.conf import settings

from apps.projects.models import Project
from apps.routing.engine.confined import Confined, Outside
from apps.routing.engine.files.data import from_data
from apps.routing.engine.files.fields import DataOrigin
from apps.routing.engine.files.placeholders import TooLong, fill, holds_any, names, only_name
from apps.routing.engine.rules import Problem, RuleSet
from apps.sources.models import RecordQueue
from yardkit.own_queues import is_own
from yardkit.yaml_reader import Path

# They hold the passwords of the platform itself.
STORES: Final = frozenset({"redis_url", "broker_url"})
_ENTRIES: Final = ("inbound", "outbound")
# Where the name of a queue or a list stands, by the setting of the store.
_NAMED: Final = {"BROKER_URL": "queue", "REDIS_URL": "key"}
_PORTS: Final = {"amqp": 5672, "amqps": 5671, "redis": 6379, "rediss": 6379}
_RECORDS: Final = re.compile(r"records\.p([0-9]+)\.")
# Braces mean nothing in them.
_LITERAL: Final = ("selector", "note", "place")


def placeholders(project: str) -> dict[str, str]:
    """Every value by name; ``project`` is a slug. The setting goes before what is built in."""
    found = {
        "redis_url": settings.REDIS_URL,
        "broker_url": settings.BROKER_URL,
        "failure_path": str(settings.ROUTING_FAILURE_DIRS[0] / f"{project}.jsonl"),
    }
    return {name: value for name, value in found.items() if value} | settings.ROUTING_PLACEHOLDERS


def filled_rules(data: Mapping[str, Any], project: str) -> tuple[RuleSet | None, list[Problem]]:
    """The rules of a version as they run: with values, which no problem shows.

    None when a placeholder has no value, or stands where it may not.
    """
    misplaced = [each for each in problems(data) if not each.warning]
    misplaced = misplaced or list(_of_others(data, project))
    if misplaced:
        return None, misplaced
    return from_data(data, placeholders=placeholders(project))


def problems(data: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the placeholders of data that keeps them, and with its failure file.

    A name without a value is a warning: a router's environment may have one.
    """
    known = placeholders("project")
    origin = DataOrigin()
    warned = set()
    for path, text in _texts(data, ()):
        for name in names(text):
            if name in STORES and not (_is_url(path) and only_name(text)):
                said = f"{{{name}}} holds a password: it is for a whole url of init and no more"
                yield Problem(origin.place(path), "misplaced_placeholder", said)
            # Formats of logs have braces of their own.
            elif name not in known and name not in warned and path[0] != "logging":
                warned.add(name)
                said = f"there is no placeholder {{{name}}}; set it in ROUTING_PLACEHOLDERS"
                yield Problem(origin.place(path), "unknown_placeholder", said, warning=True)
    yield from _failure_file(data, known)
    for place, _store, _name in _closed(data, known):
        yield Problem(place, "queue_of_others", "the platform itself uses what has this name")


def _failure_file(data: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[Problem]:
    """A router would refuse it later, item by item."""
    failure = data.get("failure")
    path = failure.get("path") if isinstance(failure, Mapping) else None
    if not isinstance(path, str) or not path:
        return
    try:
        filled, unknown = fill(path, known)
        if not unknown:
            Confined(filled, settings.ROUTING_FAILURE_DIRS)
    except TooLong:
        return
    except Outside as error:
        text = f"{error}; ROUTING_FAILURE_DIRS names the folders"
        yield Problem("failure.path", "failure_outside", text)


def _of_others(data: Mapping[str, Any], project: str) -> Iterator[Problem]:
    """Queues of records, in the platform's own broker, that another project owns."""
    named = [
        (place, name)
        for place, store, name in _in_stores(data, placeholders(project))
        if store == "BROKER_URL"
    ]
    if not named:
        return
    own = Project.objects.filter(slug=project).values_list("pk", flat=True).first()
    others = RecordQueue.objects.filter(name__in={name for _place, name in named})
    taken = set(others.exclude(project=own).values_list("name", flat=True))
    for place, name in named:
        records = _RECORDS.match(name)
        if name in taken if records is None else records[1] != str(own):
            yield Problem(place, "queue_of_others", "the queue belongs to another project")


def _closed(data: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for place, store, name in _in_stores(data, known):
        # Redis hashes what stands in braces; the name is the same.
        keys = name.lstrip("{").startswith(f"{settings.REDIS_PREFIX}:")
        if is_own(name) if store == "BROKER_URL" else keys:
            yield place, store, name


def _in_stores(data: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(place, setting of the store, name) of each queue or list in the platform's own stores."""
    origin = DataOrigin()
    for section in _ENTRIES:
        for number, entry in enumerate(_listed(data.get(section))):
            init = entry.get("init") if isinstance(entry, Mapping) else None
            url = _filled(init, "url", known)
            for store, field in _NAMED.items():
                own: str = getattr(settings, store)
                if url and own and _server(url) == _server(own):
                    path = (section, number, "init", field)
                    yield origin.place(path), store, _filled(init, field, known)


def _listed(value: object) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, list | tuple) else ()


def _filled(init: object, field: str, known: Mapping[str, str]) -> str:
    """Of an ``init``, as a router reads it; "" for what is no text."""
    text = init.get(field) if isinstance(init, Mapping) else None
    if not isinstance(text, str):
        return ""
    try:
        return fill(text, known)[0]
    except TooLong:
        return ""


def _server(url: str) -> tuple[object, ...]:
    """Equal for two addresses of one store, whoever logs in there."""
    try:
        parts = urlsplit(url)
        where = (parts.hostname, parts.port or _PORTS.get(parts.scheme))
    except ValueError:
        return (url,)
    if parts.hostname is None:
        return (parts.path,)
    # Databases of Redis have keys of their own, but the prefix is closed in each.
    host = unquote(parts.path[1:]) or "/" if parts.scheme.startswith("amqp") else ""
    return (*where, host)


def _is_url(path: Path) -> bool:
    return len(path) == 4 and path[0] in _ENTRIES and path[2:] == ("init", "url")


def _texts(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Each text in which a placeholder stands, and where."""
    if isinstance(value, str):
        yield from [(path, value)] if holds_any(value) else ()
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if not (len(path) == 2 and path[0] in _ENTRIES and name in _LITERAL):
                yield from _texts(part, (*path, name))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _texts(part, (*path, number))
