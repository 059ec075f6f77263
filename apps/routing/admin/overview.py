"""Context of the router's page: accounting, problems, inbounds and outbounds of one project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Q, Subquery, Sum
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.configcenter.admin.shown import rollout_text
from apps.configcenter.models import Configuration, ConfigVersion
from apps.configcenter.queries import ProcessVersion, RolloutCount, rollouts_of
from apps.projects.admin.project_choice import number_in
from apps.projects.models import Project
from apps.routing.engine.files.data import from_data
from apps.routing.engine.rules import Inbound, Outbound, RuleSet
from apps.routing.models import CounterChange, RoutedItem
from apps.routing.queries import (
    CountedEvent,
    InboundStatus,
    ItemAccounting,
    OutboundStatus,
    RoutingStatus,
    item_accounting,
    outbound_counts,
    routing_status,
    server_status,
)
from apps.routing.queries.tracks import KIND
from apps.routing.states import ItemState

SHOWN_DRAFTS: Final = 5
# Outbounds per page: rule sets have up to a thousand, and the page refreshes itself.
SHOWN_OUTBOUNDS: Final = 50
# The oldest parked item is looked up for at most this many outbounds.
MOST_PARKED: Final = 50
MAX_NAME: Final = 200
SHOWN_NAMES: Final = 5
# Server behind a family of outbound classes.
_SERVERS: Final = {"redis_queue": "Redis", "rabbitmq": "RabbitMQ", "kafka": "Kafka"}
_BAD: Final = (ItemState.FAILED, ItemState.EXPIRED, ItemState.REJECTED, ItemState.DEAD)


@dataclass(frozen=True, slots=True)
class RouterProblem:
    """Problem that is shown at the top of the page."""

    tone: str
    icon: str
    text: str
    since: datetime | None = None
    # Untranslated error message.
    detail: str = ""


@dataclass(frozen=True, slots=True)
class InboundRow:
    """Row of one inbound: its rule, its counters since the first item, its reported state."""

    number: int
    rule: Inbound | None
    name: str
    now: InboundStatus | None
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def depth(self) -> int | None:
        """Number of waiting messages; None if unknown."""
        return None if self.now is None else self.now.depth


@dataclass(frozen=True, slots=True)
class OutboundRow:
    """Row of one outbound: its rule, the number of its items by state, its reported state."""

    number: int
    rule: Outbound | None
    name: str
    now: OutboundStatus | None
    counts: dict[str, int] = field(default_factory=dict)
    oldest: RoutedItem | None = None

    @property
    def depth(self) -> int | None:
        """Number of waiting messages; None if unknown."""
        return None if self.now is None else self.now.depth

    @property
    def total(self) -> int:
        """Number of items that are at this outbound or ended there."""
        return sum(self.counts.values())

    @property
    def more_selectors(self) -> int:
        """Number of selectors besides the first."""
        return 0 if self.rule is None else len(self.rule.selector) - 1


@dataclass(frozen=True, slots=True)
class OutboundPage:
    """Requested page of the outbounds whose names begin with ``prefix``."""

    prefix: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> OutboundPage:
        """Read the window from a query string; an invalid page number means the first page."""
        page = number_in(query.get("page", ""))
        return cls(query.get("prefix", "")[:MAX_NAME], max(page or 1, 1))

    @property
    def query(self) -> str:
        """Query string of this window, to be appended to that of the project."""
        values = {"prefix": self.prefix, "page": str(self.page) if self.page > 1 else ""}
        return "".join(f"&{urlencode({name: value})}" for name, value in values.items() if value)


_FIRST: Final = OutboundPage()


@dataclass(frozen=True, slots=True)
class ListedOutbounds:
    """One page of outbounds in effective order; ``found`` is the number of all that match."""

    window: OutboundPage
    lines: list[OutboundRow]
    found: int

    @property
    def first(self) -> int:
        """Position of the page's first outbound among those found, from 1."""
        return (self.window.page - 1) * SHOWN_OUTBOUNDS + 1

    @property
    def last(self) -> int:
        """Position of the page's last outbound among those found."""
        return self.first + len(self.lines) - 1

    @property
    def before(self) -> OutboundPage | None:
        """Window of the previous page; None on the first page."""
        return replace(self.window, page=self.window.page - 1) if self.window.page > 1 else None

    @property
    def after(self) -> OutboundPage | None:
        """Window of the next page; None on the last page."""
        return replace(self.window, page=self.window.page + 1) if self.last < self.found else None


