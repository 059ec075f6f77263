"""Translated texts for the codes of the engine's decisions, verdicts and replays."""

from __future__ import annotations

from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.routing.engine.explanations import Verdict
from apps.routing.engine.outcomes import Decision, Reason
from apps.routing.queries.replays import Route, RouteDifference, RouteKind

# Copies of outcomes.TEXTS: the engine does not import Django and cannot translate.
DECISIONS: Final[dict[Reason, Promise]] = {
    Reason.MATCHED: _("A rule of %(outbound)s takes it."),
    Reason.RETRY: _("It is sent to %(outbound)s once more."),
    Reason.FAILBACK: _("It goes to the failback %(outbound)s."),
    Reason.ROUTED_AGAIN: _(
        "Status %(status)s asks for no retry; by the rules it goes to %(outbound)s."
    ),
    Reason.OUTBOUND_GONE: _("Its outbound is gone; by the rules it goes to %(outbound)s."),
    Reason.OUTBOUND_DISABLED: _("Its outbound is disabled; it is for %(outbound)s now."),
    Reason.NEXT: _("The queue before is full; %(outbound)s takes it as well."),
    Reason.ROOM: _("The queue of %(outbound)s has room for it."),
    Reason.QUEUE_FULL: _("The queue of %(outbound)s is full; it waits for room."),
    Reason.SENT: _("It was sent to %(outbound)s, whose result is waited for."),
    Reason.TERMINAL: _("Status %(status)s ends it well."),
    Reason.DELIVERED: _("It was delivered to %(outbound)s, which sends no result."),
    Reason.NO_RULE: _("No rule takes it."),
    Reason.RETRY_LIMITS: _("It failed with status %(status)s, and %(outbound)s has no retry left."),
    Reason.NO_FAILBACK: _("Status %(status)s asks for a failback, and %(outbound)s has none."),
    Reason.ROUTING_LIMITS: _("It was routed as often as an item may be."),
    Reason.OVERFLOW: _("The queue of %(outbound)s is full, and its rule says to fail then."),
    Reason.NO_RESULT: _("No result came in time, and %(outbound)s has no retry left."),
    Reason.LATE_RESULT: _("A result with status %(status)s came after its end."),
    Reason.STALE_RESULT: _("Status %(status)s is of an earlier attempt; another is on its way."),
    Reason.NOT_WAITING: _("It waits for no result."),
    Reason.NOT_PARKED: _("It is not parked."),
    Reason.REFUSED: _("%(outbound)s does not take it."),
    Reason.TARGET_AWAY: _("The target of %(outbound)s cannot be reached; it waits until it can."),
    Reason.RATE_LIMIT: _("%(outbound)s has sent as much as it may for now; it waits for its turn."),
    Reason.IN_LINE: _("Others wait for %(outbound)s already; it waits behind them."),
    Reason.POSTPONED: _("The router had no time left to send it to %(outbound)s; it waits."),
    Reason.POISON: _("It can never be routed."),
}
# Copies of explanations.VERDICTS.
VERDICTS: Final[dict[Verdict, Promise]] = {
    Verdict.TAKEN: _("The item goes here."),
    Verdict.HELD: _("The item waits for room here."),
    Verdict.LATER: _("It fits too, but an earlier outbound comes first."),
    Verdict.NOT_MATCHED: _("None of its selectors holds."),
    Verdict.NO_SELECTOR: _("It has no selector: it is reached as a failback only."),
    Verdict.DISABLED: _("It is disabled."),
    Verdict.PASSED_OVER: _("It is passed over, for the item has just failed there."),
    Verdict.FULL: _("It is full: as many items wait there as its max_lag allows."),
    Verdict.NOT_ASKED: _("The rules were not asked."),
}
FATES: Final[dict[RouteKind, Promise]] = {
    RouteKind.REJECTED: _("rejected: no rule takes it"),
    RouteKind.ROUTING_LIMITS: _("failed: no routing left"),
    RouteKind.FILTERED: _("not wanted by its inbound"),
    RouteKind.INBOUND_DISABLED: _("its inbound is disabled"),
    RouteKind.INBOUND_GONE: _("its inbound is gone"),
}
DIFFERENCES: Final[dict[RouteDifference, Promise]] = {
    RouteDifference.NEWLY_REJECTED: _("newly rejected"),
    RouteDifference.NEWLY_TAKEN: _("newly taken"),
    RouteDifference.MOVED: _("goes elsewhere"),
    RouteDifference.MESSAGE: _("sent otherwise"),
    RouteDifference.NONE: _("as before"),
}


def decision_text(decision: Decision) -> str:
    """Return the translated reason of a decision as a sentence."""
    words = DECISIONS.get(decision.reason)
    if words is None:
        return decision.text
    return str(words) % {"outbound": decision.outbound, "status": decision.status}


def choice_text(choice: Route) -> str:
    """Return the outbound of a route, or the reason why there is none."""
    return choice.outbound if choice.taken else str(FATES[choice.fate])
