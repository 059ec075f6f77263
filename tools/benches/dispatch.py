"""bench dispatch: what a request costs the center, whatever the number of runs and of agents."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings
from django.core.management import call_command
from django.utils import timezone

from apps.agents.models import Agent, Allocation
from apps.agents.services import allocate, store_heartbeats
from apps.jobs.models import Job, Run
from apps.jobs.states import RunState
from apps.projects.models import Project
from crawlyard.supervisor import Supervisor, Unit
from tools.benches import tap
from tools.benches.batches import Plan, PlannedRun
from tools.benches.beats import PREFIX, agent_id, heartbeat
from tools.benches.measuring import (
    PYTHON_PATH,
    BenchFailed,
    Usage,
    conditions,
    helper,
    line_of,
    module,
    usage,
)
from yardkit import topology
from yardkit.broker import Broker, connect
from yardkit.protocol import Allocate, DownloaderSettings, Heartbeat, Policy, decode
from yardkit.stop import Stop
from yardkit.tokens import sign_run_token

SECONDS = 9.0
# The least disturbed of so many rounds counts: other work on the machine only ever adds CPU.
ROUNDS = 3
# As many requests as a spider with a window of 100 sends together, roughly.
BATCH_ITEMS = 20
# The number of the other when one of the two grows.
FEW = 10
LIMIT_GROWTH = 1.3
POLICIES = ("random", "chained")
WAIT_SECONDS = 60.0
LATE_SECONDS = 1.0
JOB = "bench dispatch"
# Own machines are few; the hosts of other people are many.
OWN_HOSTS = 10
HOSTS = 1000
# Hosts are kept count of, and nothing waits for them.
UNLIMITED = {"HOST_REQUESTS_PER_SECOND": "0", "HOST_CONCURRENCY": "0"}


@dataclass(frozen=True, slots=True)
class Case:
    """So many runs, each served by so many agents."""

    policy: Policy
    runs: int
    agents: int


@dataclass(frozen=True, slots=True)
class Load:
    """What all runs of a case ask for together."""

    rate: int
    seconds: float
    polite: bool

    def hosts(self) -> list[str]:
        """Names that stand for other people's servers, or addresses of this one."""
        if self.polite:
            return [f"host-{number}.example" for number in range(HOSTS)]
        return [f"127.0.0.{number + 1}" for number in range(OWN_HOSTS)]


def run(
    *,
    policies: Sequence[str],
    sizes: Sequence[int],
    rate: int,
    seconds: float = SECONDS,
    polite: bool = False,
) -> dict[str, Any]:
    """Measure every size with each policy; the JSON object.

    ``polite``: every request passes what keeps the hosts' limits, which are set to unlimited;
    else the hosts are loopback addresses, which need no sparing.

    Raises:
        BenchFailed: not every request was dispatched, or the load could not be made.
    """
    call_command("migrate", verbosity=0, interactive=False)
    before = conditions()
    broker = connect(settings.BROKER_URL, name="crawlyard bench")
    load = Load(rate, seconds, polite)
    try:
        cases = [_measure(case, load, broker) for case in _cases(policies, sizes)]
    finally:
        _clean_up(broker)
        broker.close()
    growth = {
        policy: {grows: _growth(cases, policy, grows) for grows in ("runs", "agents")}
        for policy in policies
    }
    worst = max(value for one in growth.values() for value in one.values())
    return {
        "bench": "dispatch",
        "rate": rate,
        "seconds": seconds,
        "batch_items": BATCH_ITEMS,
        "hosts": len(load.hosts()),
        "polite": polite,
        **before,
        "ours": {"cases": cases, "growth": growth},
        "peer": None,
        "ratio": None,
        "limit": {"growth": LIMIT_GROWTH},
        "limit_ratio": round(worst / LIMIT_GROWTH, 3),
    }


def _cases(policies: Sequence[str], sizes: Sequence[int]) -> list[Case]:
    found = []
    for policy in map(Policy, policies):
        found += [Case(policy, size, FEW) for size in sizes]
        found += [Case(policy, FEW, size) for size in sizes if size != FEW]
    return found


