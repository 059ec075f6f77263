"""Heartbeats, the samples that are kept of them, and the lines drawn from those."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from apps.agents.engine.charts import HEIGHT, WIDTH, round_top, segments, thin_out
from apps.agents.models import Agent, AgentSample
from apps.agents.services import prune_samples, register_agent, store_heartbeats
from tests.agents.factories import make_agent
from tests.agents.test_services import heartbeat, registration
from tests.jobs.factories import NOW
from yardkit.protocol import DownloaderType

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


@pytest.mark.django_db
@pytest.mark.covers("S1.15", "S1.20")
def test_one_sample_an_agent_a_minute() -> None:
    for number in range(25):
        at = NOW + 5 * number * SECOND
        store_heartbeats(latest=[heartbeat("a", qps=number), heartbeat("b")], now=at)
    samples = AgentSample.objects.filter(agent__agent_id="a").order_by("at")
    assert [(one.at, one.qps) for one in samples] == [
        (NOW, 0.0),
        (NOW + MINUTE, 12.0),
        (NOW + 2 * MINUTE, 24.0),
    ]
    first = samples[0]
    assert (first.cpu_percent, first.free_memory_bytes, first.downloaders) == (12.5, 1 << 30, 3)
    assert AgentSample.objects.count() == 6


@pytest.mark.django_db
def test_two_centers_keep_one_sample_between_them() -> None:
    store_heartbeats(latest=[heartbeat("a")], now=NOW)
    # The other center read the row before the first one wrote to it.
    Agent.objects.update(sampled_at=None)
    assert store_heartbeats(latest=[heartbeat("a")], now=NOW + SECOND) == {}
    assert AgentSample.objects.count() == 1


# As many as go into one statement: SQLite takes 999 values.
MANY = 40


@pytest.mark.django_db
def test_the_number_of_queries_does_not_grow_with_the_agents(
    django_assert_max_num_queries: Any,
) -> None:
    def beats(number: int, qps: float = 1.0) -> list[Any]:
        return [heartbeat(f"a{each}", qps=qps) for each in range(number)]

    # The first brings new agents, facts and samples; later ones figures alone.
    store_heartbeats(latest=beats(MANY), now=NOW)
    with django_assert_max_num_queries(4) as few:
        store_heartbeats(latest=beats(5), now=NOW + SECOND)
    with django_assert_max_num_queries(len(few)):
        store_heartbeats(latest=beats(MANY, qps=2.0), now=NOW + 2 * SECOND)
    with django_assert_max_num_queries(len(few) + 2):
        store_heartbeats(latest=beats(MANY), now=NOW + MINUTE)
    assert AgentSample.objects.count() == 2 * MANY


@pytest.mark.django_db
def test_types_and_problems_are_kept_as_they_are_last_told() -> None:
    said = msgspec.structs.replace(
        registration("a"), types=(DownloaderType.HTTP, DownloaderType.BROWSER)
    )
    register_agent(message=said, now=NOW)
    agent = Agent.objects.get()
    assert (agent.types, agent.problems) == (["http", "browser"], [])
    beat = msgspec.structs.replace(
        heartbeat("a"), types=(DownloaderType.FILE,), problems=["disk full", "x" * 9_000] * 30
    )
    store_heartbeats(latest=[beat], now=NOW + SECOND)
    agent.refresh_from_db()
    assert agent.types == ["file"]
    assert (agent.problems[0], len(agent.problems), len(agent.problems[1])) == (
        "disk full",
        20,
        500,
    )
    store_heartbeats(latest=[heartbeat("a")], now=NOW + 2 * SECOND)
    agent.refresh_from_db()
    assert (agent.types, agent.problems) == (["http"], [])


@pytest.mark.django_db
def test_a_new_start_has_none_of_the_old_problems() -> None:
    store_heartbeats(
        latest=[msgspec.structs.replace(heartbeat("a"), problems=["disk full"])], now=NOW
    )
    register_agent(message=registration("a", boot="1"), now=NOW)
    assert Agent.objects.get().problems == ["disk full"]
    register_agent(message=registration("a", boot="2"), now=NOW)
    assert Agent.objects.get().problems == []


@pytest.mark.django_db
def test_samples_are_forgotten_after_their_time(settings: Any) -> None:
    settings.AGENT_HISTORY_HOURS = 2
    agent = make_agent()
    for minutes in (0, 119, 121, 6_000):
        AgentSample.objects.create(
            agent=agent,
            at=NOW - minutes * MINUTE,
            cpu_percent=1,
            free_memory_bytes=1,
            downloaders=1,
            qps=1,
        )
    assert prune_samples(now=NOW) == 2
    assert prune_samples(now=NOW) == 0
    assert set(AgentSample.objects.values_list("at", flat=True)) == {NOW, NOW - 119 * MINUTE}


def test_a_line_has_a_gap_where_samples_are_missing() -> None:
    points = [(0.0, 0.0), (60.0, 50.0), (600.0, 100.0)]
    assert segments(points, start=0, end=600, top=100) == [
        f"0.0,{HEIGHT:.1f} 60.0,50.0",
        f"{WIDTH:.1f},0.0 {WIDTH + 2:.1f},0.0",
    ]
    assert segments([], start=0, end=600, top=1) == []


def test_what_is_beyond_the_axis_stays_inside_the_picture() -> None:
    assert segments([(0.0, 900.0), (60.0, -5.0)], start=0, end=600, top=100) == [
        f"0.0,0.0 60.0,{HEIGHT:.1f}"
    ]


def test_of_a_stretch_of_time_the_worst_value_is_drawn() -> None:
    points = [(0.0, 1.0), (60.0, 9.0), (120.0, 2.0), (300.0, 3.0)]
    assert thin_out(points, seconds=180, worst=max) == [(0.0, 9.0), (300.0, 3.0)]
    assert thin_out(points, seconds=180, worst=min) == [(0.0, 1.0), (300.0, 3.0)]


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (0.3, 1), (1.1, 2), (41.25, 50), (100, 100), (101, 200)]
)
def test_an_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert round_top(value) == top
