"""What stands for ``{redis_url}`` and the like in rules, once they run (seed S2.14).

Versions keep placeholders as they are written, so values are in the environment alone. Whoever
writes rules can have a value sent anywhere, so what ``ROUTING_PLACEHOLDERS`` holds is for them to
use; the addresses of the platform's own stores stand for a whole ``url`` of an entry and for
nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.conf import settings

from apps.routing.engine.confined import Confined, Outside
from apps.routing.engine.files.data import from_data
from apps.routing.engine.files.fields import DataOrigin
from apps.routing.engine.files.placeholders import TooLong, fill, holds_any, names, only_name
from apps.routing.engine.rules import Problem, RuleSet
from yardkit.yaml_reading import Path

# They hold the passwords of the platform itself.
STORES: Final = frozenset({"redis_url", "broker_url"})
_ENTRIES: Final = ("inbound", "outbound")
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
