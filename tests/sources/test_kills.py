"""A collector killed at any line loses no record; duplicates have the same id."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from apps.sources.daemon.harvest_worker import HarvestWorker
from apps.sources.engine import harvester
from apps.sources.models import Harvest
from apps.sources.services import stop
from apps.sources.services.leases import LEASE, claim
from tests.plugins.measurements import Measured
from tests.sources.collector_setup import CollectorHarness
from tests.sources.octoparse_double import OctoparseDouble
from yardkit import failpoints
from yardkit.broker.base import BrokerUnavailable, Delivery

MakeYard = Callable[..., CollectorHarness]

TOTAL = 4_060
DEATHS = 40


class Died(BaseException):
    """Simulated death of the process."""


class Fate:
    """Raises ``Died`` at the given hit of a failpoint."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.died_at: Counter[str] = Counter()

    def hit(self, name: str) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left <= 0:
            self.left = None
            self.died_at[name] += 1
            raise Died


@pytest.fixture
def fate(monkeypatch: pytest.MonkeyPatch) -> Fate:
    made = Fate()
    monkeypatch.setattr(harvester, "hit", made.hit)
    return made


@pytest.mark.covers("S0.17", "S0.27")
@pytest.mark.fault
def test_forty_deaths_lose_nothing(
    harness: CollectorHarness, double: OctoparseDouble, fate: Fate, measured: Measured
) -> None:
    chance = random.Random(7)
    double.total = TOTAL
    harness.start()
    broker = harness.open_broker()
    deaths = 0
    while deaths < DEATHS:
        # A restart under the same name does not wait for the lease.
        collector = harness.collector(broker=broker)
        fate.left = chance.randint(1, 5)
        try:
            harness.collect(collector)
        except Died:
            deaths += 1
        else:
            break
    fate.left = None
    last = harness.collect(harness.collector(broker=broker))
    assert (last.state, last.reason, last.resumed) == ("completed", "end", True)
    assert deaths == DEATHS
    assert len(fate.died_at) >= 3, fate.died_at
    found = harness.deliveries()
    numbers = Counter(each.headers["offset"] for each in found)
    lost, twice = len(set(range(TOTAL)) - numbers.keys()), len(found) - len(numbers)
    measured(of=TOTAL, lost=lost, twice=twice)
    # Complete, and duplicates have the same id.
    assert set(numbers) == set(range(TOTAL))
    ids = {each.message_id: each.headers["offset"] for each in found}
    assert len(ids) == TOTAL
    # After a death between publish and checkpoint only that batch is repeated.
    assert 0 < len(found) - TOTAL <= 100 * fate.died_at["sources.after_publish"]
    rows = list(Harvest.objects.order_by("pk"))
    assert sum(row.read for row in rows) == sum(row.published for row in rows) == TOTAL
    assert [row.state for row in rows[:-1]] == ["interrupted"] * (len(rows) - 1)
    assert {row.reason for row in rows[:-1]} == {"lost"}
    assert harness.state.marker == TOTAL - 100
    assert harness.state.checkpoint is None


@pytest.mark.covers("S0.39")
@pytest.mark.fault
@pytest.mark.parametrize("point", ["sources.after_publish", "sources.before_mark"])
def test_a_death_before_the_mark_sends_no_other_message(
    make_yard: MakeYard,
    double: OctoparseDouble,
    monkeypatch: pytest.MonkeyPatch,
    measured: Measured,
    point: str,
) -> None:
    harness = make_yard(mode="not_exported")
    double.total = 250
    hits = iter([True])

    def hit(name: str) -> None:
        if name == point and next(hits, False):
            raise Died

    monkeypatch.setattr(harvester, "hit", hit)
    with pytest.raises(Died):
        harness.harvest()
    assert double.exported == 0
    harvest = harness.collect(harness.collector())
    found = harness.deliveries()
    measured(of=double.total, **lost_and_twice(found, double.total))
    assert len({each.message_id for each in found}) == 250
    # If stored before the mark they are recognised, otherwise repeated with the same ids.
    twice = point == "sources.after_publish"
    assert len(found) == (350 if twice else 250)
    assert harvest.re_read == (0 if twice else 100)
    assert double.exported == 250


