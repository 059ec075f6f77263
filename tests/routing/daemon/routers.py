"""Router daemon for tests: real components, with all work done in the caller's thread."""

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


class FakeTarget:
    """Messages that a target received, and its answers; found by the name in the rule."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        # Called with each message; None means delivered.
        self.answer: Callable[[Sent], Outcome | None] = lambda sent: None
        # Number of messages that consumers have taken.
        self.consumed = 0
        self.closed = 0
        self.made = 0

    @property
    def waiting(self) -> int:
        return len(self.messages) - self.consumed


class FakeOutbound:
    """In-memory outbound with scripted answers that real servers give rarely."""

    targets: ClassVar[dict[str, FakeTarget]] = {}
    parameters: ClassVar[Mapping[str, Parameter]] = {
        "target": Parameter(str, required=True, check=name_of("a target", 100))
    }
    default_expects_result: ClassVar[bool] = True

    def __init__(self, rule: Rule, settings: Settings) -> None:
        self._lock = threading.Lock()
        self._target = self.targets.setdefault(str(rule.init["target"]), FakeTarget())
        self._target.made += 1

    def send(self, batch: Sequence[Sent]) -> list[Outcome]:
        with self._lock:
            outcomes = []
            for sent in batch:
                outcome = self._target.answer(sent) or DELIVERED
                if outcome is DELIVERED:
                    self._target.messages.append(dict(sent.message))
                outcomes.append(outcome)
            return outcomes

    def depth(self) -> int | None:
        return self._target.waiting

    def close(self) -> None:
        self._target.closed += 1


registry.register("test.FakeOutbound", FakeOutbound)


def inbound(path: str, **fields: Any) -> dict[str, Any]:
    """Rule of a file inbound that follows a file."""
    values = {"name": "logs", "class": "file.FileInbound", "init": {"path": path}}
    return values | fields


def outbound(name: str, *selector: str, **fields: Any) -> dict[str, Any]:
    """Rule of an outbound to the target of that name."""
    values = {"name": name, "class": "test.FakeOutbound", "init": {"target": name}}
    return values | {"selector": list(selector)} | fields


class Router:
    """A router of one project. Change its rules with ``use``; call ``close`` at the end."""

    def __init__(
        self, project: Project, folder: Path, *, clock: Clock | None = None, workers: int = 0
    ) -> None:
        self.project = project
        self.folder = folder
        self.files = folder / "files"
        self.files.mkdir(exist_ok=True)
        self.clock = clock or SystemClock()
        FakeOutbound.targets.clear()
        self.daemon = self.make(workers=workers)
        self.is_set_up = False

    def make(self, name: str = "one", *, workers: int = 0) -> RouterDaemon:
        """Create another router of the same project."""
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
        """Save a version of the rules and activate it."""
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
        """Append items as lines to the followed file."""
        with (self.files / file).open("a", encoding="utf-8") as lines:
            for item in items:
                text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
                lines.write(text + "\n")

    def report_soon(self) -> None:
        """Make the next turn query servers and write the report."""
        for name in ("ask", "report"):
            self.daemon.reporter.timers.hasten(name)

    def target(self, name: str) -> FakeTarget:
        return FakeOutbound.targets[name]

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Run steps until the condition holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"never happened: {what}"
            if not self.daemon.step():
                time.sleep(0.01)

    def run_dry(self) -> None:
        """Run steps until the router has been idle for a while."""
        quiet = 0
        while quiet < 5:
            quiet = 0 if self.daemon.step() else quiet + 1
            time.sleep(0.02)

    def states(self) -> dict[str, int]:
        """Return the number of items per state."""
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
    """Save a version of the rules without activating it."""
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
