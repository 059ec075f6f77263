"""Dead letters of the task router."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from django.db.models import Sum
from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.events import ConditionSource, Occurrence
from apps.routing.models import CounterChange, RoutedItem
from apps.routing.states import ItemState

REASON: Final = 200
# Counting stops here: an exact number is slow and not needed.
MOST: Final = 1_000
PAGE: Final = "/admin/routing/routeditem/dead-letters"


class RoutingDeadLetters:
    """Routed tasks that could not be processed, until resubmitted or expired."""

    name = "routing.dead_letters"
    title: object = _("the router has dead letters")
    sentence: object = _("%(count)s dead letters in the router; newest reason: %(reason)s")
    advice: object = _("Fix the cause, then submit the tasks again on the page Dead letters.")
    facts: tuple[str, ...] = ("count", "inbound", "outbound", "reason")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per project; ``count`` is capped at 1000."""
        # The counters cheaply exclude projects that never had any.
        ever = CounterChange.objects.filter(what=ItemState.DEAD).order_by().values("project")
        for project in ever.annotate(total=Sum("amount")).filter(total__gt=0):
            pk = project["project"]
            rows = RoutedItem.objects.filter(project=pk, state=ItemState.DEAD, replaced_by=None)
            newest = rows.defer("item", "steps").order_by("-pk").first()
            oldest = rows.order_by("pk").values_list("ended_at", flat=True).first()
            if newest is None:
                continue
            yield Occurrence(
                id=f"project:{pk}",
                project=pk,
                key="router",
                at=oldest or at,
                facts={
                    "count": rows[:MOST].count(),
                    "inbound": newest.inbound,
                    "outbound": newest.outbound,
                    "reason": (newest.detail or newest.reason)[:REASON],
                },
                address=f"{PAGE}?project={pk}",
            )


SOURCES: Final[tuple[ConditionSource, ...]] = (RoutingDeadLetters(),)
