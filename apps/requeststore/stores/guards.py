"""Guards of updates, equal for all adapters."""

from __future__ import annotations

import msgspec

from apps.requeststore.engine.flags import EXPIRED, MOVING, NEW
from apps.requeststore.stores.base import EndCode, Finish, GiveBack, QueueEntry, TakeCode


class MissingShard(Exception):
    """The table of the shard, or its file, does not exist."""


class LeaseState(msgspec.Struct, frozen=True):
    """Fields that the guards compare."""

    biz: str
    ts: int
    flag: int
    owner: str
    deadline: int
    tries: int


def why_not_taken(entry: QueueEntry, state: LeaseState | None, *, cutoff: int) -> TakeCode:
    """Return why the request of this entry could not be leased."""
    if state is None or state.biz != entry.biz:
        return TakeCode.UNKNOWN
    if state.ts != entry.ts:
        return TakeCode.WRONG_TS
    if state.flag == EXPIRED:
        return TakeCode.EXPIRED
    if state.flag > NEW:
        return TakeCode.DONE
    if state.flag != MOVING and state.ts <= cutoff:
        return TakeCode.EXPIRED
    return TakeCode.BUSY


def why_not_ended(end: Finish | GiveBack, state: LeaseState | None, *, owner: str) -> EndCode:
    """Return why ``owner`` could not end a request: its lease has ended, or it did so before."""
    if state is None:
        return EndCode.UNKNOWN
    flag = end.flag if isinstance(end, Finish) else NEW
    same = state.flag == flag and state.owner == owner and state.tries == end.tries
    return EndCode.REPEATED if same else EndCode.LATE
