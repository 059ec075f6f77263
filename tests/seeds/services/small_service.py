"""A seed service as small as can be: real messages, a real broker and store, one thread."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from apps.runtime.services import shared_broker
from apps.seeds.engine.errors import BadSeed, SeedError
from apps.seeds.engine.rules import FrontierRules
from apps.seeds.models import Frontier
from apps.seeds.stores.base import SeedStore
from apps.seeds.stores.explanations import explain
from apps.seeds.stores.operations import decode_operation, now_ms, perform
from yardkit import topology
from yardkit.broker import Delivery
from yardkit.protocol import (
    AddSeeds,
    FinishSeeds,
    GiveBackLease,
    LeaseGivenBack,
    LeaseSeeds,
    LookUpSeed,
    ManageSeeds,
    SeedAnswer,
    SeedLookedUp,
    SeedsAdded,
    SeedsFinished,
    SeedsLeased,
    SeedsManaged,
    SeedsRefused,
    decode,
    encode,
)


class Desk:
    """Answers calls about the frontiers it was told of, until it is closed."""

    def __init__(self, store: SeedStore) -> None:
        self.store = store
        self.rules: dict[int, FrontierRules] = {}
        self.frozen: set[int] = set()
        self.calls: list[str] = []
        self.away = threading.Event()
        self._end = threading.Event()
        self._broker = shared_broker()
        self._broker.declare(topology.SEEDS)
        self._subscription = self._broker.subscribe(topology.SEEDS.name)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def follow(self, frontier: Frontier) -> None:
        """As the daemon does by itself: from now on its rules and whether it is frozen."""
        frontier.refresh_from_db()
        self.rules[frontier.pk] = frontier.rules()
        (self.frozen.add if frontier.is_frozen else self.frozen.discard)(frontier.pk)

    def close(self) -> None:
        """Answer no more."""
        self._end.set()
        self._thread.join(10)
        self._subscription.close()

    def _work(self) -> None:
        while not self._end.is_set():
            for one in self._subscription.take(10, 0.05):
                if not self.away.is_set():
                    self._broker.reply(one, encode(self._answer(one)))
                self._subscription.ack([one])

    def _answer(self, delivery: Delivery) -> Any:
        call: Any = decode(delivery.body)
        try:
            return self._do(call)
        except SeedError as error:
            return SeedsRefused(code=error.code, text=str(error))

    def _do(self, call: Any) -> Any:
        frontier, now = call.frontier, now_ms()
        rules = self.rules.get(frontier, FrontierRules())
        frozen = isinstance(call, AddSeeds | LeaseSeeds) and frontier in self.frozen
        if frozen:
            return SeedsRefused(code="frozen", text="is moved", retry_seconds=0.1)
        match call:
            case AddSeeds():
                return SeedsAdded(answers=[self._add(frontier, rules, one) for one in call.seeds])
            case LeaseSeeds():
                lease = self.store.lease(
                    frontier, owner=call.owner, limit=call.limit, seconds=60, now=now
                )
                return SeedsLeased(
                    generation=lease.generation, deadline=lease.deadline, seeds=lease.seeds
                )
            case FinishSeeds():
                answers = self.store.finish(frontier, call.finishes, owner=call.owner, now=now)
                return SeedsFinished(answers=answers)
            case GiveBackLease():
                count = self.store.give_back(frontier, call.generation, owner=call.owner, now=now)
                return LeaseGivenBack(count=count)
            case LookUpSeed():
                found = explain(self.store, frontier, rules, call.seed)
                return SeedLookedUp(
                    segment=found.segment, key=found.key, due=found.due, known=found.known
                )
            case ManageSeeds():
                operation = decode_operation(call.operation)
                self.calls.append(type(operation).__name__)
                result = perform(self.store, frontier, rules, operation, now)
                return SeedsManaged(result=msgspec.Raw(msgspec.msgpack.encode(result)))
        raise AssertionError(call)

    def _add(self, frontier: int, rules: FrontierRules, seed: Any) -> SeedAnswer:
        try:
            resolved = rules.resolve(seed)
        except BadSeed as refusal:
            return SeedAnswer(refusal.code, text=str(refusal))
        (added,) = self.store.add(frontier, [resolved], now=now_ms())
        return SeedAnswer("new" if added.new else "duplicate", added.since, added.state)