@dataclass(frozen=True, slots=True)
class StateCount:
    """Number of items in one state."""

    name: str
    label: str
    count: int
    bad: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """Complete context of the router's page."""

    project: Project
    accounting: ItemAccounting
    status: RoutingStatus
    configuration: Configuration | None
    rollout: RolloutCount
    drafts: list[ConfigVersion]
    inbounds: list[InboundRow]
    outbounds: list[OutboundRow]
    shown: ListedOutbounds
    # Number of items that never reached an outbound, by state.
    nowhere: dict[str, int]
    rules: RuleSet | None
    problems: list[RouterProblem] = field(default_factory=list)

    @property
    def are_many(self) -> bool:
        """Whether there are more outbounds than one page shows."""
        return len(self.outbounds) > SHOWN_OUTBOUNDS

    @property
    def active(self) -> ConfigVersion | None:
        """Active version of the rules, which all routers should run."""
        return None if self.configuration is None else self.configuration.active

    @property
    def runs(self) -> str:
        """Rollout of the active version as text, such as ``2 of 2 on v7``."""
        return rollout_text(self.rollout)

    @property
    def routers(self) -> tuple[ProcessVersion, ...]:
        """Live routers of the project, with the version that each runs."""
        return self.rollout.runners

    @property
    def ends(self) -> list[StateCount]:
        """Number of ended items by state."""
        return _in_states(self.accounting.final)

    @property
    def nowhere_states(self) -> list[StateCount]:
        """Number of items that never reached an outbound, by state, without empty states."""
        return [state for state in _in_states(self.nowhere) if state.count]

    @property
    def final(self) -> int:
        """Number of ended items."""
        return sum(self.accounting.final.values())

    @property
    def in_flight(self) -> int:
        """Number of open items, without parked items."""
        return sum(self.accounting.in_flight.values())


def overview(project: Project, now: datetime, window: OutboundPage = _FIRST) -> Overview:
    """Return the context of one project's page.

    The number of queries is fixed, and none of them counts rows of the ledger.
    """
    configuration = (
        Configuration.objects.filter(kind=KIND, project=project)
        .select_related("active", "project")
        .first()
    )
    active = None if configuration is None else configuration.active
    rules = None if active is None else from_data(active.data)[0]
    status = routing_status(project.pk, now)
    counts = {count.outbound: count.by_state for count in outbound_counts(project.pk)}
    outbounds = _outbounds(rules, status, counts)
    result = Overview(
        project=project,
        accounting=item_accounting(project.pk),
        status=status,
        configuration=configuration,
        rollout=_rollout(configuration),
        drafts=_drafts(configuration),
        inbounds=_inbounds(project, rules, status),
        outbounds=outbounds,
        shown=_shown(project, outbounds, window),
        nowhere=counts.get("", {}),
        rules=rules,
    )
    result.problems.extend([*_problems(result), *_port_problems(result, now)])
    return result


def _in_states(counts: dict[str, int]) -> list[StateCount]:
    return [
        StateCount(state.value, str(state.label), counts[state.value], state in _BAD)
        for state in ItemState
        if state.value in counts
    ]


def _rollout(row: Configuration | None) -> RolloutCount:
    return RolloutCount(0) if row is None else rollouts_of([row])[row.pk]


def _drafts(configuration: Configuration | None) -> list[ConfigVersion]:
    """Return the versions that are newer than the active one, newest first."""
    if configuration is None:
        return []
    above = 0 if configuration.active is None else configuration.active.number
    rows = configuration.versions.filter(number__gt=above).defer("content")
    return list(rows.order_by("-number")[:SHOWN_DRAFTS])


def _inbounds(project: Project, rules: RuleSet | None, said: RoutingStatus) -> list[InboundRow]:
    counts: dict[str, dict[str, int]] = {}
    counted = [
        CountedEvent.ARRIVED,
        CountedEvent.FILTERED,
        CountedEvent.RESULT,
        CountedEvent.REDELIVERED,
    ]
    rows = (
        CounterChange.objects.filter(project=project, what__in=counted)
        .values_list("inbound", "what")
        .annotate(total=Sum("amount"))
    )
    for name, counter, total in rows:
        counts.setdefault(name, {})[counter] = total
    ruled = {} if rules is None else {inbound.name: inbound for inbound in rules.inbounds}
    names = [*ruled, *sorted({*counts, *said.inbounds} - ruled.keys())]
    return [
        InboundRow(number, ruled.get(name), name, said.inbounds.get(name), counts.get(name, {}))
        for number, name in enumerate(names, 1)
    ]


def _outbounds(
    rules: RuleSet | None, said: RoutingStatus, counts: dict[str, dict[str, int]]
) -> list[OutboundRow]:
    ruled = {} if rules is None else {outbound.name: outbound for outbound in rules.outbounds}
    names = [*ruled, *sorted(({*counts, *said.outbounds} - ruled.keys()) - {""})]
    return [
        OutboundRow(number, ruled.get(name), name, said.outbounds.get(name), counts.get(name, {}))
        for number, name in enumerate(names, 1)
    ]


