"""Request store: unreachable or slow nodes, shards, queues, and late bizzes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.events import ConditionSource, Occurrence, truncated_to
from apps.alerts.sources.pages import list_page
from apps.requeststore.engine.forecast import Lateness, Outlook
from apps.requeststore.models import QueueReport, ShardReport
from apps.requeststore.queries.health import NodeState, nodes
from apps.requeststore.queries.outlook import standings

REASON: Final = 200
PAGE: Final = list_page("requeststore/queuereport")
# Shards of one biz usually have the same problem; a page lists them all.
MOST: Final = 5_000


class NodeProblem:
    """Storage nodes, or the queue server, in one of the given states."""

    advice: object = _("Check the node: its database, free disk space and connections.")
    facts: tuple[str, ...] = ("node", "state", "reason")

    def __init__(
        self, name: str, title: object, sentence: object, states: frozenset[NodeState]
    ) -> None:
        self.name = name
        self.title = title
        self.sentence = sentence
        self._states = states

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per node."""
        for line in nodes(at):
            if line.state not in self._states:
                continue
            reason = line.row.problem
            if line.state is NodeState.SLOW:
                seconds, text = line.slow[0]
                reason = f"{seconds:.1f} s: {text}"
            yield Occurrence(
                id=f"node:{line.row.name}",
                project=None,
                key=f"node:{line.row.name}",
                at=line.row.since_at if line.state is NodeState.PROBLEM else line.row.reported_at,
                facts={"node": line.row.name, "state": str(line.state), "reason": reason[:REASON]},
                address=PAGE,
            )


class ShardProblem:
    """Shards that report a problem."""

    name = "store.shard"
    title: object = _("a shard has a problem")
    sentence: object = _("a shard of %(biz)s on %(node)s: %(reason)s")
    advice: object = _("Check the node's database: disk, locks, slow statements.")
    facts: tuple[str, ...] = ("biz", "node", "reason")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per biz and node."""
        seen = set()
        rows = ShardReport.objects.exclude(problem="").order_by("pk")
        for row in truncated_to(rows[: MOST + 1], MOST):
            key = f"{row.biz}:{row.node}"
            if (row.project_id, key) in seen:
                continue
            seen.add((row.project_id, key))
            yield Occurrence(
                id=f"shard:{row.project_id}:{key}",
                project=row.project_id,
                key=key,
                at=row.reported_at,
                facts={"biz": row.biz, "node": row.node, "reason": row.problem[:REASON]},
                address=PAGE,
            )


class RequestQueueUnreachable:
    """Unreachable queues of stored requests."""

    name = "store.queue"
    title: object = _("a request queue has a problem")
    sentence: object = _("the queue of %(biz)s: %(reason)s")
    advice: object = _("Check that the queue server is up and has free memory.")
    facts: tuple[str, ...] = ("biz", "reason")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per biz."""
        rows = QueueReport.objects.exclude(problem="").order_by("pk")
        for row in truncated_to(rows[: MOST + 1], MOST):
            yield Occurrence(
                id=f"queue:{row.project_id}:{row.biz}",
                project=row.project_id,
                key=f"biz:{row.biz}",
                at=row.reported_at,
                facts={"biz": row.biz, "reason": row.problem[:REASON]},
                address=PAGE,
            )


class BizLate:
    """Bizzes whose requests will miss the planned time, or make no progress."""

    name = "requests.late"
    title: object = _("stored requests will be late")
    sentence: object = _("%(biz)s: %(backlog)s pending requests will be late (%(outlook)s)")
    advice: object = _("Add consumers or agents, or submit new requests more slowly.")
    facts: tuple[str, ...] = ("biz", "backlog", "outlook", "lateness")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per biz."""
        for biz in standings(now=at).bizzes:
            forecast = biz.forecast
            late = forecast.lateness is not Lateness.NONE
            if not late and forecast.outlook is not Outlook.STANDS:
                continue
            yield Occurrence(
                id=f"biz:{biz.project_id}:{biz.biz}",
                project=biz.project_id,
                key=f"biz:{biz.biz}",
                at=at,
                facts={
                    "biz": biz.biz,
                    "backlog": biz.stored.backlog,
                    "outlook": str(forecast.outlook),
                    "lateness": str(forecast.lateness),
                },
                address=PAGE,
            )


SOURCES: Final[tuple[ConditionSource, ...]] = (
    NodeProblem(
        "store.node_away",
        _("a storage node is unreachable"),
        _("storage node %(node)s is unreachable (%(state)s): %(reason)s"),
        frozenset({NodeState.PROBLEM, NodeState.SILENT}),
    ),
    NodeProblem(
        "store.node_slow",
        _("a storage node is under pressure"),
        _("storage node %(node)s is slow: %(reason)s"),
        frozenset({NodeState.SLOW}),
    ),
    ShardProblem(),
    RequestQueueUnreachable(),
    BizLate(),
)
