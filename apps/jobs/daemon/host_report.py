"""Registration and heartbeat of the host."""

from __future__ import annotations

from apps.jobs.daemon.context import RunnerContext
from apps.jobs.engine.vitals import HostBeat, HostDescription, HostVitals
from apps.jobs.runners.base import RunnerAway
from apps.jobs.services import beat_host, register_host


class HostReporter:
    """Writes the row of this runner's host."""

    def __init__(self, here: RunnerContext, about: HostDescription) -> None:
        self._here = here
        self.about = about
        self._vitals = HostVitals()
        self._engine = ""

    def register(self) -> None:
        """Register the host."""
        beat = self._beat()
        register_host(name=self._here.host, about=self.about, beat=beat, now=self._here.now())

    def beat(self) -> None:
        """Record a heartbeat."""
        beat_host(name=self._here.host, about=self.about, beat=self._beat(), now=self._here.now())

    def _beat(self) -> HostBeat:
        here = self._here
        try:
            self._engine = here.runner.engine()
        except RunnerAway as error:
            here.note_problem(str(error))
        else:
            here.note_problem("")
        return self._vitals.read(
            running=len(here.handles), engine=self._engine, problem=here.problem
        )
