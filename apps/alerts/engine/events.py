"""What can happen that a rule may watch for: events, which happen once, and conditions, which last.

Sources are registered by ``register`` when the app starts; the monitor asks them, rules name them::

    class RunFailed:
        name = "run.failed"
        title = _("a run failed")
        facts = ("job", "run", "reason")

        def since(self, at): yield Happening(...)

    register(RunFailed())
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

Fact = str | int | float


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened, or that is so now.

    ``id`` is unique for the source: of an event it never comes a second time for something else
    (``"run:7"``), of a condition it names what the condition is of (``"agent:a1"``). ``key``: what
    incidents are told apart by, such as ``"job:12"``, so that the second failure of a job joins the
    incident of the first. ``facts``: what the texts show and rules match; ``address``: the path of
    the page that shows more. ``project`` None: of the platform.
    """

    id: str
    project: int | None
    key: str
    at: datetime
    facts: Mapping[str, Fact] = field(default_factory=dict)
    address: str = ""


class NotKnown(Exception):
    """A source cannot tell now, and that is no failure: nothing opens and nothing recovers."""


class More(Exception):
    """There is more of it than a source tells at once; raised after the last that it tells.

    What it did tell counts. Of the rest nothing is known: it opens nothing, and recovers nothing.
    """


T = TypeVar("T")


def at_most(found: Iterable[T], most: int) -> Iterator[T]:
    """The first ``most`` of ``found``. Raises ``More`` after them where that was not all."""
    for number, each in enumerate(found):
        if number == most:
            raise More
        yield each


class EventSource(Protocol):
    """Things that happen once.

    May have ``over(open_keys, at)``: of the keys of open incidents (with when each was counted
    last) those where all is well again. May have ``sentence``: a lazy text with ``%(fact)s``; and
    ``advice``: another, without, of what to do about it. May have ``same_run_as``: names of sources
    whose incident of the same run (fact ``run``) and key covers an event of this one.
    """

    name: str
    # What it is, for people; may be a lazy translation.
    title: object
    # Names of facts that every happening of this source has.
    facts: tuple[str, ...]

    def since(self, at: datetime) -> Iterable[Happening]:
        """What was written down since then; the same again is no harm."""


class ConditionSource(Protocol):
    """Things that last: an incident is open while its happening is listed.

    ``now`` may raise ``NotKnown``, and ``More``. May have ``sentence`` and ``advice``, as an event.
    """

    name: str
    title: object
    facts: tuple[str, ...]

    def now(self, at: datetime) -> Iterable[Happening]:
        """Everything that is so at this moment; ``Happening.at``: since when."""


_sources: dict[str, EventSource | ConditionSource] = {}


def register(source: EventSource | ConditionSource) -> None:
    """Make it known to rules. Raises ``ValueError`` for a name that another one has."""
    known = _sources.get(source.name)
    if known is not None and type(known) is not type(source):
        raise ValueError(f"there is a source {source.name} already")
    _sources[source.name] = source


def all_sources() -> list[EventSource | ConditionSource]:
    """Every source, by name."""
    return [_sources[name] for name in sorted(_sources)]


def find_source(name: str) -> EventSource | ConditionSource | None:
    """The source of this name."""
    return _sources.get(name)
