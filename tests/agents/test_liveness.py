"""Who is alive, and how cheaply the center knows."""

from __future__ import annotations

from random import Random

import pytest

from apps.agents.center.assignment import AGENT_GONE, Groups, assign
from apps.agents.center.liveness import Liveness
from apps.agents.center.runs import OpenAllocation, RunEntry, RunTable
from yardkit.clock import ManualClock
from yardkit.protocol import Policy, RequestItem, encode_request
from yardkit.protocol.downloads import DownloadRequest
from yardkit.topology import AGENT_ALIVE_SECONDS


class Heard(Liveness):
    """Counts how often one agent is asked after."""

    asked = 0

    def is_alive(self, agent: str) -> bool:
        self.asked += 1
        return super().is_alive(agent)


class LivenessHarness:
    """Agents and runs under a clock of the test's own."""

    def __init__(self, agents: int = 3) -> None:
        self.clock = ManualClock()
        self.liveness = Heard(self.clock.monotonic)
        self.agents = tuple(f"a{number}" for number in range(agents))
        self.policy = Policy.RANDOM
        self.random = Random(1)
        self.runs = RunTable(
            liveness=self.liveness, load=self.allocation, incarnation="b", clock=self.clock
        )
        for agent in self.agents:
            self.liveness.seen(agent)

    def allocation(self, run: int) -> OpenAllocation:
        return OpenAllocation(run=run, policy=self.policy, agents=self.agents)

    def alive(self, run: int = 1) -> tuple[str, ...]:
        return self.runs.alive(self.runs.use(run))

    def entry(self) -> RunEntry:
        entry = self.runs.use(1)
        self.runs.alive(entry)
        return entry


def items(count: int, agent: str = "") -> list[RequestItem]:
    raw = encode_request(DownloadRequest(url="http://127.0.0.1/"))
    return [RequestItem(number, 1, "127.0.0.1", agent, raw) for number in range(count)]


@pytest.mark.covers("S1.37", "S1.38")
def test_an_agent_is_dropped_at_the_very_moment_it_counts_as_dead() -> None:
    harness = LivenessHarness()
    harness.clock.advance(5)
    harness.liveness.seen("a1")
    harness.clock.advance(AGENT_ALIVE_SECONDS - 5 - 0.001)
    assert harness.alive() == ("a0", "a1", "a2")
    harness.clock.advance(0.001)
    assert harness.alive() == ("a1",)
    harness.liveness.seen("a2")
    assert harness.alive() == ("a1", "a2")
    harness.clock.advance(AGENT_ALIVE_SECONDS)
    assert harness.alive() == ()
    assert harness.entry().why_nobody() == "none of the run's agents is alive"


@pytest.mark.covers("S1.59")
def test_a_batch_costs_the_same_with_a_thousand_agents_and_runs() -> None:
    harness = LivenessHarness(agents=1000)
    for run in range(50):
        harness.alive(run)
    harness.liveness.asked = 0
    for _ in range(5):
        harness.clock.advance(2)
        for agent in harness.agents:
            harness.liveness.seen(agent)
        for run in range(50):
            assert len(harness.alive(run)) == 1000
    # Once in 11 s somebody might have died unnoticed; 250 batches looked at no agent at all.
    assert harness.liveness.asked <= 1000


@pytest.mark.covers("S1.36", "S1.39")
@pytest.mark.parametrize("policy", list(Policy))
def test_requests_without_an_agent_go_to_all_of_the_runs_living_agents(policy: Policy) -> None:
    harness = LivenessHarness()
    harness.policy = policy
    harness.liveness.seen("stranger")
    groups: Groups = {}
    assert assign(groups, harness.entry(), "q", items(300), harness.random) == {}
    assert {agent for agent, _run, _reply_to in groups} == set(harness.agents)
    assert sum(map(len, groups.values())) == 300


@pytest.mark.parametrize(("requests", "sizes"), [(3, [3]), (8, [4, 4]), (20, [6, 7, 7])])
def test_a_batch_leaves_in_few_messages_and_evenly(requests: int, sizes: list[int]) -> None:
    harness = LivenessHarness()
    groups: Groups = {}
    assert assign(groups, harness.entry(), "q", items(requests), harness.random) == {}
    assert sorted(map(len, groups.values())) == sizes
    assert len({item.id for group in groups.values() for item in group}) == requests


@pytest.mark.covers("S1.36", "S1.39", "S1.59")
def test_a_chained_request_goes_to_its_agent_or_to_nobody() -> None:
    harness = LivenessHarness()
    harness.policy = Policy.CHAINED
    harness.liveness.seen("stranger")
    groups: Groups = {}
    assert assign(groups, harness.entry(), "q", items(40, "a1"), harness.random) == {}
    assert {agent for agent, _run, _reply_to in groups} == {"a1"}
    lost = assign(groups, harness.entry(), "q", items(2, "stranger"), harness.random)
    assert {reason: len(some) for reason, some in lost.items()} == {AGENT_GONE: 2}
    harness.clock.advance(AGENT_ALIVE_SECONDS)
    harness.liveness.seen("a0")
    lost = assign(groups, harness.entry(), "q", items(3, "a1") + items(1), harness.random)
    assert {reason: len(some) for reason, some in lost.items()} == {AGENT_GONE: 3}
    assert len(groups["a0", 1, "q"]) == 1


@pytest.mark.covers("S1.36")
@pytest.mark.parametrize("policy", [Policy.RANDOM, Policy.FIXED])
def test_other_policies_do_not_care_for_a_requests_agent(policy: Policy) -> None:
    harness = LivenessHarness()
    harness.policy = policy
    groups: Groups = {}
    assert assign(groups, harness.entry(), "q", items(300, "a1"), harness.random) == {}
    assert len(groups) == 3
