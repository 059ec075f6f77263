"""Builds, webhook deliveries, imports, configurations not applied, routing, resource pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import CharField, Count, F, Max, OuterRef, Q, QuerySet, Subquery
from django.utils.translation import gettext_lazy as _

from apps.alerts.engine.events import ConditionSource, EventSource, Occurrence
from apps.alerts.sources.newest import oldest_to_read
from apps.alerts.sources.pages import change_page, list_page
from apps.configcenter.models import RunningVersion
from apps.projects.models import Build, Delivery, Project
from apps.projects.states import BuildState, DeliveryVerdict
from apps.routing.models import RouterReport
from apps.routing.queries.reports import REPORT_MAX_AGE, routing_status
from apps.runtime.queries import live_daemons
from apps.seeds.models import ResourcePool
from apps.seeds.states import ResourceState
from apps.sources.engine.progress import EndReason
from apps.sources.models import Harvest
from apps.sources.states import HarvestState

# Number of newest rows read by ID: times have no index here.
NEWEST: Final = 5_000
# Longest time from the creation of a row to its end.
BUILD_LASTS: Final = timedelta(days=1)
HARVEST_LASTS: Final = timedelta(days=7)
REASON: Final = 200
# Reason of a gap: skipped on purpose.
TOO_OLD: Final = EndReason.EXPIRED
_ENDS: Final = (BuildState.SUCCEEDED, BuildState.FAILED, BuildState.LOST)


class BuildFailed:
    """Failed builds; recovers when a later build of the project succeeds."""

    name = "build.failed"
    title: object = _("a build failed")
    sentence: object = _("build of %(tag)s failed at %(step)s (%(reason)s)")
    advice: object = _("Check the log of the build, fix the cause and build again.")
    facts: tuple[str, ...] = ("tag", "step", "reason")

    def since(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one event per build."""
        oldest = oldest_to_read(Build, "created_at", at=at - BUILD_LASTS, page=NEWEST)
        rows = Build.objects.filter(
            pk__gt=oldest, state__in=(BuildState.FAILED, BuildState.LOST), ended_at__gte=at
        )
        for build in rows.order_by("pk"):
            yield Occurrence(
                id=f"build:{build.pk}",
                project=build.project_id,
                key=f"project:{build.project_id}",
                at=build.ended_at or at,
                facts={"tag": build.tag, "step": build.step, "reason": build.reason[:REASON]},
                address=change_page("projects/build", build.pk),
            )

    def over(self, open_keys: Mapping[str, datetime], at: datetime) -> set[str]:
        """Return the projects whose newest finished build succeeded."""
        builds = Build.objects.filter(project=OuterRef("pk"), state__in=_ENDS).order_by("-pk")
        states = _of_projects(open_keys, builds.values("state"))
        return {key for key, state in states.items() if state == BuildState.SUCCEEDED}


