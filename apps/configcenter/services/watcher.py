"""Polling of configurations, so that a daemon applies changes without a restart.

    self.rules = ConfigWatcher(kind="routing", apply=self.use, identity=self.identity, clock=clock)

    def setup(self): self.rules.setup()
    def step(self): self.rules.poll() ...
    def use(self, project_id: int, active: Active | None) -> None: ...

``project_id`` is ``PLATFORM`` for what belongs to no project.

The row is the truth: twice a second one lookup by primary key says whether anything of the kind
has changed, so a change is applied within a second with no broker at all. When the database is
unreachable, the last good versions stay in effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import connection

from apps.configcenter.engine.plain import Data
from apps.configcenter.models import Configuration, ConfigVersion, KindSerial
from apps.configcenter.services.reports import VersionReport, report_running
from apps.runtime.daemon import Identity
from apps.runtime.errors import DATABASE_AWAY
from yardkit.clock import Clock
from yardkit.errors import first_line

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.5
# Failed versions are retried: the cause may have been outside the configuration.
RETRY_SECONDS: Final = 10.0
# Interval of full reports: an earlier report may have been lost with its daemon's row.
REPORT_SECONDS: Final = 30.0
# Stands for the platform in place of a project id.
PLATFORM: Final = 0


@dataclass(frozen=True, slots=True)
class ActiveVersion:
    """Active version of one project, or of the ``PLATFORM``."""

    project_id: int
    configuration_id: int
    version_id: int
    number: int
    data: Data


Apply = Callable[[int, ActiveVersion | None], None]


@dataclass(slots=True)
class _State:
    """Last applied and last failed version of one project."""

    configuration_id: int
    tried: int | None
    running: ActiveVersion | None
    applied_at: datetime
    problem: str = ""


class ConfigWatcher:
    """Gives a daemon the active versions of one kind, at the start and with each change.

    ``apply(project_id, active)`` is called in the thread of ``poll``; None: nothing is active any
    more. When it raises, what ran before counts as running on, the reason is reported, and it is
    called again ten seconds later. It must leave its own state as it was when it raises.

    ``project_id`` limits it to one project. Without ``identity`` nothing is reported.
    """

    def __init__(
        self,
        *,
        kind: str,
        apply: Apply,
        clock: Clock,
        identity: Identity | None = None,
        project_id: int | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.kind = kind
        # Why the database cannot be queried; "" if it can.
        self.outage = ""
        self._apply = apply
        self._clock = clock
        self._identity = identity
        self._project_id = project_id
        self._poll_seconds = poll_seconds
        self._states: dict[int, _State] = {}
        self._serial: int | None = None
        self._unreported: set[int] = set()
        self._look_at = 0.0
        self._retry_at = 0.0
        self._report_at: float | None = None

    @property
    def running(self) -> dict[int, ActiveVersion]:
        """Versions last applied, by project id."""
        return {pk: state.running for pk, state in self._states.items() if state.running}

    @property
    def problems(self) -> dict[int, str]:
        """Reasons why a project's active version is not the one that runs."""
        return {pk: state.problem for pk, state in self._states.items() if state.problem}

    def setup(self) -> None:
        """Apply the active versions. Raises ``DatabaseError``: no last good version exists yet."""
        self._report_at = None
        self._look()
        self._look_at = self._clock.monotonic() + self._poll_seconds

    def wake(self) -> None:
        """Check for changes at the next ``poll``, whatever the interval."""
        self._look_at = 0.0

    def poll(self) -> bool:
        """Apply changes; return whether there were any. Cheap enough for every step of a daemon."""
        now = self._clock.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + self._poll_seconds
        try:
            changed = self._look()
        except DATABASE_AWAY as error:
            self._away(error)
            return False
        if self.outage:
            logger.info("configuration %s: database reachable again", self.kind)
        self.outage = ""
        return changed

    def _away(self, error: Exception) -> None:
        # After a restart of the server the old connection only fails.
        connection.close()
        if not self.outage:
            logger.warning(
                "configuration %s: database unreachable, the last versions stay in effect: %s",
                self.kind,
                _line(error),
            )
        self.outage = _line(error)

    def _look(self) -> bool:
        rows = KindSerial.objects.filter(kind=self.kind).values_list("serial", flat=True)
        serial = next(iter(rows), 0)
        changed = False
        if serial != self._serial:
            changed = self._refresh()
            # After the refresh, so that an interrupted refresh is repeated.
            self._serial = serial
        elif self.problems and self._clock.monotonic() >= self._retry_at:
            self._forget_failed()
            changed = self._refresh()
        self._report()
        return changed

    def _forget_failed(self) -> None:
        for state in self._states.values():
            if state.problem:
                state.tried = -1

    def _refresh(self) -> bool:
        """Apply the differences between the active versions and those last tried."""
        rows = Configuration.objects.filter(kind=self.kind)
        if self._project_id is not None:
            rows = rows.filter(project_id=self._project_id)
        wanted = dict[int, tuple[int, int | None]]()
        names = ("pk", "project_id", "active_id", "project__deleted_at")
        for pk, owner, active, deleted_at in rows.values_list(*names):
            # No version runs for a deleted project; once it is restored, its versions run again.
            active_id = active if deleted_at is None else None
            project_id = owner or PLATFORM
            state = self._states.get(project_id)
            if active_id != (state.tried if state is not None else None):
                wanted[project_id] = (pk, active_id)
        ids = [configuration for _pk, configuration in wanted.values() if configuration is not None]
        versions = ConfigVersion.objects.in_bulk(ids)
        for project_id, (pk, version_id) in wanted.items():
            self._use(project_id, pk, None if version_id is None else versions[version_id])
        return bool(wanted)

    def _use(self, project_id: int, pk: int, version: ConfigVersion | None) -> None:
        now = self._clock.now()
        state = self._states.setdefault(project_id, _State(pk, None, None, now))
        state.tried = version.pk if version is not None else None
        self._unreported.add(project_id)
        active = None
        try:
            if version is not None:
                active = ActiveVersion(project_id, pk, version.pk, version.number, version.data)
            self._apply(project_id, active)
        except Exception as error:
            state.problem = f"v{version.number if version else 0}: {_line(error)}"
            self._retry_at = self._clock.monotonic() + RETRY_SECONDS
            logger.exception(
                "configuration %s of project %d: v%d could not be applied; the previous one stays",
                self.kind,
                project_id,
                version.number if version else 0,
            )
            return
        state.running, state.applied_at, state.problem = active, self._clock.now(), ""
        logger.info(
            "configuration %s of project %d: %s",
            self.kind,
            project_id,
            f"v{version.number} runs" if version else "nothing runs",
        )

    def _report(self) -> None:
        if self._identity is None:
            return
        now = self._clock.monotonic()
        everything = self._report_at is None or now >= self._report_at
        if not everything and not self._unreported:
            return
        about = list(self._states) if everything else sorted(self._unreported)
        written = report_running(
            identity=self._identity,
            kind=self.kind,
            project_id=self._project_id,
            reports=[self._report_of(self._states[project]) for project in about],
            now=self._clock.now(),
        )
        if written:
            self._unreported.clear()
            self._report_at = now + REPORT_SECONDS if everything else self._report_at

    def _report_of(self, state: _State) -> VersionReport:
        return VersionReport(
            configuration_id=state.configuration_id,
            number=state.running.number if state.running is not None else 0,
            applied_at=state.applied_at,
            problem=state.problem,
        )


def _line(error: Exception) -> str:
    return first_line(error)[:400]
