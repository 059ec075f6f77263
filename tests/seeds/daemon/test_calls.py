"""Calls through a real broker, answered from both stores."""

from __future__ import annotations

import pytest

from tests.seeds.daemon.conftest import Service
from yardkit.protocol import Seed, SeedFinish, SeedOutcome, SeedsLeased, SeedState
from yardkit.seeds import SeedClient

pytestmark = pytest.mark.django_db(transaction=True)


def seeds(*names: str) -> list[Seed]:
    return [Seed(name) for name in names]


def ended(lease: SeedsLeased, outcome: SeedOutcome = SeedOutcome.SUCCESS) -> list[SeedFinish]:
    return [SeedFinish(one.segment, one.key, lease.generation, outcome) for one in lease.seeds]


@pytest.mark.covers("S3.5", "S3.15")
def test_a_seed_is_added_leased_and_finished(service: Service, client: SeedClient) -> None:
    assert [one.code for one in client.add(seeds("a", "b", "a"))] == ["new", "new", "duplicate"]
    lease = client.lease(10)
    assert [one.key for one in lease.seeds] == ["a", "b"]
    assert lease.deadline == int(service.clock.time() * 1000) + 300_000
    assert lease.pending == 0
    done = client.finish(ended(lease))
    assert [(one.code, one.state) for one in done.answers] == [
        ("finished", SeedState.SUCCEEDED)
    ] * 2
