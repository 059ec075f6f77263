"""What results make of the items that they are about."""

from __future__ import annotations

from collections.abc import Sequence

from apps.routing.daemon.sending import LEASE_SECONDS, Piece, Sender
from apps.routing.daemon.yard import Running
from apps.routing.engine.items import Item
from apps.routing.engine.outcomes import Action, Decision, Reason
from apps.routing.engine.steps import Step, StepKind
from apps.routing.queries import Entry, known_of
from apps.routing.services import Move, Moved, Note


class Results:
    """What results make of their items: each item is moved once, by the first of its results."""

    def __init__(
        self,
        running: Running,
        sender: Sender,
        results: Sequence[tuple[str, Item]],
        known: dict[str, Entry],
    ) -> None:
        self.moves: list[Move] = []
        # Of no consequence, but noted.
        self.notes: list[Note] = []
        # To be sent again, by the id of their entries.
        self._again: dict[int, Piece] = {}
        self._later: list[tuple[str, Item]] = []
        self._of: dict[int, tuple[str, Item]] = {}
        for name, item in results:
            entry = known.get(name)
            if entry is None:
                # It was forgotten a moment ago, so it had ended long before.
                continue
            if entry.id in self._of:
                self._later.append((name, item))
                continue
            decision = running.life.decide(item, known_of(entry))
            if decision.action is Action.IGNORE:
                self.notes.append(Note(entry, _note(sender, entry, decision)))
                continue
            self._of[entry.id] = name, item
            told = sender.told(StepKind.RESULT, entry.outbound, decision.status)
            piece = Piece(entry, decision, (told, *sender.way(decision)))
            if decision.action is Action.DISPATCH:
                self._again[entry.id] = piece
                self.moves.append(sender.retrying(piece, LEASE_SECONDS))
            else:
                self.moves.append(sender.settled(piece))

    def onward(self, moved: Moved) -> list[Piece]:
        """Those that may be sent again now."""
        return [
            Piece(moved.entries[pk], piece.decision, (), piece.decision.item)
            for pk, piece in self._again.items()
            if pk in moved.entries
        ]

    def pending(self, moved: Moved) -> list[tuple[str, Item]]:
        """Those that have to be decided about again."""
        return [self._of[move.entry.id] for move in moved.beaten] + self._later


def _note(sender: Sender, entry: Entry, decision: Decision) -> Step:
    if decision.reason is Reason.LATE_RESULT:
        return sender.told(StepKind.LATE_RESULT, entry.outbound, decision.status)
    detail = f"{decision.status} {decision.reason.value}"
    return sender.told(StepKind.RESULT, entry.outbound, detail)
