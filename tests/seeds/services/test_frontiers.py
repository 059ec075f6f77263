"""Frontiers made, changed and deleted, each time with a line in the audit trail."""

from __future__ import annotations

import pytest

from apps.access.models import AuditRecord
from apps.seeds.errors import FrontierHasSeeds, OperationRunning, RulesNeedMove, SeedsStillLeased
from apps.seeds.models import Frontier
from apps.seeds.services import (
    change_granularity,
    client_of,
    create_frontier,
    delete_frontier,
    frontiers,
    management,
    update_frontier,
)
from apps.seeds.services.clients import manager_of
from tests.access.factories import make_project, make_user
from tests.seeds.services.small_service import Desk
from yardkit.protocol import Seed
from yardkit.seeds import SeedServiceAway

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process has to hear of a freeze."""
    monkeypatch.setattr(frontiers, "SETTLE_SECONDS", 0.0)


def audit(action: str) -> AuditRecord:
    return AuditRecord.objects.get(action=action)


def test_frontiers_are_made_and_changed() -> None:
    anna = make_user()
    made = create_frontier(actor=anna, values={"project": make_project(), "name": "news"})
    assert audit("seeds.add_frontier").after is not None
    seen = made.updated_at
    update_frontier(actor=anna, frontier=made, values={"max_retry": 5, "segments": "day"})
    record = audit("seeds.change_frontier")
    assert (record.before, record.after) == ({"max_retry": 3}, {"max_retry": 5})
    assert record.actor == anna
    # The service looks at this time.
    assert Frontier.objects.get().updated_at > seen
    update_frontier(actor=anna, frontier=made, values={"max_retry": 5})
    assert AuditRecord.objects.filter(action="seeds.change_frontier").count() == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segments", "week"),
        ("time_zone", "Asia/Shanghai"),
        ("keys", "page"),
        ("ignored_parameters", ["t"]),
    ],
    ids=["segments", "zone", "keys", "parameters"],
)
def test_rules_that_would_regroup_seeds_are_not_just_changed(name: str, value: object) -> None:
    made = create_frontier(actor=None, values={"project": make_project(), "name": "news"})
    with pytest.raises(RulesNeedMove) as refusal:
        update_frontier(actor=None, frontier=made, values={"max_retry": 9, name: value})
    assert list(refusal.value.fields) == [name]
    assert Frontier.objects.get().max_retry == 3


def test_a_frontier_with_seeds_is_deleted_only_when_that_is_meant(
    desk: Desk, frontier: Frontier
) -> None:
    client = client_of(frontier, owner="w")
    client.add([Seed("a"), Seed("b")])
    with pytest.raises(FrontierHasSeeds):
        delete_frontier(actor=None, frontier=frontier)
    leased = client.lease(1)
    with pytest.raises(SeedsStillLeased):
        delete_frontier(actor=None, frontier=frontier, wipe=True)
    client.give_back(leased.generation)
    assert not Frontier.objects.get().is_frozen
    number = frontier.pk
    delete_frontier(actor=None, frontier=frontier, wipe=True, actor_label="ops")
    assert not Frontier.objects.exists()
    assert desk.store.segments(number) == []
    assert audit("seeds.delete_frontier").actor_label == "ops"


def test_nothing_is_deleted_without_the_service(
    desk: Desk, frontier: Frontier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(management, "manager_of", lambda one, **_told: manager_of(one, timeout=0.3))
    desk.away.set()
    with pytest.raises(SeedServiceAway):
        delete_frontier(actor=None, frontier=frontier, wipe=True)
    desk.away.clear()
    assert not Frontier.objects.get().is_frozen


def test_a_frontier_is_not_deleted_while_it_is_moved(frontier: Frontier) -> None:
    change_granularity(frontier, segments="week")
    with pytest.raises(OperationRunning):
        delete_frontier(actor=None, frontier=frontier, wipe=True)
