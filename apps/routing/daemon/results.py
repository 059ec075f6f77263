"""Apply the results of a batch to the items that they refer to."""

from __future__ import annotations

from collections.abc import Sequence

from apps.routing.daemon.delivery import LEASE_SECONDS, DecidedItem, Sender
from apps.routing.daemon.rule_sets import RunningRuleSet
from apps.routing.engine.items import Item
from apps.routing.engine.outcomes import Action, Decision, Reason
from apps.routing.engine.steps import Step, StepKind
from apps.routing.queries import LedgerEntry, known_item
from apps.routing.services import ItemMove, ItemNote, MovedItems


class ResultMoves:
    """Moves and notes for the results of a batch.

    Each item is moved by its first result only; further results of the same item are ``pending``
    until that move is committed.

    Args:
        results: (task_uuid, item) of each result.
        known: entries of the items, by task_uuid.
    """

    def __init__(
        self,
        running: RunningRuleSet,
        sender: Sender,
        results: Sequence[tuple[str, Item]],
        known: dict[str, LedgerEntry],
    ) -> None:
        self.moves: list[ItemMove] = []
        # Steps for results that change no state.
        self.notes: list[ItemNote] = []
        # Items to send again, by id.
        self._again: dict[int, DecidedItem] = {}
        # First result of each item, by id; and all further ones.
        self._second: list[tuple[str, Item]] = []
        self._first: dict[int, tuple[str, Item]] = {}
        for name, item in results:
            entry = known.get(name)
            if entry is None:
                # Deleted by retention a moment ago, so it had ended long before.
                continue
            if entry.id in self._first:
                self._second.append((name, item))
                continue
            decision = running.life.decide(item, known_item(entry))
            if decision.action is Action.IGNORE:
                self.notes.append(ItemNote(entry, _note(sender, entry, decision)))
                continue
            self._first[entry.id] = name, item
            result_step = sender.step(StepKind.RESULT, entry.outbound, decision.status)
            decided_item = DecidedItem(
                entry, decision, (result_step, *sender.routing_step(decision))
            )
            if decision.action is Action.DISPATCH:
                self._again[entry.id] = decided_item
                self.moves.append(sender.move_to_retrying(decided_item, LEASE_SECONDS))
            else:
                self.moves.append(sender.move_unsent(decided_item))

    def to_send_again(self, moved: MovedItems) -> list[DecidedItem]:
        """Return the items to send again, among those whose moves were committed."""
        return [
            DecidedItem(moved.entries[pk], decided_item.decision, (), decided_item.decision.item)
            for pk, decided_item in self._again.items()
            if pk in moved.entries
        ]

    def pending(self, moved: MovedItems) -> list[tuple[str, Item]]:
        """Return the results to decide about again: lost moves, and second results of an item."""
        return [self._first[move.entry.id] for move in moved.lost] + self._second


def _note(sender: Sender, entry: LedgerEntry, decision: Decision) -> Step:
    if decision.reason is Reason.LATE_RESULT:
        return sender.step(StepKind.LATE_RESULT, entry.outbound, decision.status)
    detail = f"{decision.status} {decision.reason.value}"
    return sender.step(StepKind.RESULT, entry.outbound, detail)
