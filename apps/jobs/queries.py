"""What other apps ask about runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from apps.jobs.models import Run
from apps.jobs.states import ACTIVE


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run as the center and the accounts need it."""

    run: int
    project: int
    job: int
    active: bool
    state: str
    allowed_networks: tuple[str, ...]


def run_facts(runs: Iterable[int]) -> dict[int, RunFacts]:
    """Facts by run id; unknown ids are left out. One query."""
    rows = Run.objects.filter(pk__in=set(runs)).values_list(
        "pk", "job_id", "job__project_id", "state", "job__project__allowed_networks"
    )
    return {
        pk: RunFacts(
            run=pk,
            project=project,
            job=job,
            active=state in ACTIVE,
            state=state,
            allowed_networks=tuple(networks or ()),
        )
        for pk, job, project, state, networks in rows
    }
