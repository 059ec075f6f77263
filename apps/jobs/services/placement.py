"""Placement of waiting runs on hosts, and the reasons why runs wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from apps.jobs.engine.placement import (
    LASTING,
    HostFacts,
    HostRefusal,
    PlacementLimits,
    RefusalReason,
    RunRequirements,
    choose,
    refusals,
)
from apps.jobs.models import Host, Job, Run
from apps.jobs.states import HostKind, HostMode, RunState
from apps.runtime.services import enqueue
from yardkit import topology
from yardkit.protocol import RunQueued

# Limits per pass; the next pass follows after a second. Runs that no host accepts do not count as
# placed.
MOST_PLACED: Final = 500
MOST_LOOKED_AT: Final = 5000
# Limit of batches per pass while a host has capacity: many runs that fit no host may be queued
# before runs that fit.
MOST_LOOKS: Final = 4
MOST_REASONS: Final = 100
# A wake-up older than this is useless: the host has polled since.
WAKE_UP_TTL_SECONDS: Final = 60.0
# Rounding of seconds in reasons, so that a reason is not rewritten every second.
_SILENCE_STEP: Final = 5


# Requirements of a run, as a dictionary key.
_Key = tuple[str, tuple[tuple[str, str], ...], int]


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """Eligibility of one host for a run; ``against`` lists the reasons against it."""

    host: str
    against: list[str]
    chosen: bool
    free: int
    capacity: int
    cpu_percent: float

    @property
    def eligible(self) -> bool:
        """Whether the host may get the run."""
        return not self.against


@dataclass(frozen=True, slots=True)
class PlacementExplanation:
    """Host that a run would get now; ``reason`` says why there is none, else ""."""

    chosen: str
    reason: str
    hosts: list[HostVerdict]


def place_runs(*, now: datetime, placer: str = "") -> int:
    """Assign waiting runs to hosts by priority, then age; return the number of assigned runs.

    First, runs whose host died or was disabled before it claimed them are taken back. ``placer`` is
    the calling host, which claims right afterwards and needs no wake-up.

    No lock is held between two runs: over a long queue a pass takes seconds, and the heartbeats of
    hosts update the same rows.
    """
    if not Run.objects.filter(state=RunState.QUEUED).exists():
        return 0
    hosts = _facts(Host.objects.order_by("name"), now)
    _take_back(hosts)
    return _place(hosts, now, placer)


def _take_back(hosts: dict[str, HostFacts]) -> None:
    for run in _queued().exclude(host=""):
        host, wanted = hosts.get(run.host), _wanted_by(run)
        if host is not None:
            lasting = [r for r in refusals(host, wanted, _limits()) if r.against in LASTING]
            if not lasting:
                continue
        given_up = Run.objects.filter(pk=run.pk, state=RunState.QUEUED, host=run.host)
        if given_up.update(host="", placed_at=None) and host is not None:
            hosts[run.host] = replace(host, taken=host.taken - 1)


def _place(hosts: dict[str, HostFacts], now: datetime, placer: str) -> int:
    placed = explained = 0
    woken: dict[str, int] = {}
    # Within a pass hosts only fill up: requirements that all hosts refuse once need no further
    # check in this pass.
    refused: dict[_Key, str] = {}
    hopeless: set[int] = set()
    _record_waiting_reasons(now)
    for run in _candidates(hosts, hopeless, now):
        wanted = _wanted_by(run)
        key = _key(wanted)
        if key not in refused:
            host = _assign(run, wanted, hosts, now)
            if host is None:
                continue
            if host:
                woken.setdefault(host, run.pk)
                placed += 1
                if placed == MOST_PLACED:
                    break
                continue
            refused[key] = _text(hosts.values(), wanted)
        hopeless.add(run.job_id)
        if refused[key] != run.waiting_reason and explained < MOST_REASONS:
            explained += 1
            _record_reason(run, refused[key])
    for name, pk in woken.items():
        if name != placer:
            enqueue(
                key=topology.runner_wakeups(name).name,
                body=RunQueued(run=pk),
                ttl_seconds=WAKE_UP_TTL_SECONDS,
            )
    return placed


def _assign(
    run: Run, wanted: RunRequirements, hosts: dict[str, HostFacts], now: datetime
) -> str | None:
    """Assign the run to the best host; return the host's name, "" if no host is eligible.

    Returns None if another process is changing the run. ``hosts`` is updated with the data that was
    read again under the lock.
    """
    while host := choose(list(hosts.values()), wanted, _limits()):
        with transaction.atomic():
            waiting = Run.objects.filter(pk=run.pk, state=RunState.QUEUED, host="").lock_free()
            if waiting.first() is None:
                return None
            # Concurrent placers wait here for the host's row, and then count this run too.
            locked = Host.objects.select_for_update(no_key=True).filter(name=host.name)
            current = _facts(locked, now).get(host.name)
            if current is None:
                del hosts[host.name]
            elif refusals(current, wanted, _limits()):
                hosts[host.name] = current
            else:
                waiting.update(host=host.name, placed_at=now, waiting_reason="")
                hosts[host.name] = replace(current, taken=current.taken + 1)
                return host.name
    return ""


def _candidates(hosts: dict[str, HostFacts], hopeless: set[int], now: datetime) -> Iterator[Run]:
    """Yield waiting runs in batches, without runs of jobs in ``hopeless``.

    The caller updates ``hosts`` and ``hopeless`` during the iteration.
    """
    waiting = _queued().filter(host="").exclude(_early(now))
    for _look in range(MOST_LOOKS):
        runs = list(waiting.exclude(job__in=list(hopeless))[:MOST_LOOKED_AT])
        yield from runs
        if len(runs) < MOST_LOOKED_AT or not _any_free(hosts):
            return


def _any_free(hosts: dict[str, HostFacts]) -> bool:
    """Return whether any host is eligible for a run without special requirements."""
    return any(choose(list(hosts.values()), RunRequirements(kind), _limits()) for kind in HostKind)


def _key(wanted: RunRequirements) -> _Key:
    return wanted.kind, tuple(sorted(wanted.labels.items())), wanted.memory_bytes


def _queued() -> Any:
    return Run.objects.waiting().select_related("job")


def _record_reason(run: Run, reason: str) -> None:
    Run.objects.filter(pk=run.pk, state=RunState.QUEUED).update(waiting_reason=reason)


def _ahead() -> Any:
    """Subquery of the active runs that must end before the outer run can be placed.

    These are ``waits_for`` and all earlier runs of the job: ``waits_for`` may be cancelled while
    earlier runs are still active.
    """
    earlier = Q(job=OuterRef("job"), pk__lt=OuterRef("pk")) | Q(pk=OuterRef("waits_for"))
    return Run.objects.active().filter(earlier).order_by("-pk")


def _early(now: datetime) -> Q:
    """Return the filter of queued runs that may not be placed yet."""
    return Q(not_before__gt=now) | Q(Exists(_ahead()), waits_for__isnull=False)


def _record_waiting_reasons(now: datetime) -> None:
    """Record the reason of runs that may not be placed yet.

    These runs are not candidates, so that their number delays no other run.
    """
    ahead = Subquery(_ahead().values("pk")[:1])
    early = _queued().filter(_early(now), host="").annotate(ahead=ahead)
    explained = 0
    for run in early[:MOST_PLACED]:
        reason = _too_early(run, run.ahead, now)
        if reason != run.waiting_reason and explained < MOST_REASONS:
            explained += 1
            _record_reason(run, reason)


def _too_early(run: Run, ahead: int | None, now: datetime) -> str:
    """Return why a run may not be placed yet. ``ahead``: newest active run that it waits for."""
    if run.waits_for_id is not None and ahead is not None:
        return _("run %(id)s has not ended yet") % {"id": ahead}
    if run.not_before is not None and run.not_before > now:
        return _("not before %(time)s UTC") % {"time": f"{run.not_before:%Y-%m-%d %H:%M:%S}"}
    return ""


# --- facts ----------------------------------------------------------------------------------------


def _facts(rows: QuerySet[Host], now: datetime) -> dict[str, HostFacts]:
    # Read hosts before runs: if the hosts are locked, all runs assigned before are counted.
    hosts = list(rows)
    counted = (
        Run.objects.active()
        .filter(host__in=[host.name for host in hosts])
        .order_by()
        .values_list("host")
        .annotate(number=Count("pk"))
    )
    taken = dict(counted)
    return {
        host.name: HostFacts(
            name=host.name,
            kind=host.kind,
            mode=host.mode,
            silent_seconds=(now - host.beat_at).total_seconds(),
            labels=host.labels,
            cpu_percent=host.cpu_percent,
            memory_free_bytes=host.memory_free_bytes,
            capacity=host.capacity,
            taken=taken.get(host.name, 0),
            problem=host.problem,
        )
        for host in hosts
    }


def _limits() -> PlacementLimits:
    return PlacementLimits(
        cpu_percent=settings.RUN_MAX_CPU_PERCENT, memory_bytes=settings.RUN_MIN_MEMORY
    )


def _wanted_by(run: Run) -> RunRequirements:
    return _wanted(run.job, in_container=bool(run.image_digest or run.image_id))


def _wanted(job: Job, *, in_container: bool) -> RunRequirements:
    return RunRequirements(
        kind=HostKind.DOCKER if in_container else HostKind.PROCESS,
        labels={str(name): str(value) for name, value in job.host_labels.items()},
        memory_bytes=job.memory_limit_bytes or 0,
    )


# --- explanations ---------------------------------------------------------------------------------


def explain_placement(*, job: Job, now: datetime) -> PlacementExplanation:
    """Explain the placement of a run of ``job`` if it were started now."""
    return _explain(_wanted(job, in_container=job.image_id is not None), now)


def explain_run_placement(*, run: Run, now: datetime) -> PlacementExplanation:
    """Explain the placement of a waiting run; ``reason`` includes runs and times it waits for."""
    explanation = _explain(_wanted_by(run), now)
    row = Run.objects.filter(pk=run.pk).annotate(ahead=Subquery(_ahead().values("pk")[:1]))
    early = _too_early(run, row.values_list("ahead", flat=True).first(), now)
    return replace(explanation, chosen="", reason=early) if early else explanation


def _explain(wanted: RunRequirements, now: datetime) -> PlacementExplanation:
    hosts = _facts(Host.objects.order_by("name"), now)
    chosen = choose(list(hosts.values()), wanted, _limits())
    verdicts = [
        HostVerdict(
            host=host.name,
            against=[_refusal_text(refusal) for refusal in refusals(host, wanted, _limits())],
            chosen=host is chosen,
            free=host.free,
            capacity=host.capacity,
            cpu_percent=host.cpu_percent,
        )
        for host in hosts.values()
    ]
    reason = "" if chosen else _text(hosts.values(), wanted)
    return PlacementExplanation(chosen=chosen.name if chosen else "", reason=reason, hosts=verdicts)


def _text(hosts: Any, wanted: RunRequirements) -> str:
    """Return the reasons by host, as ``host a: CPU 95 % (limit 90 %); host b: ...``."""
    texts = [
        _("host %(host)s: %(reasons)s")
        % {
            "host": host.name,
            "reasons": ", ".join(_refusal_text(r) for r in refusals(host, wanted, _limits())),
        }
        for host in hosts
    ]
    return "; ".join(texts) or _("no host is registered: start run_runner on a machine")


def _refusal_text(refusal: HostRefusal) -> str:
    return _TEXTS[refusal.against](refusal.figures)


def _kind_text(figures: Mapping[str, Any]) -> str:
    if figures["wanted"] == HostKind.DOCKER:
        return _("it runs only local processes")
    return _("it runs only containers")


def _mode_text(figures: Mapping[str, Any]) -> str:
    return _("it is %(mode)s") % {"mode": HostMode(figures["mode"]).label}


def _silent_text(figures: Mapping[str, Any]) -> str:
    seconds = figures["seconds"] // _SILENCE_STEP * _SILENCE_STEP
    return _("silent for %(seconds)d s") % {"seconds": seconds}


def _cpu_text(figures: Mapping[str, Any]) -> str:
    return _("CPU %(percent)d %% (limit %(limit)d %%)") % figures


def _memory_text(figures: Mapping[str, Any]) -> str:
    return _("%(free)s of memory free (%(needed)s needed)") % {
        "free": filesizeformat(figures["free"]),
        "needed": filesizeformat(figures["needed"]),
    }


_TEXTS: Final[dict[RefusalReason, Callable[[Mapping[str, Any]], str]]] = {
    RefusalReason.KIND: _kind_text,
    RefusalReason.MODE: _mode_text,
    RefusalReason.SILENT: _silent_text,
    RefusalReason.PROBLEM: lambda figures: str(figures["problem"]),
    RefusalReason.LABEL: lambda figures: _("label %(label)s is missing") % figures,
    RefusalReason.CPU: _cpu_text,
    RefusalReason.MEMORY: _memory_text,
    RefusalReason.FULL: lambda figures: _("all %(capacity)d of its run slots are in use") % figures,
}