def lost_and_twice(found: list[Delivery], total: int) -> dict[str, int]:
    """Return the numbers of lost and of duplicate records."""
    different = len({each.message_id for each in found})
    return {"lost": total - different, "twice": len(found) - different}


@pytest.mark.covers("S0.39")
@pytest.mark.fault
def test_a_death_after_a_mark_sends_nothing_twice(
    make_yard: MakeYard,
    double: OctoparseDouble,
    monkeypatch: pytest.MonkeyPatch,
    measured: Measured,
) -> None:
    harness = make_yard(mode="not_exported")
    double.total = 250
    hits = iter([True])

    def hit(name: str) -> None:
        if name == "sources.after_mark" and next(hits, False):
            raise Died

    monkeypatch.setattr(harvester, "hit", hit)
    with pytest.raises(Died):
        harness.harvest()
    assert double.exported == 100
    harvest = harness.collect(harness.collector())
    assert (harvest.state, harvest.resumed, harvest.re_read) == ("completed", True, 0)
    found = harness.deliveries()
    measured(of=double.total, **lost_and_twice(found, double.total))
    assert len({each.message_id for each in found}) == len(found) == 250
    assert double.exported == 250


POINTS = (
    *("sources.after_plan", "sources.before_publish", "sources.after_publish"),
    "sources.after_checkpoint",
)
WINDOWS = [
    *(("offset", point) for point in POINTS),
    *(("not_exported", f"sources.{when}_publish") for when in ("before", "after")),
    *(("not_exported", f"sources.{when}_mark") for when in ("before", "after")),
]


@pytest.mark.fault
@pytest.mark.parametrize(("mode", "point"), WINDOWS)
def test_an_exception_at_a_failpoint_ends_a_harvest_and_loses_nothing(
    make_yard: MakeYard, double: OctoparseDouble, measured: Measured, mode: str, point: str
) -> None:
    harness = make_yard(mode=mode)
    double.total = 250
    failpoints.configure({"FAILPOINTS": f"{point}=raise@1"})
    try:
        broken = harness.harvest()
    finally:
        failpoints.configure({})
    assert (broken.state, broken.reason) == ("failed", "error")
    assert broken.error == f"FailpointError: {point}"
    begun = time.monotonic()
    harvest = harness.harvest()
    back_s = time.monotonic() - begun
    assert harvest.state == "completed"
    found = harness.deliveries()
    measured(of=double.total, **lost_and_twice(found, double.total), back_s=back_s)
    assert len({each.message_id for each in found}) == 250
    # A batch that was published but not stored.
    assert len(found) - 250 <= 100


