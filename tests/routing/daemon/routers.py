"""A router to test with: real parts all around it, and all of its work in the caller's thread."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from apps.configcenter.models import ConfigVersion
from apps.configcenter.services import activate, save_version
from apps.projects.models import Project
from apps.routing.daemon import Environment, RouterDaemon
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outbounds.base import DELIVERED, Outcome, Sent, Settings
from apps.routing.engine.outbounds.parameters import Parameter, name_of
from apps.routing.engine.rules import Outbound as Rule
from apps.routing.models import RoutedItem
from apps.routing.placeholders import filled_rules
from apps.runtime.daemon import Identity
from yardkit.clock import Clock, SystemClock

# Generous, because it only bounds a failing test.
PATIENCE_SECONDS = 60.0


class Shelf:
    """What one shelf has been given, and how it answers; by the name in the rule."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        # Asked for each message; None is delivery.
        self.answer: Callable[[Sent], Outcome | None] = lambda sent: None
        # How many messages have been taken from it again.
        self.consumed = 0
        self.closed = 0
        self.made = 0

    @property
    def waiting(self) -> int:
        return len(self.messages) - self.consumed


class ShelfOutbound:
    """An outbound into the memory of this process, for the answers that servers seldom give."""

    shelves: ClassVar[dict[str, Shelf]] = {}
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "shelf": Parameter(str, required=True, check=name_of("a shelf", 100))
    }
    default_expects_result: ClassVar[bool] = True

    def __init__(self, rule: Rule, settings: Settings) -> None:
        self._lock = threading.Lock()
        self._shelf = self.shelves.setdefault(str(rule.init["shelf"]), Shelf())
        self._shelf.made += 1

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        with self._lock:
            outcomes = []
            for sent in batch:
                outcome = self._shelf.answer(sent) or DELIVERED
                if outcome is DELIVERED:
                    self._shelf.messages.append(dict(sent.message))
                outcomes.append(outcome)
            return outcomes

    def depth(self) -> int | None:
        return self._shelf.waiting

    def close(self) -> None:
        self._shelf.closed += 1


registry.register("test.ShelfOutbound", ShelfOutbound)


def inbound(path: str, **fields: Any) -> dict[str, Any]:
    """A file that is followed."""
    values = {"name": "logs", "class": "file.FileInbound", "init": {"path": path}}
    return values | fields


def outbound(name: str, *selector: str, **fields: Any) -> dict[str, Any]:
    """A shelf of that name."""
    values = {"name": name, "class": "test.ShelfOutbound", "init": {"shelf": name}}
    return values | {"selector": list(selector)} | fields


class Router:
    """A router of one project whose rules change by ``use``; ``close`` it."""

    def __init__(
        self, project: Project, folder: Path, *, clock: Clock | None = None, workers: int = 0
    ) -> None:
        self.project = project
        self.folder = folder
        self.files = folder / "files"
        self.files.mkdir(exist_ok=True)
        self.clock = clock or SystemClock()
        ShelfOutbound.shelves.clear()
        self.daemon = self.make(workers=workers)
        self.is_set_up = False

    def make(self, name: str = "one", *, workers: int = 0) -> RouterDaemon:
        """Another one."""
        return RouterDaemon(
            environment=Environment(
                name=name,
                state=self.folder / "state",
                files=self.files,
                failures=(self.folder / "failures",),
                fill=filled_rules,
            ),
            clock=self.clock,
            identity=Identity("router", name),
            workers=workers,
        )

    def use(
        self,
        inbounds: Sequence[Mapping[str, Any]],
        outbounds: Sequence[Mapping[str, Any]],
        **more: Any,
    ) -> ConfigVersion:
        """Save these rules and activate them."""
        version = save_rules(self.project, inbounds, outbounds, self.clock, **more)
        activate(version=version, actor=None, now=self.clock.now())
        if not self.is_set_up:
            self.daemon.setup()
            self.is_set_up = True
        else:
            self.daemon.rules.wake()
            self.daemon.rules.poll()
        return version

    def put(self, *items: Mapping[str, Any] | str, file: str = "in.jsonl") -> None:
        """Lines of the file."""
        with (self.files / file).open("a", encoding="utf-8") as lines:
            for item in items:
                text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
                lines.write(text + "\n")

    def report_soon(self) -> None:
        """Servers are asked, and the report is written, at the next turn."""
        for name in ("ask", "report"):
            self.daemon.reporter.timers.hasten(name)

    def shelf(self, name: str) -> Shelf:
        return ShelfOutbound.shelves[name]

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Work until it holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}"
            if not self.daemon.step():
                time.sleep(0.01)

    def run_dry(self) -> None:
        """Work until there is nothing to do for a while."""
        quiet = 0
        while quiet < 5:
            quiet = 0 if self.daemon.step() else quiet + 1
            time.sleep(0.02)

    def states(self) -> dict[str, int]:
        """How many items are in each state."""
        found: dict[str, int] = {}
        for state in RoutedItem.objects.filter(project=self.project).values_list(
            "state", flat=True
        ):
            found[state] = found.get(state, 0) + 1
        return found

    def close(self) -> None:
        self.daemon.teardown()


def save_rules(
    project: Project,
    inbounds: Sequence[Mapping[str, Any]],
    outbounds: Sequence[Mapping[str, Any]],
    clock: Clock,
    **more: Any,
) -> ConfigVersion:
    """A version of these rules, which is not active yet."""
    data = {
        "version": 1,
        "needs": 1,
        "project": project.slug,
        "inbound": list(inbounds),
        "outbound": list(outbounds),
    }
    return save_version(
        kind="routing", project_id=project.pk, data=data | more, actor=None, now=clock.now()
    ).version