def _growth(cases: Sequence[dict[str, Any]], policy: str, grows: str) -> float:
    """CPU per request of the largest against that of the smallest, where the other is few.

    Raises ``BenchFailed`` where the smallest took less than the system's clock can tell.
    """
    other = "agents" if grows == "runs" else "runs"
    row = [one for one in cases if one["policy"] == policy and one[other] == FEW]
    row.sort(key=lambda one: int(one[grows]))
    least, most = float(row[0]["cpu_us_per_request"]), float(row[-1]["cpu_us_per_request"])
    if not least:
        raise BenchFailed("too few requests to tell their cost: use more --seconds or --rate")
    return round(most / least, 2)


def _measure(case: Case, load: Load, broker: Broker) -> dict[str, Any]:
    broker.declare(*topology.SHARED)
    _clean_up(broker)
    agents = [agent_id(number) for number in range(case.agents)]
    broker.declare(*(topology.agent_commands(agent) for agent in agents))
    # The center takes over from the database who has just been alive.
    _beat(agents)
    plan = Plan(
        url=settings.BROKER_URL,
        runs=_runs(case, agents),
        hosts=load.hosts(),
        rate=load.rate,
        seconds=load.seconds / ROUNDS,
        items=BATCH_ITEMS,
    )
    file = Path(settings.DATA_DIR) / "bench-tap"
    file.unlink(missing_ok=True)
    lines: list[str] = []
    unit = Unit(
        "center",
        module("tools.benches.center", str(file)),
        PYTHON_PATH | (UNLIMITED if load.polite else {}),
    )
    supervisor = Supervisor([unit], lambda name, line: lines.append(line))
    with Stop() as stop:
        supervisor.start()
        try:
            with helper(module("tools.benches.batches")) as runs:
                _say(runs, msgspec.json.encode(plan).decode())
                figures = _Watch(supervisor, stop, broker, runs, agents, file).measure()
        except BenchFailed as failure:
            raise BenchFailed("\n".join([f"{case}: {failure}", *lines[-20:]])) from failure
        finally:
            supervisor.stop()
    file.unlink()
    return {"policy": case.policy.value, "runs": case.runs, "agents": case.agents} | figures


@dataclass(frozen=True, slots=True)
class _Round:
    """What one load was like; CPU in microseconds a request."""

    passages: tap.Passages
    dispatch_us: float
    all_us: float
    rss_mb: float