@pytest.mark.slow("1 s")
@pytest.mark.covers("S0.17", "S0.20")
def test_a_stop_keeps_the_checkpoint_and_a_start_goes_on(
    harness: CollectorHarness, double: OctoparseDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    double.total = 1000
    collector = harness.collector()
    hits = Counter[str]()

    def hit(name: str) -> None:
        hits[name] += 1
        if hits["sources.after_checkpoint"] == 3 and name == "sources.after_checkpoint":
            stop(project_id=harness.project.pk, names=["news"], actor=None, now=harness.clock.now())
            # The daemon's thread does this while the import runs in another.
            collector_watch()

    works: list[HarvestWorker] = []

    class Watched(HarvestWorker):
        def run(self) -> None:
            works.append(self)
            super().run()

    def collector_watch() -> None:
        works[-1].asked_to_stop = True

    monkeypatch.setattr("apps.sources.daemon.collector.HarvestWorker", Watched)
    monkeypatch.setattr(harvester, "hit", hit)
    harvest = harness.harvest(collector)
    assert (harvest.state, harvest.reason, harvest.published) == ("stopped", "manual", 300)
    assert harness.state.marker is None
    assert harness.state.stopped_at is not None
    checkpoint = harness.state.checkpoint
    assert checkpoint is not None
    assert (checkpoint["start"], checkpoint["next"], checkpoint["end"]) == (900, 600, 0)
    assert harvest.checkpoint == checkpoint
    # New records do not change the plan of the resumed import.
    double.total = 1200
    hits["sources.after_checkpoint"] = 100
    again = harness.harvest(collector)
    assert (again.state, again.resumed, again.published) == ("completed", True, 700)
    assert harness.state.marker == 900
    assert harness.harvest(collector).published == 200
    assert sorted(harness.numbers()) == list(range(1200))


def test_a_collector_that_lost_its_lease_publishes_nothing_more(
    harness: CollectorHarness, double: OctoparseDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    double.total = 1000
    slow = harness.collector("slow")
    other = harness.collector("other")
    stolen: list[Harvest] = []

    def hit(name: str) -> None:
        if name == "sources.after_checkpoint" and not stolen and harness.newest.batches == 3:
            # It outsleeps its lease, and another collector completes the import.
            stolen.append(harness.newest)
            harness.clock.shift += LEASE + timedelta(seconds=1)
            stolen.append(harness.collect(other))

    monkeypatch.setattr(harvester, "hit", hit)
    harness.start()
    slow.step()
    assert (stolen[1].state, stolen[1].published) == ("completed", 700)
    assert sorted(harness.numbers()) == list(range(1000))
    first = Harvest.objects.earliest("pk")
    assert (first.state, first.reason, first.published) == ("interrupted", "lost", 300)


@pytest.mark.slow("1 s")
@pytest.mark.covers("S0.20")
def test_a_stop_is_kept_though_its_collector_dies(
    harness: CollectorHarness, double: OctoparseDouble, fate: Fate
) -> None:
    double.total = 1000
    where: dict[str, Any] = {
        "project_id": harness.project.pk,
        "names": ["news"],
        "actor": None,
        "now": harness.clock.now(),
    }
    fate.left = 8
    with pytest.raises(Died):
        harness.harvest(harness.collector())
    assert stop(**where)[0].became == "stopping"
    harvest = harness.collect(harness.collector())
    assert (harvest.state, harvest.reason) == ("stopped", "manual")
    assert harvest.checkpoint is not None
    assert harvest.checkpoint == harness.state.checkpoint
    assert Harvest.objects.count() == 1
    assert harness.harvest().state == "completed"
    assert {each.headers["offset"] for each in harness.deliveries()} == set(range(1000))


@pytest.mark.slow("1 s")
def test_a_start_takes_back_a_stop_that_was_acted_on_already(
    harness: CollectorHarness, double: OctoparseDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    double.total = 500
    works: list[HarvestWorker] = []

    class Watched(HarvestWorker):
        def run(self) -> None:
            works.append(self)
            super().run()

    def hit(name: str) -> None:
        if name == "sources.after_checkpoint" and len(works) == 1 and harness.newest.batches == 2:
            # A stop seen by the collector, then a start before the batch ends.
            now = harness.clock.now()
            stop(project_id=harness.project.pk, names=["news"], actor=None, now=now)
            works[0].asked_to_stop = True
            harness.start()

    monkeypatch.setattr("apps.sources.daemon.collector.HarvestWorker", Watched)
    monkeypatch.setattr(harvester, "hit", hit)
    harvest = harness.harvest()
    assert (harvest.state, harvest.resumed, len(works)) == ("completed", True, 2)
    assert sorted(harness.numbers()) == list(range(500))


def test_two_collectors_never_have_the_same_source(
    harness: CollectorHarness, double: OctoparseDouble
) -> None:
    double.total = 10
    harness.collector()
    harness.start()
    now = harness.clock.now()
    first = claim(limit=5, collector="a", owner="a 1", now=now)
    assert [held.name for held in first] == ["news"]
    assert claim(limit=5, collector="b", owner="b 1", now=now) == []
    assert claim(limit=5, collector="a", owner="a 1", now=now) == []
    # A restarted collector does not wait for its old lease.
    again = claim(limit=5, collector="a", owner="a 2", now=now)
    assert [held.generation for held in again] == [first[0].generation + 1]


@pytest.mark.slow("1 s")
def test_a_broker_that_is_away_is_waited_for(
    harness: CollectorHarness, double: OctoparseDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    double.total = 450
    broker = harness.open_broker()
    publish = broker.publish
    calls = Counter[str]()

    def failing(messages: object) -> object:
        calls["publish"] += 1
        if calls["publish"] in (2, 3, 5):
            raise BrokerUnavailable("no connection")
        return publish(messages)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(broker, "publish", failing)
    harvest = harness.harvest(harness.collector(broker=broker))
    # Five batches to the dataset and to the queue, and three that failed.
    assert (harvest.state, harvest.published, calls["publish"]) == ("completed", 450, 13)
    assert sorted(harness.numbers()) == list(range(450))
