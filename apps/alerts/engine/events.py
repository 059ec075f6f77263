"""Registry of the sources of events (which happen once) and conditions (which last).

Apps register sources at start-up, the monitor polls them, and rules refer to them by name::

    class RunFailed:
        name = "run.failed"
        title = _("a run failed")
        facts = ("job", "run", "reason")

        def since(self, at): yield Occurrence(...)

    register(RunFailed())
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

Fact = str | int | float


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Event that happened, or condition that holds now.

    ``id``: unique per event (``"run:7"``), or naming the subject of a condition (``"agent:a1"``).
    ``key``: deduplicates incidents, such as ``"job:12"``: a job's second failure joins the incident
    of the first. ``facts``: values for texts and rule patterns. ``address``: path of the page with
    details. ``project`` None: the platform.
    """

    id: str
    project: int | None
    key: str
    at: datetime
    facts: Mapping[str, Fact] = field(default_factory=dict)
    address: str = ""


class StateUnknown(Exception):
    """The state of the source is unknown now; not a failure. Nothing opens or recovers."""


class Truncated(Exception):
    """The source has more results than it returns at once; raised after the last one.

    Returned results count. The rest is unknown: it neither opens nor recovers.
    """


T = TypeVar("T")


def truncated_to(found: Iterable[T], most: int) -> Iterator[T]:
    """Yield the first ``most`` items of ``found``, then raise ``Truncated`` if there are more."""
    for number, event in enumerate(found):
        if number == most:
            raise Truncated
        yield event


class EventSource(Protocol):
    """Source of events.

    Optional attributes: ``over(open_keys, at)`` returns those keys of open incidents (mapped to
    their last event) that have recovered. ``sentence`` is a lazy text with ``%(fact)s``, ``advice``
    one without. ``same_run_as`` names sources whose incident with the same key and fact ``run``
    suppresses an event of this source.
    """

    name: str
    # Name on screen; may be a lazy translation.
    title: object
    # Names of the facts of every event.
    facts: tuple[str, ...]

    def since(self, at: datetime) -> Iterable[Occurrence]:
        """Yield events recorded since ``at``; duplicates are allowed."""


class ConditionSource(Protocol):
    """Source of conditions: an incident is open while its condition is listed.

    ``now`` may raise ``StateUnknown`` and ``Truncated``. Optional ``sentence`` and ``advice`` as of
    an event.
    """

    name: str
    title: object
    facts: tuple[str, ...]

    def now(self, at: datetime) -> Iterable[Occurrence]:
        """Yield every condition that holds at ``at``, with its start in ``Occurrence.at``."""


_sources: dict[str, EventSource | ConditionSource] = {}


def register(source: EventSource | ConditionSource) -> None:
    """Register a source. Raises ``ValueError`` if another one has its name."""
    known = _sources.get(source.name)
    if known is not None and type(known) is not type(source):
        raise ValueError(f"there is a source {source.name} already")
    _sources[source.name] = source


def all_sources() -> list[EventSource | ConditionSource]:
    """Return all sources by name."""
    return [_sources[name] for name in sorted(_sources)]


def find_source(name: str) -> EventSource | ConditionSource | None:
    """Return the source of this name, or None."""
    return _sources.get(name)