class WebhookRejected:
    """Rejected webhook deliveries; recovers when a later one is accepted."""

    name = "delivery.failed"
    title: object = _("a webhook was rejected")
    sentence: object = _("a webhook from %(from)s was rejected (%(reason)s)")
    advice: object = _(
        "Check that the git server or registry uses the webhook secret of the project."
    )
    facts: tuple[str, ...] = ("from", "code", "reason")

    def since(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one event per delivery."""
        oldest = oldest_to_read(Delivery, "received_at", at=at, page=NEWEST)
        rows = Delivery.objects.filter(
            pk__gt=oldest, verdict=DeliveryVerdict.REFUSED, received_at__gte=at
        )
        for row in rows.defer("body", "headers").order_by("pk"):
            yield Occurrence(
                id=f"delivery:{row.pk}",
                project=row.project_id,
                key=f"project:{row.project_id}",
                at=row.received_at,
                facts={
                    "from": row.remote_address or "?",
                    "code": row.code,
                    "reason": row.reason[:REASON],
                },
                address=change_page("projects/delivery", row.pk),
            )

    def over(self, open_keys: Mapping[str, datetime], at: datetime) -> set[str]:
        """Return the projects whose newest delivery was accepted."""
        deliveries = Delivery.objects.filter(project=OuterRef("pk")).order_by("-pk")
        verdicts = _of_projects(open_keys, deliveries.values("verdict"))
        return {
            key
            for key, verdict in verdicts.items()
            if verdict not in (None, DeliveryVerdict.REFUSED)
        }


class HarvestFailed:
    """Failed imports; recovers when a later import of the source completes."""

    name = "harvest.failed"
    title: object = _("an import failed")
    sentence: object = _("source %(source)s: the import failed (%(reason)s)")
    advice: object = _(
        "Check that the source is reachable with its credentials, then start it again."
    )
    facts: tuple[str, ...] = ("source", "reason")

    def since(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one event per import."""
        for row in _harvests(at).filter(state=HarvestState.FAILED):
            facts = {"source": row.source, "reason": row.error[:REASON]}
            yield _of_harvest(row, facts, at)

    def over(self, open_keys: Mapping[str, datetime], at: datetime) -> set[str]:
        """Return the sources whose newest finished import is complete."""
        return {key for key in open_keys if _newest_harvest(key) == HarvestState.COMPLETED}


class HarvestGap:
    """Imports that skipped records for another reason than age."""

    name = "harvest.gap"
    title: object = _("records were skipped by an import")
    sentence: object = _("source %(source)s: the import skipped %(gaps)s ranges of records")
    advice: object = _("Move the marker of the source back to import the skipped ranges.")
    facts: tuple[str, ...] = ("source", "gaps")

    def since(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one event per import with gaps."""
        for row in _harvests(at):
            gaps = [gap for gap in row.gaps if gap.get("why") != TOO_OLD]
            if gaps:
                yield _of_harvest(row, {"source": row.source, "gaps": len(gaps)}, at)


class ConfigNotApplied:
    """Active configuration versions that a running process cannot apply."""

    name = "config.not_applied"
    title: object = _("a configuration cannot be applied")
    sentence: object = _("%(process)s cannot apply %(kind)s: %(reason)s")
    advice: object = _("Fix the reported problem, or revert to the previous version.")
    facts: tuple[str, ...] = ("kind", "process", "reason")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per configuration, for the process with the oldest problem."""
        rows = RunningVersion.objects.exclude(problem="").filter(
            following__daemon__in=live_daemons(), following__boot=F("following__daemon__boot")
        )
        seen: set[int] = set()
        rows = rows.select_related("configuration", "following__daemon").order_by("applied_at")
        for row in rows:
            if row.configuration_id in seen:
                continue
            seen.add(row.configuration_id)
            yield Occurrence(
                id=f"configuration:{row.configuration_id}",
                project=row.configuration.project_id,
                key=f"configuration:{row.configuration_id}",
                at=row.applied_at,
                facts={
                    "kind": row.configuration.kind,
                    "process": str(row.following.daemon),
                    "reason": row.problem[:REASON],
                },
                address=change_page("configcenter/configuration", row.configuration_id),
            )


class RoutingUnreachable:
    """Inbounds or outbounds that routers cannot reach."""

    advice: object = _("Check that its server is up; tasks wait until it is.")
    facts: tuple[str, ...] = ("name", "problem", "routers")

    def __init__(self, name: str, title: object, sentence: object, *, outbound: bool) -> None:
        self.name = name
        self.title = title
        self.sentence = sentence
        self._outbound = outbound

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per inbound or outbound, from recent router reports."""
        projects = RouterReport.objects.filter(at__gt=at - REPORT_MAX_AGE).order_by("project_id")
        for project in projects.values_list("project_id", flat=True).distinct():
            status = routing_status(project, at)
            lines = status.outbounds if self._outbound else status.inbounds
            for name, line in lines.items():
                if not line.problem:
                    continue
                yield Occurrence(
                    id=f"{project}:{name}",
                    project=project,
                    key=name,
                    at=line.problem_since or at,
                    facts={
                        "name": name,
                        "problem": line.problem[:REASON],
                        "routers": line.troubled,
                    },
                    address=list_page("routing/routerreport", f"project={project}"),
                )


class PoolEmpty:
    """Resource pools without a free resource: all leased, banned or disabled."""

    name = "pool.empty"
    title: object = _("a resource pool is empty")
    sentence: object = _("pool %(pool)s has no free resource: %(leased)s leased, %(banned)s banned")
    advice: object = _("Add resources to the pool, or lift bans.")
    facts: tuple[str, ...] = ("pool", "leased", "banned")

    def now(self, at: datetime) -> Iterator[Occurrence]:
        """Yield one occurrence per pool, since its last resource was leased or banned."""
        free = Q(resources__state=ResourceState.FREE, resources__available_at__lte=at)
        over = Q(resources__state=ResourceState.LEASED, resources__leased_until__lt=at)
        rows = (
            ResourcePool.objects.filter(is_enabled=True)
            .annotate(
                there=Count("resources"),
                free=Count("resources", filter=free | over),
                leased=Count("resources", filter=Q(resources__state=ResourceState.LEASED)),
                banned=Count("resources", filter=Q(resources__state=ResourceState.BANNED)),
                used_at=Max("resources__last_used_at"),
                banned_at=Max("resources__banned_at"),
            )
            .filter(there__gt=0, free=0)
            .order_by("pk")
        )
        for pool in rows:
            times = [moment for moment in (pool.used_at, pool.banned_at) if moment is not None]
            yield Occurrence(
                id=f"pool:{pool.pk}",
                project=pool.project_id,
                key=f"pool:{pool.pk}",
                at=max(times, default=at),
                facts={"pool": pool.name, "leased": pool.leased, "banned": pool.banned},
                address=change_page("seeds/resourcepool", pool.pk),
            )


def _harvests(at: datetime) -> QuerySet[Harvest]:
    oldest = oldest_to_read(Harvest, "started_at", at=at - HARVEST_LASTS, page=NEWEST)
    return Harvest.objects.filter(pk__gt=oldest, ended_at__gte=at).order_by("pk")


def _of_harvest(row: Harvest, facts: Mapping[str, str | int], at: datetime) -> Occurrence:
    return Occurrence(
        id=f"harvest:{row.pk}",
        project=row.project_id,
        key=f"source:{row.project_id}:{row.source}",
        at=row.ended_at or at,
        facts=facts,
        address=change_page("sources/harvest", row.pk),
    )


def _of_projects(open_keys: Iterable[str], newest: QuerySet[Any]) -> dict[str, str | None]:
    """Return one value per project, from rows that refer to their project by ``OuterRef``."""
    projects = Project.objects.filter(pk__in=[_number(key) for key in open_keys]).order_by()
    values = projects.values_list("pk", Subquery(newest[:1], output_field=CharField()))
    return {f"project:{pk}": value for pk, value in values}


def _newest_harvest(key: str) -> str | None:
    _word, project, source = key.split(":", 2)
    rows = Harvest.objects.filter(project=int(project), source=source, ended_at__isnull=False)
    return rows.order_by("-pk").values_list("state", flat=True).first()


def _number(key: str) -> int:
    return int(key.rpartition(":")[2])


SOURCES: Final[tuple[EventSource | ConditionSource, ...]] = (
    BuildFailed(),
    WebhookRejected(),
    HarvestFailed(),
    HarvestGap(),
    ConfigNotApplied(),
    RoutingUnreachable(
        "routing.target_away",
        _("a routing target is unreachable"),
        _("outbound %(name)s: %(problem)s"),
        outbound=True,
    ),
    RoutingUnreachable(
        "routing.inbound_away",
        _("a routing inbound is unreachable"),
        _("inbound %(name)s: %(problem)s"),
        outbound=False,
    ),
    PoolEmpty(),
)