class _Watch:
    """One case, with everything started."""

    def __init__(
        self,
        supervisor: Supervisor,
        stop: Stop,
        broker: Broker,
        runs: subprocess.Popen[str],
        agents: Sequence[str],
        file: Path,
    ) -> None:
        self._supervisor = supervisor
        self._stop = stop
        self._broker = broker
        self._runs = runs
        self._agents = agents
        self._file = file

    def measure(self) -> dict[str, Any]:
        """Warm up, then as many rounds of load; the figures."""
        self._until(self._file.exists, "the center starts")
        self._round("warm")
        rounds = [self._round("go") for _ in range(ROUNDS)]
        passages = [one.passages for one in rounds]
        return {
            "requests": sum(one.requests for one in passages),
            "requests_per_command": round(
                sum(one.requests for one in passages) / sum(one.commands for one in passages), 1
            ),
            # Without the main thread, which reads who serves whom, whether there is load or not.
            "cpu_us_per_request": min(one.dispatch_us for one in rounds),
            "all_cpu_us_per_request": min(one.all_us for one in rounds),
            "center_ms": tap.percentiles([ms for one in passages for ms in one.total]),
            "inside_ms": tap.percentiles([ms for one in passages for ms in one.inside]),
            "peak_rss_mb": round(max(one.rss_mb for one in rounds)),
        }

    def _round(self, what: str) -> _Round:
        self._beat()
        self._file.write_bytes(b"")
        before = self._usage()
        told = self._load(what)
        passages = self._dispatched(told["sent"], loading=what == "warm")
        after = self._usage()
        if told["behind_seconds"] > LATE_SECONDS:
            raise BenchFailed(f"the load could not be made: {told}")
        if passages.astray:
            raise BenchFailed(f"{passages.astray} requests went to other agents than named")
        cpu = after.cpu_seconds - before.cpu_seconds
        main = after.main_seconds - before.main_seconds
        each = 1e6 / passages.requests
        dispatch_us, all_us = round(each * (cpu - main), 1), round(each * cpu, 1)
        return _Round(passages, dispatch_us, all_us, after.rss_mb)

    def _beat(self) -> None:
        """Every agent once; they count as alive for longer than a load takes."""
        began = timezone.now()
        mine = Agent.objects.filter(agent_id__startswith=PREFIX, heartbeat_at__gte=began)

        def seen() -> bool:
            # Again and again: a center that has not subscribed yet hears nothing.
            self._say_alive()
            return mine.count() == len(self._agents)

        self._until(seen, "the center hears the agents")

    def _say_alive(self) -> None:
        messages = [heartbeat(number) for number in range(len(self._agents))]
        self._broker.publish(messages).result(WAIT_SECONDS)

    def _load(self, what: str) -> dict[str, Any]:
        _say(self._runs, what)
        told: dict[str, Any] = json.loads(line_of(self._runs))
        return told

    def _dispatched(self, requests: int, *, loading: bool) -> tap.Passages:
        """What the tap says once all of it has gone to the agents.

        ``loading``: the center looks each run up in the database first, which takes so long that
        agents might be taken for dead meanwhile.
        """
        passages = tap.Passages()

        def gone() -> bool:
            nonlocal passages
            if loading:
                self._say_alive()
            passages = tap.read(self._file)
            return passages.requests >= requests

        self._until(gone, "every request is dispatched")
        return passages

    def _until(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not happened():
            self._supervisor.step(0.5)
            if self._stop.requested or time.monotonic() > deadline:
                raise BenchFailed(f"waited in vain until {what}")

    def _usage(self) -> Usage:
        found = usage(self._supervisor.pids().get("center"))
        if found is None or self._supervisor.restarts():
            raise BenchFailed("the center has ended")
        return found


def _say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None  # noqa: S101 - helper() asks for a pipe
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _beat(agents: Sequence[str]) -> None:
    latest = []
    for number in range(len(agents)):
        message = decode(heartbeat(number).body)
        assert isinstance(message, Heartbeat)  # noqa: S101 - made so
        latest.append(message)
    store_heartbeats(latest=latest, now=timezone.now())


def _runs(case: Case, agents: Sequence[str]) -> list[PlannedRun]:
    """Runs as a runner has left them, with their agents."""
    now = timezone.now()
    project, _ = Project.objects.update_or_create(
        slug="bench", defaults={"name": "Bench", "allowed_networks": ["127.0.0.0/8"]}
    )
    job, _ = Job.objects.get_or_create(
        project=project, name=JOB, defaults={"spider": "yardspider.spiders:SiteSpider"}
    )
    made = Run.objects.bulk_create(
        [Run(job=job, state=RunState.RUNNING, created_at=now) for _ in range(case.runs)]
    )
    for one in made:
        message = Allocate(
            run=one.pk,
            token="",
            reply_to=f"bench.answers.{one.pk}",
            policy=case.policy,
            agents=len(agents),
            settings=DownloaderSettings(obey_robots=False),
        )
        allocate(message=message, alive=agents, now=now)
    named = list(agents) if case.policy is Policy.CHAINED else []
    return [PlannedRun(one.pk, sign_run_token(settings.SECRET_KEY, one.pk), named) for one in made]


def _clean_up(broker: Broker) -> None:
    """Nothing of an earlier case, or of a bench that was stopped, is left."""
    agents = Agent.objects.filter(agent_id__startswith=PREFIX)
    for agent in agents.values_list("agent_id", flat=True):
        broker.delete(topology.agent_commands(agent).name)
    runs = Run.objects.filter(job__name=JOB, job__project__slug="bench")
    Allocation.objects.filter(owner__in=[one.owner for one in runs]).delete()
    runs.delete()
    agents.delete()
    broker.purge(topology.CENTER_REQUESTS.name)
