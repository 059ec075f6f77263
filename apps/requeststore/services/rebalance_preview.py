"""Preview of a re-balance: a dry run that changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from apps.requeststore.engine.biz import Epoch
from apps.requeststore.engine.placement import ShardPlace
from apps.requeststore.models import Rebalance
from apps.requeststore.services.rebalance_plan import RebalancePlan, sources_of
from apps.requeststore.services.store import BoundBiz, RequestStore
from apps.requeststore.states import RebalanceState
from apps.requeststore.stores.shard_move import look
from apps.runtime.services import database_now

# Sample size over all shards; beyond it the result is extrapolated.
MOST_LOOKED_AT: Final = 20_000
LEAST_A_SHARD: Final = 200
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class RebalanceSource:
    """Shard that requests would leave. ``would_move`` is an estimate unless ``is_exact``."""

    place: ShardPlace
    requests: int
    would_move: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class RebalancePreview:
    """Whole preview. ``seconds``: None until a re-balance has been measured."""

    epoch: Epoch
    before: Epoch | None
    begins_later: bool
    lines: list[RebalanceSource] = field(default_factory=list)
    seconds: float | None = None

    @property
    def requests(self) -> int:
        """Return the number of requests in all source shards."""
        return sum(line.requests for line in self.lines)

    @property
    def would_move(self) -> int:
        """Return how many of them would move."""
        return sum(line.would_move for line in self.lines)

    @property
    def is_exact(self) -> bool:
        """Return whether every request was examined."""
        return all(line.is_exact for line in self.lines)


def preview(bound: BoundBiz, request_store: RequestStore) -> RebalancePreview:
    """Examine a sample of each shard. Raises ``RequestStoreUnavailable``, ``UnknownNode``."""
    epochs = bound.settings.epochs
    now = int(database_now().timestamp() * 1000)
    sources = sources_of(bound)
    sample_size = max(LEAST_A_SHARD, MOST_LOOKED_AT // max(len(sources), 1))
    lines = [_line(bound, request_store, place, sample_size, now) for place in sources]
    moved = sum(line.would_move for line in lines)
    rate = moved_a_second(bound.project_id, bound.name)
    return RebalancePreview(
        epoch=epochs[-1],
        before=epochs[-2] if len(epochs) > 1 else None,
        begins_later=epochs[-1].since > now,
        lines=lines,
        seconds=None if rate is None else moved / rate,
    )


def moved_a_second(project_id: int, biz: str) -> float | None:
    """Return the rate of the last finished re-balance, preferably of this biz."""
    rows = Rebalance.objects.filter(state=RebalanceState.DONE, moved__gte=100)
    row = rows.filter(project_id=project_id, biz=biz).first() or rows.first()
    if row is None or row.ended_at is None:
        return None
    return row.moved / max((row.ended_at - row.created_at).total_seconds(), 0.1)


def _line(
    bound: BoundBiz, request_store: RequestStore, place: ShardPlace, most: int, now: int
) -> RebalanceSource:
    target = RebalancePlan.of(bound.settings).target(bound.project_id, bound.name)
    cutoff = bound.settings.cutoff(now)
    requests = request_store.node(place.node).size(place.shard).requests
    looked_at = movable = 0
    after: tuple[int, int] | None = None
    while looked_at < most:
        sample = look(
            request_store.node,
            place,
            target,
            biz=bound.name,
            after=after,
            limit=min(_PAGE, most - looked_at),
            cutoff=cutoff,
        )
        going = len(sample.movable) + len(sample.taken)
        looked_at += going + sample.in_place + sample.expired
        movable += going
        after = sample.after
        if after is None:
            return RebalanceSource(place, looked_at, movable, is_exact=True)
    share = movable / looked_at if looked_at else 0.0
    return RebalanceSource(place, requests, round(requests * share), is_exact=False)
