"""Queries about the version each process runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Prefetch

from apps.configcenter.models import ConfigSubscription, Configuration, RunningVersion
from apps.runtime.queries import live_daemons


@dataclass(frozen=True, slots=True)
class ProcessVersion:
    """A living process and the version that it runs; ``number`` 0 is no version."""

    kind: str
    name: str
    host: str
    pid: int
    number: int
    applied_at: datetime | None
    problem: str
    current: bool


@dataclass(frozen=True, slots=True)
class RolloutCount:
    """Number of living processes that run the active version."""

    active: int
    runners: tuple[ProcessVersion, ...] = ()

    @property
    def of(self) -> int:
        """Number of living processes."""
        return len(self.runners)

    @property
    def on(self) -> int:
        """Number of processes that run the active version."""
        return sum(runner.current for runner in self.runners)

    @property
    def complete(self) -> bool:
        """Return whether every process runs the active version."""
        return self.on == self.of

    def count(self, number: int) -> int:
        """Number of processes that run version ``number``."""
        return sum(runner.number == number for runner in self.runners)


def rollouts_of(configurations: Iterable[Configuration]) -> dict[int, RolloutCount]:
    """Return the ``RolloutCount`` of each configuration, by its id, in three queries.

    Select ``active`` with the configurations. A process that follows the kind and has not reported
    yet counts as running no version.
    """
    rows = list(configurations)
    mine = RunningVersion.objects.filter(configuration__in=[row.pk for row in rows])
    followings = list(
        ConfigSubscription.objects.filter(
            kind__in={row.kind for row in rows}, daemon__in=live_daemons(), boot=F("daemon__boot")
        )
        .select_related("daemon")
        .prefetch_related(Prefetch("running", queryset=mine, to_attr="reported"))
        .order_by("daemon__kind", "daemon__name")
    )
    return {row.pk: _rollout(row, followings) for row in rows}


def _rollout(
    configuration: Configuration, followings: Sequence[ConfigSubscription]
) -> RolloutCount:
    active = configuration.active.number if configuration.active is not None else 0
    runners = [
        _runner(following, configuration, active)
        for following in followings
        if following.kind == configuration.kind
        and following.project_id in (None, configuration.project_id)
    ]
    return RolloutCount(active, tuple(runners))


def _runner(
    following: ConfigSubscription, configuration: Configuration, active: int
) -> ProcessVersion:
    reported: list[RunningVersion] = following.reported  # type: ignore[attr-defined]
    report = next((row for row in reported if row.configuration_id == configuration.pk), None)
    number = report.number if report is not None else 0
    return ProcessVersion(
        kind=following.daemon.kind,
        name=following.daemon.name,
        host=following.daemon.host,
        pid=following.daemon.pid,
        number=number,
        applied_at=report.applied_at if report is not None else None,
        problem=report.problem if report is not None else "",
        current=number == active,
    )
