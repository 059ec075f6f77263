"""Registration and heartbeat of the host."""

from __future__ import annotations

from apps.jobs.daemon.context import RunnerContext
from apps.jobs.engine.vitals import HostBeat, HostDescription, HostVitals
from apps.jobs.runners.base import RunnerAway
from apps.jobs.services import beat_host, register_host


class HostReporter:
    """Writes the row of this runner's host."""

    def __init__(self, context: RunnerContext, about: HostDescription) -> None:
        self._context = context
        self.about = about
        self._vitals = HostVitals()
        self._engine = ""

    def register(self) -> None:
        """Register the host."""
        beat = self._beat()
        register_host(name=self._context.host, about=self.about, beat=beat, now=self._context.now())

    def beat(self) -> None:
        """Record a heartbeat."""
        beat_host(
            name=self._context.host, about=self.about, beat=self._beat(), now=self._context.now()
        )

    def _beat(self) -> HostBeat:
        context = self._context
        try:
            self._engine = context.runner.engine()
        except RunnerAway as error:
            context.note_problem(str(error))
        else:
            context.note_problem("")
        return self._vitals.read(
            running=len(context.handles), engine=self._engine, problem=context.problem
        )
