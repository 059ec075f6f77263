"""Monitor with a manual clock and gauges set by the test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from apps.alerts.daemon import MonitorDaemon
from apps.alerts.engine import events
from apps.alerts.engine.events import Occurrence
from apps.alerts.models import Incident, IncidentNote, Notice
from apps.configcenter.models import Configuration
from apps.configcenter.services import activate, save_version
from apps.queuestats.services import record_gauges
from apps.runtime.daemon import Identity
from tests.alerts.factories import NOW
from yardkit.clock import ManualClock

Key = tuple[str, int | None, str]


@dataclass
class Rig:
    """Monitor under test; ``gauges`` holds the values of the next sampling."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))
    gauges: dict[Key, float] = field(default_factory=dict)
    name: str = "one"

    def __post_init__(self) -> None:
        self.monitor = MonitorDaemon(
            clock=self.clock, identity=Identity("monitor", self.name), sample=self._sample
        )
        self.monitor.setup()

    def _sample(self, now: datetime) -> None:
        record_gauges(self.gauges, now=now)

    def run(self, seconds: float) -> None:
        """Advance the clock by ``seconds``, with a pass of the monitor every 5 s."""
        for _look in range(int(seconds // 5)):
            self.clock.advance(5)
            self.monitor.step()

    def now(self) -> datetime:
        return self.clock.now()


def use_rules(
    *rules: dict[str, Any], project: int | None = None, builtin: bool = False, **sections: Any
) -> None:
    """Activate these rules for a project or the platform; built-in rules are disabled."""
    off = [] if builtin or project is not None else _off({each["name"] for each in rules})
    data = {"rules": [*rules, *off], **sections}
    saved = save_version(kind="alerts", project_id=project, data=data, actor=None, now=NOW)
    row = Configuration.objects.get(pk=saved.version.configuration_id)
    if row.active_id != saved.version.pk:
        activate(version=saved.version, actor=None, now=NOW)


def _off(names: set[str]) -> list[dict[str, Any]]:
    from apps.alerts.engine.rules import builtin_rules

    return [
        {"name": each.name, "enabled": False} for each in builtin_rules() if each.name not in names
    ]


def told() -> list[tuple[str, str]]:
    """Return (kind, channel) of every notification in order."""
    return [(row.kind, row.channel_name) for row in Notice.objects.order_by("pk")]


def story(incident: Incident) -> list[str]:
    """Return the history entries of an incident."""
    return list(
        IncidentNote.objects.filter(incident=incident).values_list("what", flat=True).order_by("pk")
    )


class Events:
    """Event source filled by the test."""

    title: object = "something happened"
    facts: tuple[str, ...] = ("who",)

    def __init__(self, name: str = "test.event") -> None:
        self.name = name
        self.happened: list[Occurrence] = []
        self.well: set[str] = set()
        self.asked: list[datetime] = []

    def since(self, at: datetime) -> Iterable[Occurrence]:
        self.asked.append(at)
        return [each for each in self.happened if each.at >= at]

    def over(self, open_keys: Any, at: datetime) -> set[str]:
        return self.well & set(open_keys)

    def add(self, number: int, at: datetime, key: str = "k", project: int | None = None) -> None:
        self.happened.append(Occurrence(f"e:{number}", project, key, at, {"who": key}))


class Conditions:
    """Condition source filled by the test."""

    title: object = "something is so"
    facts: tuple[str, ...] = ("who",)

    def __init__(self, name: str = "test.condition") -> None:
        self.name = name
        self.so: list[Occurrence] = []
        self.error: Exception | None = None

    def now(self, at: datetime) -> Iterable[Occurrence]:
        if self.error is not None:
            raise self.error
        return list(self.so)

    def add(self, key: str, at: datetime, project: int | None = None) -> None:
        self.so.append(Occurrence(key, project, key, at, {"who": key}))


def with_source(monkeypatch: Any, source: Any) -> Any:
    """Register the source for one test."""
    monkeypatch.setitem(events._sources, source.name, source)
    return source
