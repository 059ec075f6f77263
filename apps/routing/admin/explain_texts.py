"""Translated texts for the codes of the engine's decisions, verdicts and replays."""

from __future__ import annotations

from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from apps.routing.engine.outcomes import TEXTS, Decision
from apps.routing.queries.replays import Route, RouteDifference, RouteKind

FATES: Final[dict[RouteKind, Promise]] = {
    RouteKind.REJECTED: _("rejected: no rule matches"),
    RouteKind.ROUTING_LIMITS: _("failed: no routings left"),
    RouteKind.FILTERED: _("filtered out by the inbound"),
    RouteKind.INBOUND_DISABLED: _("inbound disabled"),
    RouteKind.INBOUND_GONE: _("inbound removed"),
}
DIFFERENCES: Final[dict[RouteDifference, Promise]] = {
    RouteDifference.NEWLY_REJECTED: _("newly rejected"),
    RouteDifference.NEWLY_TAKEN: _("newly matched"),
    RouteDifference.MOVED: _("routed elsewhere"),
    RouteDifference.MESSAGE: _("message changed"),
    RouteDifference.NONE: _("unchanged"),
}


def decision_text(decision: Decision) -> str:
    """Return the translated reason of a decision as a sentence."""
    words = gettext(TEXTS[decision.reason])
    return words % {"outbound": decision.outbound, "status": decision.status}


def choice_text(choice: Route) -> str:
    """Return the outbound of a route, or the reason why there is none."""
    return choice.outbound if choice.taken else str(FATES[choice.fate])
