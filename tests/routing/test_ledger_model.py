"""Model-based test of the ledger's services in random order."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from apps.routing.errors import InvalidItemMove, RoutingError
from apps.routing.models import RoutedItem
from apps.routing.queries import LedgerEntry, reconcile_items
from apps.routing.services import (
    ItemMove,
    cancel_item,
    claim_due,
    claim_parked,
    delete_old_items,
    fold_counter_changes,
    move_items,
    receive_items,
    resubmit_item,
    sweep_ledger,
)
from apps.routing.states import FINAL, ItemState, may_move
from tests.access.factories import make_project
from tests.routing.factories import NOW, make_arrival

S = ItemState


class Ledger(RuleBasedStateMachine):
    """Model of the ledger: the holder of each item, and its final state."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.project = make_project()
        self.now: datetime = NOW
        self.arrived = 0
        # By id: the newest generation handed out, and the final state of ended items.
        self.newest: dict[int, LedgerEntry] = {}
        self.ended: dict[int, str] = {}
        self.by_message: dict[int, int] = {}

    def give(self, entry: LedgerEntry) -> LedgerEntry:
        self.newest[entry.id] = entry
        return entry

    @rule(target=held, message=st.integers(0, 12))
    def arrive(self, message: int) -> LedgerEntry:
        arrival = make_arrival(self.project, identity=str(message))
        (receipt,) = receive_items(arrivals=[arrival], now=self.now, lease_seconds=60)
        known = self.by_message.get(message)
        assert receipt.new == (known is None)
        if known is None:
            self.arrived += 1
            self.by_message[message] = receipt.entry.id
        else:
            assert receipt.entry.id == known
            assert receipt.held == (self.newest[known].state == S.RECEIVED)
        return self.give(receipt.entry)

    @rule(target=held, entry=held, state=st.sampled_from(S), outbound=st.sampled_from("ab"))
    def move(self, entry: LedgerEntry, state: ItemState, outbound: str) -> LedgerEntry:
        due_at = None if state in FINAL else self.now + timedelta(seconds=30)
        move = ItemMove(entry=entry, to=state, due_at=due_at, outbound=outbound)
        try:
            result = move_items(moves=[move], now=self.now)
        except InvalidItemMove:
            assert not may_move(entry.state, state)
            return entry
        newest = self.newest.get(entry.id)
        assert (entry.id in result.entries) == (newest == entry)
        assert bool(result.lost) == (newest != entry)
        if result.lost:
            return entry
        assert entry.id not in self.ended
        if state in FINAL:
            self.ended[entry.id] = state
        return self.give(result.entries[entry.id])

    @rule(target=held, limit=st.integers(1, 3), outbound=st.sampled_from(["", "a", "b"]))
    def claim(self, limit: int, outbound: str) -> Any:
        ask: dict[str, Any] = {"now": self.now, "lease_seconds": 60, "limit": limit}
        if outbound:
            got = claim_parked(project=self.project.pk, outbound=outbound, **ask)
        else:
            got = claim_due(projects=[self.project.pk], **ask)
        for entry in got:
            before = self.newest[entry.id]
            assert entry.generation == before.generation + 1
            assert before.due_at is not None
            assert before.due_at <= self.now or (before.state == S.PARKED and not before.attempts)
            self.give(entry)
        return got[0] if got else next(iter(self.newest.values()), None) or self.arrive(0)

    @rule(entry=held)
    def cancel(self, entry: LedgerEntry) -> None:
        try:
            after = cancel_item(item=RoutedItem(pk=entry.id), actor=None, now=self.now)
        except RoutingError:
            assert entry.id in self.ended
        else:
            self.ended[entry.id] = S.CANCELLED
            self.give(after)

    @rule(target=held, entry=held)
    def resubmit(self, entry: LedgerEntry) -> LedgerEntry:
        row = RoutedItem(pk=entry.id)
        try:
            new = resubmit_item(item=row, actor=None, now=self.now)
        except RoutingError:
            return entry
        assert self.ended[entry.id] != S.SUCCEEDED
        self.arrived += 1
        return self.give(new)

    @rule(seconds=st.sampled_from([1, 31, 61]))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def sweep(self) -> None:
        fold_counter_changes()
        sweep_ledger(now=self.now, days=1)

    @rule()
    def forget(self) -> None:
        delete_old_items(now=self.now + timedelta(days=2), days=1)
        kept = set(RoutedItem.objects.values_list("pk", flat=True))
        assert kept == {pk for pk in self.newest if pk not in self.ended}
        self.by_message = {m: pk for m, pk in self.by_message.items() if pk in kept}
        self.newest = {pk: entry for pk, entry in self.newest.items() if pk in kept}

    @invariant()
    def books_balance(self) -> None:
        audit = reconcile_items(self.project.pk)
        assert audit.holds
        assert audit.books.received == self.arrived
        assert sum(audit.books.final.values()) == len(self.ended)

    @invariant()
    def ends_are_final(self) -> None:
        states = dict(RoutedItem.objects.values_list("pk", "state"))
        assert all(states.get(pk, state) == state for pk, state in self.ended.items())


@pytest.mark.slow("2 s")
@pytest.mark.django_db
def test_any_order_of_calls() -> None:
    class Alone(Ledger):
        """Run each example in a transaction that is rolled back, so that it starts empty."""

        def __init__(self) -> None:
            self.atomic = transaction.atomic()
            self.atomic.__enter__()
            super().__init__()

        def teardown(self) -> None:
            transaction.set_rollback(True)
            self.atomic.__exit__(None, None, None)

    run_state_machine_as_test(
        Alone,
        settings=settings(
            max_examples=20,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
