"""What is done to many seeds, asked of a service that runs, while others work with its seeds."""

from __future__ import annotations

import io
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from apps.runtime.services import close_shared_broker
from apps.seeds.models import Frontier
from apps.seeds.services import (
    change_granularity,
    client_of,
    delete_frontier,
    operation_steps,
    show_segments,
    start_operation,
    work_on_operation,
)
from apps.seeds.states import OperationKind, OperationState
from apps.seeds.stores.base import SegmentCounts
from tests.seeds.daemon.conftest import Service
from yardkit.clock import SystemClock
from yardkit.protocol import Seed, SeedFinish, SeedOutcome

pytestmark = pytest.mark.django_db(transaction=True)
DAY = 86_400_000
# A Monday in UTC.
MONDAY = 1_779_667_200_000


@pytest.fixture
def clock() -> SystemClock:
    """Operations look at the machine's."""
    return SystemClock()


@pytest.fixture(autouse=True)
def shared(settings: Any, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The services of this process ask at the service's broker, in small slices."""
    settings.BROKER_URL = broker_url
    monkeypatch.setattr(operation_steps, "SLICE", 20)
    monkeypatch.setattr(operation_steps, "MOVE_SLICE", 20)
    yield
    close_shared_broker()


def run(operation: Any) -> Any:
    """To its end."""
    while work_on_operation(operation.pk) == OperationState.WAITING:
        pass
    operation.refresh_from_db()
    return operation


def total(frontier: Frontier) -> SegmentCounts:
    """The sums over all segments, each of which balances."""
    sums = SegmentCounts()
    for one in show_segments(frontier):
        assert one.books.balance()
        sums = sums.plus(one.books)
    return sums


@pytest.mark.slow("4 s")
@pytest.mark.covers("S3.2", "S3.3")
def test_granularity_changes_while_somebody_adds(service: Service, frontier: Frontier) -> None:
    names = [f"http://host/{number}" for number in range(60)]
    for day in range(2):
        client_of(frontier).add(Seed(name, active_at=MONDAY + day * DAY + 5) for name in names)
    told: list[str] = []
    end = threading.Event()

    def add() -> None:
        client = client_of(frontier, patience=60)
        number = 0
        while not end.is_set() or number < 5:
            seed = Seed(f"http://late/{number}", active_at=MONDAY + 2 * DAY)
            told.extend(one.code for one in client.add([seed]))
            number += 1
            end.wait(0.05)

    adding = threading.Thread(target=add)
    adding.start()
    try:
        operation = run(change_granularity(frontier, segments="week"))
    finally:
        end.set()
        adding.join(60)
    assert (operation.state, operation.error) == (OperationState.DONE, "")
    assert operation.result["met"] == 60
    found = Counter(one.key for one in service.store.export(frontier.pk, MONDAY))
    assert set(told) == {"new"}
    assert found == Counter([*names, *(f"http://late/{number}" for number in range(len(told)))])
    assert total(frontier) == SegmentCounts(
        added=60 + len(told), duplicates=60, pending=60 + len(told)
    )
    # And the service works by the new rules.
    answer = client_of(frontier).look_up(Seed(names[0], active_at=MONDAY + 5 * DAY))
    assert answer.segment == MONDAY
    assert answer.known is not None


@pytest.mark.slow("3 s")
def test_operations_run_against_the_service(service: Service, frontier: Frontier) -> None:
    client = client_of(frontier, owner="w")
    client.add(Seed(f"http://host/{number}", active_at=MONDAY) for number in range(50))
    leased = client.lease(30)
    client.finish(
        [
            SeedFinish(one.segment, one.key, leased.generation, SeedOutcome.GIVEN_UP)
            for one in leased.seeds
        ]
    )
    done = run(start_operation(frontier, OperationKind.REOPEN_FAILED, {"source": MONDAY}))
    assert (done.state, done.result["reopened"]) == (OperationState.DONE, 30)
    done = run(start_operation(frontier, OperationKind.DROP, {"segment": MONDAY}))
    assert (done.state, done.done) == (OperationState.DONE, 50)
    done = run(start_operation(frontier, OperationKind.WIPE))
    assert (done.state, done.done) == (OperationState.DONE, 30)
    assert show_segments(frontier) == []
    client.add([Seed("a")])
    number = frontier.pk
    delete_frontier(actor=None, frontier=frontier, wipe=True)
    assert service.store.segments(number) == []


@pytest.mark.slow("1 s")
def test_the_command_works_against_the_service(
    service: Service, frontier: Frontier, tmp_path: Path
) -> None:
    lines = tmp_path / "urls.txt"
    lines.write_text("".join(f"http://host/{number}\n" for number in range(3000)))
    file = tmp_path / "seeds.jsonl.gz"
    out = io.StringIO()
    call_command("seeds", "load", "news", str(lines), stdout=out, stderr=io.StringIO())
    call_command("seeds", "export", "news", str(file), stdout=out, stderr=io.StringIO())
    call_command("seeds", "wipe", "news", "--yes", stdout=out, stderr=io.StringIO())
    call_command("seeds", "import", "news", str(file), stdout=out, stderr=io.StringIO())
    call_command("seeds", "segments", "news", "--json", stdout=out, stderr=io.StringIO())
    told = out.getvalue().splitlines()
    assert told[0].endswith("3,000 new, 0 known already, 0 refused")
    assert told[1].endswith("is empty: 1 segments and 3,000 seeds are gone")
    assert told[2].endswith("3,000 new, 0 known already, 0 refused")
    (segment,) = json.loads(told[3])
    assert (segment["added"], segment["pending"], segment["balances"]) == (3000, 3000, True)
