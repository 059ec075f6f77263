"""Accounting errors: requests or items that were lost or counted wrongly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Final

from django.db.models import F, Max, Q
from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.events import ConditionSource, Occurrence, Truncated
from apps.alerts.sources.pages import change_page, list_page
from apps.queuestats.models import RunCounter
from apps.requeststore.models import ShardReport
from apps.requeststore.queries.accounting import standings
from apps.routing.models import RouterReport
from apps.routing.queries.accounting import item_accounting
from apps.seeds.models import SegmentReport

# Accounting sums many rows; results are cached for this long.
EVERY_SECONDS: Final = 30.0
# Of finished runs, only this many newest executions are checked.
NEWEST: Final = 2_000
# Limit of reported accounts of each kind.
MOST: Final = 300


class AccountingMismatch:
    """Runs, frontiers, routers and stored requests whose accounting equations do not hold."""

    name = "books.unbalanced"
    title: object = _("requests are not all accounted for")
    sentence: object = _("%(of)s: %(left)s in total, but %(right)s accounted for")
    advice: object = _(
        "Check whether one of its processes died recently. Report it if the difference remains."
    )
    facts: tuple[str, ...] = ("of", "kind", "left", "right")

    def __init__(self) -> None:
        self._read_at = float("-inf")
        self._found: list[Occurrence] = []
        self._is_cut = False

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per unbalanced account."""
        if time.monotonic() - self._read_at >= EVERY_SECONDS:
            self._read(at)
            self._read_at = time.monotonic()
        yield from self._found
        if self._is_cut:
            raise Truncated

    def _read(self, at: datetime) -> None:
        self._found, self._is_cut = [], False
        for kind in (_runs, _seeds, _routing, _requests):
            some = list(islice(kind(at), MOST + 1))
            self._is_cut |= len(some) > MOST
            self._found += some[:MOST]


def _runs(at: datetime) -> Iterator[Occurrence]:
    done = F("success") + F("failed") + F("queued") + F("in_flight")
    given_up = F("skipped") + F("timed_out") + F("refused") + F("cancelled")
    wrong = ~Q(total=done) | ~Q(sent=F("returned") + given_up + F("out") - F("retried"))
    newest = RunCounter.objects.aggregate(pk=Max("pk"))["pk"] or 0
    rows = RunCounter.objects.filter(Q(final=False) | Q(pk__gt=newest - NEWEST)).filter(wrong)
    for row in rows.order_by("-pk").iterator():
        run = row.owner.removeprefix("run:")
        right = row.success + row.failed + row.queued + row.in_flight
        yield _unbalanced(
            "run", row.owner, row.project_id, row.total, right, at, change_page("jobs/run", run)
        )


def _seeds(at: datetime) -> Iterator[Occurrence]:
    ended = F("succeeded") + F("failed") + F("ignored") + F("forgotten")
    rows = SegmentReport.objects.exclude(added=F("pending") + F("leased") + ended)
    seen = set()
    for row in rows.select_related("frontier").order_by("frontier_id", "pk").iterator():
        if row.frontier_id in seen:
            continue
        seen.add(row.frontier_id)
        right = row.pending + row.leased + row.succeeded + row.failed + row.ignored
        yield _unbalanced(
            "frontier",
            f"frontier:{row.frontier.name}",
            row.frontier.project_id,
            row.added,
            right + row.forgotten,
            at,
            change_page("seeds/frontier", row.frontier_id),
        )


def _routing(at: datetime) -> Iterator[Occurrence]:
    projects = RouterReport.objects.order_by("project_id").values_list("project_id", flat=True)
    for project in projects.distinct():
        accounting = item_accounting(project)
        if not accounting.balanced:
            yield _unbalanced(
                "router",
                "router",
                project,
                accounting.received,
                accounting.accounted,
                at,
                list_page("routing/routerreport", f"project={project}"),
            )


def _requests(at: datetime) -> Iterator[Occurrence]:
    projects = set(ShardReport.objects.order_by().values_list("project_id", flat=True).distinct())
    for (project, biz), standing in standings(projects).items():
        if not standing.balanced:
            known = (
                standing.new
                + standing.taken
                + standing.moving
                + standing.expired
                + standing.processed
            )
            yield _unbalanced(
                "biz",
                f"biz:{biz}",
                project,
                standing.stored,
                known,
                at,
                list_page("requeststore/shardreport"),
            )


def _unbalanced(
    kind: str, of: str, project: int, left: int, right: int, at: datetime, address: str
) -> Occurrence:
    return Occurrence(
        id=f"{project}:{of}",
        project=project,
        key=of,
        at=at,
        facts={"of": of, "kind": kind, "left": left, "right": right},
        address=address,
    )


SOURCES: Final[tuple[ConditionSource, ...]] = (AccountingMismatch(),)
