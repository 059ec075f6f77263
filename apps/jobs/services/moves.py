"""State changes of runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from apps.jobs.events import run_ended
from apps.jobs.models import Run, RunMove
from apps.jobs.services.notification import notify
from apps.jobs.states import FINAL, MOVES, RunState
from apps.seeds.services.resources import give_back_of_run

__all__ = ["move", "notify"]


def move(
    run: Run, to: RunState, *, now: datetime, actor: str, reason: str = "", **fields: Any
) -> bool:
    """Move a run to another state by a compare-and-set update, in the caller's transaction.

    Returns False if the current state does not allow the move.
    """
    if to in FINAL:
        fields["ended_at"] = max(now, run.created_at)
    if reason:
        fields["reason"] = reason
    from_state = _update(run, to, fields)
    if from_state is None:
        return False
    run.state = to
    for name, value in fields.items():
        setattr(run, name, value)
    RunMove.objects.create(
        run=run, from_state=from_state, to_state=to, at=now, actor=actor, reason=reason
    )
    notify(run)
    if to in FINAL:
        # A killed run cannot return its leased resources itself.
        give_back_of_run(run=run.pk, now=now)
        run_ended.send(sender=Run, run=run, now=now)
    return True


def _update(run: Run, to: RunState, fields: dict[str, Any]) -> str | None:
    """Do the compare-and-set update; return the previous state, None if the move is not allowed."""
    for _attempt in range(3):
        from_state = run.state
        if from_state in MOVES[to] and Run.objects.filter(pk=run.pk, state=from_state).update(
            state=to, **fields
        ):
            return from_state
        # Another process changed the state; the move may be allowed from the new state too.
        run.refresh_from_db(fields=["state"])
        if run.state not in MOVES[to]:
            break
    return None
