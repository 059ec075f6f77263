"""Executes the seed calls of spiders and rules on the store, without knowing the broker."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from apps.seeds.daemon.frontiers import ActiveFrontier, Frontiers
from apps.seeds.daemon.refusals import SeedCallRefused, outcome_unknown
from apps.seeds.engine.errors import BadCall, BadSeed
from apps.seeds.engine.seeds import FINAL, ResolvedSeed
from apps.seeds.stores.base import SeedStore, check_batch, check_owner
from apps.seeds.stores.explanations import explain
from yardkit import failpoints
from yardkit.broker import Outgoing
from yardkit.broker.replies import REPLY_TTL_SECONDS
from yardkit.protocol import (
    ExtendLease,
    FinishSeeds,
    GiveBackLease,
    GrabSeed,
    LeaseExtended,
    LeaseGivenBack,
    LeaseSeeds,
    LookUpSeed,
    Seed,
    SeedAnswer,
    SeedFinish,
    SeedFinished,
    SeedGrabbed,
    SeedLookedUp,
    SeedsFinished,
    SeedsLeased,
    SeedsRefused,
    encode,
)
from yardkit.protocol.seeds import GRAB, MAX_RESULT_BYTES, MAX_WAIT_SECONDS

# Limit of a reply; a single larger seed is sent alone.
MAX_REPLY_BYTES: Final = 16 * 1024 * 1024
MAX_CALL_NAME: Final = 100
_NEW: Final = SeedAnswer("new")
# Only reply queues of callers match, so a seed cannot be used to write to other queues.
# Names of processes may contain spaces.
_ASKER: Final = re.compile(r"(reply\.[^\x00-\x1f\x7f]{1,200}) ([0-9a-f]{32})")


class SeedCallHandler:
    """Handler of seed calls on a store. Each method raises ``SeedError`` for a refused call.

    ``store`` is replaced when it is opened again after a failure.
    """

    def __init__(self, store: SeedStore, frontiers: Frontiers) -> None:
        self.store = store
        self.frontiers = frontiers

    def add(self, frontier: int, token: str, seeds: Sequence[Seed], now: int) -> list[SeedAnswer]:
        """Add seeds; return one answer for each, in order."""
        active = self.frontiers.of(frontier, token)
        active.check_open()
        check_batch(seeds)
        return self._add(active, seeds, now)

    def _add(self, active: ActiveFrontier, seeds: Sequence[Seed], now: int) -> list[SeedAnswer]:
        resolved = active.rules.resolve_all(seeds)
        taken = [seed for seed in resolved if isinstance(seed, ResolvedSeed)]
        added = iter(self.store.add(active.frontier, taken, now=now) if taken else ())
        return [
            _refused(seed)
            if isinstance(seed, BadSeed)
            else _NEW
            if (answer := next(added)).new
            else SeedAnswer("duplicate", answer.since, answer.state)
            for seed in resolved
        ]

    def lease(
        self,
        call: LeaseSeeds,
        name: str,
        *,
        redelivered: bool = False,
        now: int,
        check: Callable[[], None],
    ) -> SeedsLeased:
        """Lease due seeds. ``name``: name of this call; a redelivered call may already have a
        lease.

        ``check``: see ``SeedStore.lease``.
        """
        active = self.frontiers.of(call.frontier, call.token)
        check_owner(call.owner)
        if not 0 <= call.wait_seconds <= MAX_WAIT_SECONDS:
            raise BadCall(f"wait_seconds {call.wait_seconds}: 0 to {MAX_WAIT_SECONDS} can be")
        if len(name) > MAX_CALL_NAME:
            raise BadCall(f"the name of a call has at most {MAX_CALL_NAME} characters")
        if call.again or redelivered:
            earlier = self.store.recall(call.frontier, owner=call.owner, call=name)
            if earlier is not None:
                return SeedsLeased(
                    generation=earlier.generation, deadline=earlier.deadline, seeds=earlier.seeds
                )
        if redelivered:
            # An empty answer may have been sent before: then no caller waits for seeds leased now.
            raise outcome_unknown()
        active.check_open()
        if active.is_paused:
            return SeedsLeased(generation=0, deadline=now, seeds=[])
        seconds = call.seconds or float(active.lease_seconds)
        failpoints.hit("seeds.daemon.before_lease")
        return self._lease(call, name, seconds, now, check)

    def _lease(
        self, call: LeaseSeeds, name: str, seconds: float, now: int, check: Callable[[], None]
    ) -> SeedsLeased:
        store, owner, limit = self.store, call.owner, call.limit
        while True:
            lease = store.lease(
                call.frontier,
                owner=owner,
                limit=limit,
                seconds=seconds,
                now=now,
                call=name,
                again=call.again,
                check=check,
            )
            size = sum(_size(seed.data, seed.key, seed.ext) for seed in lease.seeds)
            if size <= MAX_REPLY_BYTES or len(lease.seeds) == 1:
                break
            # Larger than a broker accepts: lease fewer seeds.
            store.give_back(call.frontier, lease.generation, owner=owner, now=now)
            limit = max(1, len(lease.seeds) * MAX_REPLY_BYTES // (2 * size))
        return SeedsLeased(
            generation=lease.generation,
            deadline=lease.deadline,
            seeds=lease.seeds,
            next_due=None if lease.seeds else store.next_due(call.frontier, now=now),
            pending=store.pending(call.frontier),
        )

    def finish(self, call: FinishSeeds, now: int) -> tuple[SeedsFinished, list[Outgoing]]:
        """Finish seeds; return the answer and the results for waiting grab calls."""
        active = self.frontiers.of(call.frontier, call.token)
        check_batch(call.found)
        if call.found:
            active.check_open()
        answers = self.store.finish(call.frontier, call.finishes, owner=call.owner, now=now)
        failpoints.hit("seeds.daemon.before_found")
        added = self._add(active, call.found, now) if call.found else []
        grabbed = [
            message
            for pair, answer in zip(call.finishes, answers, strict=True)
            if pair.grab and (message := _grabbed(pair, answer))
        ]
        return SeedsFinished(answers=answers, added=added), grabbed

    def extend(self, call: ExtendLease, now: int) -> LeaseExtended:
        """Extend a lease; return its new deadline."""
        active = self.frontiers.of(call.frontier, call.token)
        seconds = call.seconds or float(active.lease_seconds)
        deadline = self.store.extend(
            call.frontier, call.generation, owner=call.owner, seconds=seconds, now=now
        )
        return LeaseExtended(deadline=deadline)

    def give_back(self, call: GiveBackLease, now: int) -> LeaseGivenBack:
        """Return leased seeds to pending; return their number."""
        self.frontiers.of(call.frontier, call.token)
        count = self.store.give_back(call.frontier, call.generation, owner=call.owner, now=now)
        return LeaseGivenBack(count=count)

    def look_up(self, call: LookUpSeed) -> SeedLookedUp:
        """Return whether a seed would be new."""
        active = self.frontiers.of(call.frontier, call.token)
        active.check_usable()
        explanation = explain(self.store, call.frontier, active.rules, call.seed)
        return SeedLookedUp(
            segment=explanation.segment,
            key=explanation.key,
            due=explanation.due,
            known=explanation.known,
        )

    def grab(self, call: GrabSeed, asker: str, now: int) -> None:
        """Add an urgent seed. Its result is sent to ``asker`` ("queue correlation") when it is
        finished.
        """
        active = self.frontiers.of(call.frontier, call.token)
        active.check_open()
        if not _ASKER.fullmatch(asker):
            raise BadCall("a grab is asked by a request that waits for its reply")
        ext = {**(call.seed.ext or {}), GRAB: asker}
        seed = active.rules.resolve(msgspec.structs.replace(call.seed, urgent=True, ext=ext))
        frontier, store = call.frontier, self.store
        if store.add(frontier, [seed], now=now)[0].new:
            return
        known = store.lookup(frontier, seed.segment, seed.key)
        if known is not None:
            if (known.ext or {}).get(GRAB) == asker:
                # The same call was delivered before.
                return
            if known.state not in FINAL:
                raise SeedCallRefused(
                    "seed_in_use", "the seed waits to be crawled, or is being crawled"
                )
            if not call.again:
                raise SeedCallRefused(
                    "seed_known", f"the seed has ended: {known.state.name.lower()}"
                )
            store.forget(frontier, seed.segment, seed.key, now=now)
        failpoints.hit("seeds.daemon.forgotten")
        store.add(frontier, [seed], now=now)


def _refused(seed: BadSeed) -> SeedAnswer:
    # Text from a plug-in may contain characters that a message cannot.
    return SeedAnswer(seed.code, text=str(seed).encode("utf-8", "replace").decode())


def _size(data: str, key: str, ext: dict[str, Any] | None) -> int:
    # A character has at most four bytes of UTF-8, and usually one.
    size = len(data) + len(key)
    if not data.isascii():
        size *= 4
    return size + (len(msgspec.msgpack.encode(ext)) if ext else 0)


def _grabbed(finish: SeedFinish, answer: SeedFinished) -> Outgoing | None:
    """Return the result for a waiting grab call; None while the seed has not ended."""
    asker = _ASKER.fullmatch(finish.grab)
    if asker is None or answer.state not in FINAL or answer.code not in ("finished", "repeated"):
        return None
    assert answer.state is not None  # noqa: S101 - None is not final
    body = encode(
        SeedGrabbed(
            segment=finish.segment, key=finish.key, state=answer.state, result=finish.result
        )
    )
    if len(body) > MAX_RESULT_BYTES:
        body = encode(
            SeedsRefused(
                code="result_too_large",
                text=f"the seed has ended ({answer.state.name.lower()}), but its result has "
                f"{len(body)} bytes; {MAX_RESULT_BYTES} are allowed",
            )
        )
    return Outgoing(
        body,
        key=asker[1],
        correlation_id=asker[2],
        ttl_seconds=REPLY_TTL_SECONDS,
        persistent=False,
        mandatory=False,
    )
