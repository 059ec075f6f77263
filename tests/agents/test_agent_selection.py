"""Which agents a run is given, and what is said of the others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from apps.agents.errors import NoAgentFree
from apps.agents.models import Agent, Allocation
from apps.agents.queries import (
    allocation_stamps,
    joinable,
    late_joins,
    open_allocation,
    preview_allocation,
)
from apps.agents.services import allocate, downloader_settings, switch_agent
from apps.agents.states import (
    AgentMode,
    UnavailableReason,
    given_number,
    none_text,
    shortfall_text,
    wanted_number,
    why_not,
)
from apps.jobs.states import RunState
from tests.agents.factories import make_agent
from tests.jobs.factories import NOW, make_run
from yardkit.protocol import Allocate, DownloaderSettings, DownloaderType, Policy

ENABLED, DRAINING, DISABLED = AgentMode


def agent(name: str, **fields: Any) -> Agent:
    silent = fields.pop("silent", 0)
    heard = NOW - timedelta(seconds=silent)
    return make_agent(agent_id=name, name=name, heartbeat_at=heard, **fields)


def ask(run: int, **fields: Any) -> Allocation:
    kind = DownloaderType(fields.pop("type", "http"))
    settings = DownloaderSettings(type=kind, cookies=fields.pop("cookies", {}))
    values = {"run": run, "token": "t", "reply_to": f"run.{run}.b", "settings": settings}
    alive = fields.pop("alive", None)
    if alive is None:
        alive = list(Agent.objects.alive(NOW).values_list("agent_id", flat=True))
    return allocate(message=Allocate(**(values | fields)), alive=alive, now=NOW)


def names(allocation: Allocation) -> set[str]:
    return set(allocation.agents.values_list("agent_id", flat=True))


@pytest.mark.parametrize(
    ("alive", "mode", "types", "reason"),
    [
        (True, ENABLED, ["http", "browser"], None),
        (True, ENABLED, ["http"], UnavailableReason.TYPE),
        (True, ENABLED, [], UnavailableReason.TYPE),
        (True, DRAINING, ["browser"], UnavailableReason.DRAINING),
        (True, DISABLED, ["browser"], UnavailableReason.DISABLED),
        (False, ENABLED, ["browser"], UnavailableReason.SILENT),
        (False, DRAINING, ["browser"], UnavailableReason.SILENT),
        # Switched off because it is gone: that is the reason to name.
        (False, DISABLED, [], UnavailableReason.DISABLED),
    ],
)
def test_each_agent_is_eligible_or_there_is_one_reason(
    alive: bool, mode: AgentMode, types: list[str], reason: UnavailableReason | None
) -> None:
    assert why_not(alive=alive, mode=mode, types=types, wanted="browser") == reason


@pytest.mark.parametrize(
    ("policy", "asked", "eligible", "wanted", "given"),
    [
        (Policy.RANDOM, 0, 5, 0, 5),
        (Policy.RANDOM, 9, 5, 9, 5),
        (Policy.FIXED, 0, 5, 1, 1),
        (Policy.CHAINED, 0, 5, 1, 1),
        (Policy.FIXED, 3, 5, 3, 3),
        (Policy.CHAINED, 9, 5, 9, 5),
    ],
)
def test_how_many(policy: Policy, asked: int, eligible: int, wanted: int, given: int) -> None:
    assert wanted_number(policy, asked) == wanted
    assert given_number(policy, asked, eligible) == given


def test_the_reasons_are_counted() -> None:
    why = [
        UnavailableReason.DRAINING,
        UnavailableReason.SILENT,
        UnavailableReason.SILENT,
        UnavailableReason.TYPE,
    ]
    counted = '2 not alive, 1 draining, 1 cannot make type "browser"'
    assert none_text(why, "browser") == f"no agent available: {counted}"
    assert none_text([], "http") == "no agent available: no agent has registered yet"
    assert shortfall_text(3, 2, why, "browser") == f"3 agents requested, 2 available ({counted})"
    assert shortfall_text(2, 2, why, "browser") == ""


@pytest.mark.slow("3 s")
@pytest.mark.django_db
@pytest.mark.covers("S1.36", "S1.37", "S1.54")
@pytest.mark.parametrize("policy", [Policy.FIXED, Policy.CHAINED])
def test_only_those_that_can_are_drawn_and_written_down(policy: Policy) -> None:
    for number in range(4):
        agent(f"good{number}", types=["http", "browser"])
    agent("plain", types=["http"])
    agent("draining", types=["browser"], mode=DRAINING)
    agent("off", types=["browser"], mode=DISABLED)
    agent("gone", types=["browser"], silent=60)
    seen: set[str] = set()
    for _ in range(30):
        run = make_run(state=RunState.RUNNING)
        allocation = ask(run.pk, policy=policy, agents=2, type="browser")
        assert (len(names(allocation)), allocation.warning) == (2, "")
        assert allocation.policy == policy
        found = open_allocation(run.pk)
        assert found is not None
        assert set(found.agents) == names(allocation)
        seen |= names(allocation)
    assert seen == {"good0", "good1", "good2", "good3"}
    one = ask(make_run(state=RunState.RUNNING).pk, policy=policy, agents=0)
    assert (len(names(one)), one.asked) == (1, 1)
    short = ask(make_run(state=RunState.RUNNING).pk, policy=policy, agents=6, type="browser")
    assert short.warning == (
        "6 agents requested, 4 available "
        '(1 disabled, 1 not alive, 1 draining, 1 cannot make type "browser")'
    )


@pytest.mark.django_db
def test_random_takes_all_that_can_and_those_that_come_later() -> None:
    agent("a", types=["http", "file"])
    agent("plain")
    run = make_run(state=RunState.RUNNING)
    allocation = ask(run.pk, type="file")
    assert names(allocation) == {"a"}
    assert joinable(agent("late", types=["http"])) == []
    assert joinable(agent("draining", types=["file"], mode=DRAINING)) == []
    assert joinable(agent("able", types=["file"])) == [allocation]


@pytest.mark.django_db
def test_none_at_all_says_why_and_writes_nothing() -> None:
    agent("gone", silent=60)
    agent("gone too", silent=600)
    agent("draining", mode=DRAINING)
    run = make_run(state=RunState.RUNNING)
    with pytest.raises(NoAgentFree) as refused:
        ask(run.pk)
    assert str(refused.value) == "no agent available: 2 not alive, 1 draining"
    assert not Allocation.objects.exists()


@pytest.mark.django_db
def test_a_disabled_agent_is_left_out_for_the_center_and_a_draining_one_is_not() -> None:
    one, two = agent("one"), agent("two")
    run = make_run(state=RunState.RUNNING)
    ask(run.pk)

    def center_sees() -> tuple[Any, set[str]]:
        found = open_allocation(run.pk)
        assert found is not None
        return allocation_stamps([run.pk])[run.pk], set(found.agents)

    first, agents = center_sees()
    assert agents == {"one", "two"}
    later = NOW + timedelta(seconds=1)
    switch_agent(agent=one, mode=DRAINING, actor=None, now=later)
    assert center_sees()[1] == {"one", "two"}
    switch_agent(agent=one, mode=DISABLED, actor=None, now=later)
    stamp, agents = center_sees()
    assert agents == {"two"}
    assert stamp != first
    # One comes back in the moment in which the other goes: as many as before, but others.
    later += timedelta(seconds=1)
    switch_agent(agent=one, mode=ENABLED, actor=None, now=later)
    switch_agent(agent=two, mode=DISABLED, actor=None, now=later)
    again, agents = center_sees()
    assert agents == {"one"}
    assert again not in (first, stamp)
    assert allocation_stamps([run.pk])[run.pk] == again


@pytest.mark.django_db
def test_stamps_take_one_query_and_allocations_two(django_assert_num_queries: Any) -> None:
    runs = [make_run(state=RunState.RUNNING).pk for _ in range(3)]
    agent("a")
    for run in runs:
        ask(run)
    with django_assert_num_queries(1):
        assert set(allocation_stamps(runs)) == set(runs)
    with django_assert_num_queries(2):
        open_allocation(runs[0])


@pytest.mark.django_db
def test_an_agent_that_is_enabled_again_is_offered_to_the_runs_that_want_all() -> None:
    back = agent("back", mode=DRAINING, registered_at=NOW - timedelta(days=1))
    since = NOW - timedelta(seconds=120)
    agent("other", registered_at=since - timedelta(days=1))
    allocation = ask(make_run(state=RunState.RUNNING).pk)
    assert late_joins(["back", "other"], since) == []
    switch_agent(agent=back, mode=ENABLED, actor=None, now=NOW)
    assert late_joins(["back", "other"], since) == [(back, allocation)]


@pytest.mark.django_db
@pytest.mark.covers("S1.30")
def test_cookies_are_sealed_in_the_allocation_and_opened_for_the_agents() -> None:
    agent("a")
    run = make_run(state=RunState.RUNNING)
    allocation = ask(run.pk, cookies={"sid": "s3cret"})
    stored = Allocation.objects.filter(pk=allocation.pk).values("settings", "cookies").get()
    assert "s3cret" not in str(stored)
    assert "cookies" not in stored["settings"] or stored["settings"]["cookies"] == {}
    read = Allocation.objects.get(pk=allocation.pk)
    assert downloader_settings(read).cookies == {"sid": "s3cret"}


@pytest.mark.django_db
@pytest.mark.covers("S1.15")
@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("agents", [0, 1, 2, 9])
def test_the_preview_says_what_an_allocation_then_gives(
    policy: Policy, agents: int, django_assert_num_queries: Any
) -> None:
    agent("a", types=["http", "browser"])
    agent("b", types=["http", "browser"])
    agent("plain")
    agent("gone", types=["browser"], silent=60)
    with django_assert_num_queries(1):
        preview = preview_allocation(policy=policy, agents=agents, wanted_type="browser", now=NOW)
    assert not Allocation.objects.exists()
    allocation = ask(
        make_run(state=RunState.RUNNING).pk, policy=policy, agents=agents, type="browser"
    )
    given = names(allocation)
    assert len(given) == preview.given
    assert given <= {each.agent_id for each in preview.eligible} == {"a", "b"}
    assert (allocation.warning, allocation.asked) == (preview.warning, preview.asked)
    assert {each.agent.agent_id: each.refusal for each in preview.refused} == {
        "plain": UnavailableReason.TYPE,
        "gone": UnavailableReason.SILENT,
    }
    assert preview.refusal == ""


@pytest.mark.django_db
def test_the_preview_of_nothing_says_why() -> None:
    agent("gone", silent=60)
    preview = preview_allocation(policy="fixed", agents=2, wanted_type="http", now=NOW)
    assert (preview.given, preview.warning) == (0, "")
    assert preview.refusal == "no agent available: 1 not alive"