def _shown(project: Project, lines: list[OutboundRow], window: OutboundPage) -> ListedOutbounds:
    """Return the requested page of outbounds; a page beyond the end is replaced by the last one."""
    matching = [line for line in lines if line.name.startswith(window.prefix)]
    window = replace(window, page=min(window.page, max(1, -(-len(matching) // SHOWN_OUTBOUNDS))))
    shown = matching[(window.page - 1) * SHOWN_OUTBOUNDS :][:SHOWN_OUTBOUNDS]
    parked = [line.name for line in shown if line.counts.get(ItemState.PARKED)]
    oldest = oldest_parked(project.pk, parked)
    lines = [replace(line, oldest=oldest.get(line.name)) for line in shown]
    return ListedOutbounds(window, lines, len(matching))


def oldest_parked(project: int, outbounds: list[str]) -> dict[str, RoutedItem]:
    """Return the oldest parked item by outbound, with one query on the index of parked items.

    Only the first ``MOST_PARKED`` outbounds are looked up.
    """
    if not outbounds:
        return {}
    wanted = Q()
    for name in outbounds[:MOST_PARKED]:
        first = RoutedItem.objects.parked(project, name).values("pk")[:1]
        wanted |= Q(pk=Subquery(first))
    rows = RoutedItem.objects.filter(wanted).defer("item", "steps")
    return {row.outbound: row for row in rows}


def _problems(found: Overview) -> list[RouterProblem]:
    problems = [*_router_problems(found), *_target_problems(found), *_limit_problems(found)]
    for line in found.inbounds:
        if line.now is not None and line.now.problem:
            text = _("Inbound %(name)s cannot be read.") % {"name": line.name}
            problems.append(
                RouterProblem("danger", "cloud_off", text, line.now.problem_since, line.now.problem)
            )
    if found.status.file_problem:
        text = _(
            "The failure file cannot be written. Failed tasks wait, and end "
            "automatically once the file can be written again; nothing is lost."
        )
        since, problem = found.status.file_problem_since, found.status.file_problem
        problems.append(RouterProblem("danger", "save", text, since, problem))
    if not found.accounting.balanced:
        difference = found.accounting.received - found.accounting.accounted
        text = ngettext(
            "%(count)d task is unaccounted for.",
            "%(count)d tasks are unaccounted for.",
            abs(difference),
        )
        problems.insert(0, RouterProblem("danger", "warning", text % {"count": difference}))
    return problems


def _router_problems(found: Overview) -> list[RouterProblem]:
    """Return problems of routers: no live router, or one that cannot apply the active version."""
    if found.configuration is None or found.active is None:
        return []
    if not found.status.routers:
        text = _("No router is running for this project. Incoming tasks wait in their sources.")
        return [RouterProblem("danger", "heart_broken", text, found.status.last_at)]
    return [
        RouterProblem(
            "danger",
            "sync_problem",
            _(
                "Router %(name)s could not apply the active version and continues to run "
                "v%(number)d."
            )
            % {"name": runner.name, "number": runner.number},
            runner.applied_at,
            runner.problem,
        )
        for runner in found.rollout.runners
        if runner.problem
    ]


def _target_problems(found: Overview) -> list[RouterProblem]:
    """Return unreachable targets, grouped by reason: one failed server affects many outbounds."""
    by_reason: dict[tuple[str, str], list[OutboundRow]] = {}
    for line in found.outbounds:
        if line.now is not None and line.now.problem:
            family = "" if line.rule is None else line.rule.cls.partition(".")[0]
            by_reason.setdefault((family, line.now.problem), []).append(line)
    problems = []
    for (family, reason), lines in by_reason.items():
        parked = sum(line.counts.get(ItemState.PARKED, 0) for line in lines)
        since = [line.now.problem_since for line in lines if line.now and line.now.problem_since]
        gone = _("%(server)s does not answer: %(names)s.") % {
            "server": _SERVERS.get(family) or _("The target"),
            "names": _names([line.name for line in lines]),
        }
        kept = ngettext(
            "%(count)d task is parked and is sent automatically when the target "
            "answers again; nothing is lost.",
            "%(count)d tasks are parked and are sent automatically when the target "
            "answers again; nothing is lost.",
            parked,
        ) % {"count": parked}
        first = min(since, default=None)
        problems.append(RouterProblem("danger", "cloud_off", f"{gone} {kept}", first, reason))
    return problems


def _limit_problems(found: Overview) -> list[RouterProblem]:
    """Return outbounds whose rate limit is kept per router: the shared store is unreachable."""
    by_reason: dict[str, list[str]] = {}
    for line in found.outbounds:
        if line.now is not None and line.now.limit_degraded:
            by_reason.setdefault(line.now.limit_degraded, []).append(line.name)
    return [
        RouterProblem(
            "warning",
            "speed",
            _("Rate limits are enforced by each router separately: %(names)s.")
            % {"names": _names(names)},
            detail=reason,
        )
        for reason, names in by_reason.items()
    ]


def _port_problems(found: Overview, now: datetime) -> list[RouterProblem]:
    """Return a warning if a web process cannot open the port that the rules ask for."""
    server = None if found.rules is None else found.rules.server
    if server is None:
        return []
    status = server_status(
        project=found.project.pk, server=server, allowed=settings.ROUTING_SERVERS, now=now
    )
    if not status.why_closed:
        return []
    text = _("Port %(address)s of these rules is not open.") % {"address": status.address}
    return [RouterProblem("warning", "lan", text, detail=status.why_closed)]


def _names(names: list[str]) -> str:
    return ", ".join(names[:SHOWN_NAMES]) + (" …" if len(names) > SHOWN_NAMES else "")
