"""Values of placeholders such as ``{redis_url}`` in routing rules.

Saved versions keep placeholders unresolved, so the values exist only in the environment.

Security: an author of rules can have any value sent anywhere, so authors can in effect read the
values in ``ROUTING_PLACEHOLDERS``. The URLs of the platform's own stores hold passwords, and may
only be used as the whole ``url`` of an entry. Their login can read every queue, so rules may not
use queues of the platform or of other projects there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from django.conf import settings

from apps.projects.models import Project
from apps.routing.engine.confined import ConfinedPath, PathNotAllowed
from apps.routing.engine.files.data import from_data
from apps.routing.engine.files.fields import DataOrigin
from apps.routing.engine.files.placeholders import TextTooLong, fill, holds_any, names, only_name
from apps.routing.engine.rules import Problem, RuleSet
from apps.sources.models import RecordQueue
from yardkit.own_queues import is_own
from yardkit.yaml_reader import Path

# Placeholders for the platform's own stores, whose URLs hold passwords.
STORES: Final = frozenset({"redis_url", "broker_url"})
_ENTRIES: Final = ("inbound", "outbound")
# Parameter with the name of the queue or list, by the setting of the store.
_NAMED: Final = {"BROKER_URL": "queue", "REDIS_URL": "key"}
_PORTS: Final = {"amqp": 5672, "amqps": 5671, "redis": 6379, "rediss": 6379}
_RECORDS: Final = re.compile(r"records\.p([0-9]+)\.")
# Keys whose texts may contain braces that are not placeholders.
_LITERAL: Final = ("selector", "note", "place")


def placeholders(project: str) -> dict[str, str]:
    """Return the value of each placeholder for a project slug.

    ``ROUTING_PLACEHOLDERS`` overrides the built-in ones.
    """
    built_in = {
        "redis_url": settings.REDIS_URL,
        "broker_url": settings.BROKER_URL,
        "failure_path": str(settings.ROUTING_FAILURE_DIRS[0] / f"{project}.jsonl"),
    }
    return {
        name: value for name, value in built_in.items() if value
    } | settings.ROUTING_PLACEHOLDERS


def filled_rules(data: Mapping[str, Any], project: str) -> tuple[RuleSet | None, list[Problem]]:
    """Return the rules of a version with all values filled in, and the problems.

    The rules are None when a placeholder has no value or is used where it is not allowed. Problems
    never show a value.
    """
    misplaced = [problem for problem in problems(data) if not problem.warning]
    misplaced = misplaced or list(_foreign_queues(data, project))
    if misplaced:
        return None, misplaced
    return from_data(data, placeholders=placeholders(project))


def problems(data: Mapping[str, Any]) -> Iterator[Problem]:
    """Return the problems of the placeholders and of the failure file in unresolved data.

    A placeholder without a value is only a warning, because a router's environment may define it.
    """
    known = placeholders("project")
    origin = DataOrigin()
    warned = set()
    for path, text in _texts(data, ()):
        for name in names(text):
            if name in STORES and not (_is_url(path) and only_name(text)):
                error = f"{{{name}}} holds a password: use it only as the whole url of init"
                yield Problem(origin.place(path), "misplaced_placeholder", error)
            # Log formats use braces for their own fields.
            elif name not in known and name not in warned and path[0] != "logging":
                warned.add(name)
                error = f"there is no placeholder {{{name}}}; set it in ROUTING_PLACEHOLDERS"
                yield Problem(origin.place(path), "unknown_placeholder", error, warning=True)
    yield from _failure_file(data, known)
    for place, _store, _name in _own_queues(data, known):
        error = "the platform itself uses a queue or list of this name; choose another one"
        yield Problem(place, "queue_of_others", error)


def _failure_file(data: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[Problem]:
    """Check that the file is in an allowed folder; otherwise each write would fail later."""
    failure = data.get("failure")
    path = failure.get("path") if isinstance(failure, Mapping) else None
    if not isinstance(path, str) or not path:
        return
    try:
        filled, unknown = fill(path, known)
        if not unknown:
            ConfinedPath(filled, settings.ROUTING_FAILURE_DIRS)
    except TextTooLong:
        return
    except PathNotAllowed as error:
        text = f"{error}; allowed are the folders in ROUTING_FAILURE_DIRS"
        yield Problem("failure.path", "failure_outside", text)


def _foreign_queues(data: Mapping[str, Any], project: str) -> Iterator[Problem]:
    """Return problems for record queues in the platform's broker that another project owns."""
    used = [
        (place, name)
        for place, store, name in _in_stores(data, placeholders(project))
        if store == "BROKER_URL"
    ]
    if not used:
        return
    own = Project.objects.filter(slug=project).values_list("pk", flat=True).first()
    others = RecordQueue.objects.filter(name__in={name for _place, name in used})
    taken = set(others.exclude(project=own).values_list("name", flat=True))
    for place, name in used:
        records = _RECORDS.match(name)
        if name in taken if records is None else records[1] != str(own):
            # Without the name: it may contain the value of a placeholder.
            error = "this queue belongs to another project; use one of this project"
            yield Problem(place, "queue_of_others", error)


def _own_queues(
    data: Mapping[str, Any], known: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield those entries of ``_in_stores`` whose queue or list the platform itself uses."""
    for place, store, name in _in_stores(data, known):
        # A key may start with a brace: Redis Cluster then hashes only the part inside braces.
        keys = name.lstrip("{").startswith(f"{settings.REDIS_PREFIX}:")
        if is_own(name) if store == "BROKER_URL" else keys:
            yield place, store, name


def _in_stores(data: Mapping[str, Any], known: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield (place, setting of the store, name) of each queue or list in the platform's stores."""
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
    """Return a parameter of an ``init`` with placeholders filled in; "" if it is not a text."""
    text = init.get(field) if isinstance(init, Mapping) else None
    if not isinstance(text, str):
        return ""
    try:
        return fill(text, known)[0]
    except TextTooLong:
        return ""


def _server(url: str) -> tuple[object, ...]:
    """Return host, port and virtual host of a URL: they identify a store, whatever the login."""
    try:
        parts = urlsplit(url)
        where = (parts.hostname, parts.port or _PORTS.get(parts.scheme))
    except ValueError:
        return (url,)
    if parts.hostname is None:
        return (parts.path,)
    # The database number of Redis is ignored: the platform's prefix is reserved in each database.
    host = unquote(parts.path[1:]) or "/" if parts.scheme.startswith("amqp") else ""
    return (*where, host)


def _is_url(path: Path) -> bool:
    return len(path) == 4 and path[0] in _ENTRIES and path[2:] == ("init", "url")


def _texts(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path and text of each value that contains a placeholder."""
    if isinstance(value, str):
        yield from [(path, value)] if holds_any(value) else ()
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if not (len(path) == 2 and path[0] in _ENTRIES and name in _LITERAL):
                yield from _texts(part, (*path, name))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _texts(part, (*path, number))
