"""Concurrent writes of several routers; run by test_ledger_on_postgres.py.

Not for SQLite, which has one writer at a time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connection

from apps.projects.models import Project
from apps.routing.queries import LedgerEntry, item_accounting, reconcile_items
from apps.routing.services import (
    claim_due,
    claim_parked,
    fold_counter_changes,
    merge_pages,
    move_items,
    receive_items,
)
from apps.routing.states import ItemState
from tests.access.factories import make_project
from tests.routing.factories import NOW, arrive, later, make_arrival, moved, to

pytestmark = pytest.mark.django_db(transaction=True)

S = ItemState


def together(*works: Callable[[], Any]) -> list[Any]:
    """Call functions concurrently, each with its own connection; return their results."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = [RuntimeError("it did not end")] * len(works)

    def run(number: int) -> None:
        try:
            barrier.wait(30)
            results[number] = works[number]()
        except Exception as error:  # noqa: BLE001 - told below
            results[number] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not [result for result in results if isinstance(result, Exception)], results
    return results


@pytest.fixture
def project() -> Project:
    return make_project()


def test_the_same_messages_at_two_routers_are_one_item_each(project: Project) -> None:
    for _ in range(5):
        arrivals = [make_arrival(project) for _ in range(100)]

        def receive(batch: list[Any]) -> list[Any]:
            return receive_items(arrivals=batch, now=NOW, lease_seconds=60)

        # In opposite order, so that each waits for the rows that the other has written.
        one, other = together(*(partial(receive, batch) for batch in (arrivals, arrivals[::-1])))
        assert {r.entry.id for r in one} == {r.entry.id for r in other}
        assert sum(r.new for r in (*one, *other)) == 100
        # Of an item that both got, only the later one is the holder.
        first = move_items(moves=[to(r.entry, S.DISPATCHED) for r in one if r.held], now=NOW)
        then = move_items(moves=[to(r.entry, S.DISPATCHED) for r in other if r.held], now=NOW)
        assert len(first.entries) + len(then.entries) == 100
    assert item_accounting(project.pk).received == 500
    assert reconcile_items(project.pk).holds


def test_no_two_claim_the_same(project: Project) -> None:
    entries = arrive(project, 400)
    for entry in entries[200:]:
        moved(entry, S.PARKED, outbound="full", due_at=later(9999))

    def claim() -> list[LedgerEntry]:
        got: list[LedgerEntry] = []
        while batch := claim_due(now=later(100), lease_seconds=60, limit=7):
            got += batch
        ask = {"project": project.pk, "outbound": "full"}
        while batch := claim_parked(**ask, now=later(100), lease_seconds=60, limit=7):
            got += batch
        return got

    got = Counter(entry.id for batch in together(*[claim] * 4) for entry in batch)
    assert got == Counter(entry.id for entry in entries)


def test_of_two_moves_of_one_item_one_is_made(project: Project) -> None:
    for _ in range(5):
        entries = arrive(project, 100)

        def settle(batch: list[LedgerEntry], state: ItemState) -> Any:
            return move_items(moves=[to(entry, state) for entry in batch], now=NOW)

        one, other = together(
            partial(settle, entries, S.SUCCEEDED), partial(settle, entries[::-1], S.FAILED)
        )
        assert len(one.entries) + len(other.entries) == 100
        assert len(one.lost) + len(other.lost) == 100
        assert not one.entries.keys() & other.entries.keys()
    assert reconcile_items(project.pk).holds


def test_the_books_balance_at_every_moment(project: Project) -> None:
    done = threading.Event()

    def route() -> None:
        for _ in range(8):
            batch = arrive(project, 20)
            sent = move_items(moves=[to(entry, S.DISPATCHED) for entry in batch], now=NOW)
            move_items(moves=[to(e, S.SUCCEEDED) for e in sent.entries.values()], now=NOW)

    def routes() -> None:
        together(route, route)
        done.set()

    def look() -> int:
        looked = 0
        while not done.is_set():
            fold_counter_changes()
            merge_pages()
            audit = reconcile_items(project.pk)
            assert audit.holds, audit
            looked += 1
        return looked

    _, looked = together(routes, look)
    assert looked > 0
    assert item_accounting(project.pk).final["succeeded"] == 320
