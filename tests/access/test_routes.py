"""Who may call which address. The addresses come from the URL conf, so none is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.db.models import Model
from django.utils import timezone
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator

from apps.access.api.base import ApiView
from apps.access.models import Membership, User
from apps.access.services import record, save_filter
from apps.access.states import Role
from apps.agents.models import HostRule, HostState
from apps.alerts.models import Channel, RunSubscription
from apps.joblogs.models import LogPolicy
from apps.jobs.models import JobLink, PlannedRun, Schedule
from apps.projects.models import Delivery, Project
from apps.seeds.services import clients
from apps.sources.models import Credential, Harvest
from tests.access.factories import Api, make_project, make_superuser, make_token, make_user
from tests.access.routes import (
    ASKING,
    AWAY,
    EMPTY,
    GLOBAL,
    INCOMPLETE,
    LISTS,
    MACHINERY,
    OWN,
    PLATFORM,
    ROUTES,
    WITH_IDS,
    Route,
)
from tests.agents.factories import make_agent, make_allocation
from tests.alerts.factories import make_channel, make_incident, make_notice
from tests.configcenter.factories import make_activation, make_version
from tests.dashboard.machinery import make_daemon, make_letter, make_outgoing, make_periodic_task
from tests.datasets.deliveries import make_data_delivery
from tests.datasets.factories import make_data_run, make_dataset, make_trial
from tests.joblogs.factories import make_build, make_group
from tests.jobs.factories import make_host, make_job, make_run
from tests.projects.build_factories import make_image
from tests.requeststore.factories import (
    Numbered,
    make_biz,
    make_rebalance,
    make_reextraction,
    make_request,
)
from tests.requeststore.tester.shop import make_sample
from tests.routing.api.active_rules import ruled
from tests.routing.factories import arrive, row_of
from tests.seeds.factories import make_frontier, make_operation
from tests.seeds.resources.factories import make_pool, make_resource
from tests.sources.records import sourced

pytestmark = pytest.mark.django_db

SAFE = ("get",)


@dataclass
class World:
    """A project with one of everything, and people of all kinds."""

    project: Project
    owner: User


@pytest.fixture
def world(request_nodes: dict[str, str]) -> World:
    project = make_project()
    return World(project, make_user(roles={project: Role.ADMIN}))


# One of the kind whose id the address takes. A new route needs a line here.
MAKERS: dict[str, Callable[[World], Model | Numbered]] = {
    "api/v1/agents/{pk}": lambda world: make_agent(),
    "api/v1/agents/{agent}": lambda world: make_agent(),
    "api/v1/agents/allocations/{pk}": lambda world: make_allocation(
        make_run(job=make_job(project=world.project))
    ),
    "api/v1/bizzes/{pk}": lambda world: make_biz(world.project),
    "api/v1/rebalances/{pk}": lambda world: make_rebalance(world.project),
    "api/v1/reextractions/{pk}": lambda world: make_reextraction(world.project),
    "api/v1/requests/{pk}": lambda world: make_request(world.project),
    "api/v1/audit/{pk}": lambda world: record(actor=None, action="test.x", obj=world.project),
    "api/v1/config/versions/{pk}": lambda world: make_version(world.project),
    "api/v1/config/activations/{pk}": lambda world: make_activation(world.project),
    "api/v1/config/{pk}": lambda world: make_version(world.project).configuration,
    "api/v1/daemons/{pk}": lambda world: make_daemon(),
    "api/v1/dead-letters/{pk}": lambda world: make_letter(),
    "api/v1/outbox/{pk}": lambda world: make_outgoing(),
    "api/v1/people/{pk}": lambda world: make_user(),
    "api/v1/periodic-tasks/{pk}": lambda world: make_periodic_task(),
    "api/v1/datasets/{dataset}/deliveries": lambda world: make_data_delivery(world.project),
    "api/v1/datasets/{pk}/runs/{run}": lambda world: make_data_run(world.project).dataset,
    "api/v1/datasets/{pk}": lambda world: make_dataset(world.project),
    "api/v1/datasets/{dataset}": lambda world: make_dataset(world.project),
    "api/v1/deliveries/{pk}": lambda world: Delivery.objects.create(
        project=world.project,
        delivery_id=f"{Delivery.objects.count()}",
        verdict="ignored",
        source="github",
        received_at=timezone.now(),
    ),
    "api/v1/channels/{pk}": lambda world: make_channel(
        project=world.project, name=f"ops-{Channel.objects.count()}"
    ),
    "api/v1/run-subscriptions/{pk}": lambda world: RunSubscription.objects.create(
        project=world.project, channel=make_channel(project=world.project)
    ),
    "api/v1/incidents/{pk}": lambda world: make_incident(project=world.project),
    "api/v1/notices/{pk}": lambda world: make_notice(
        project=world.project, incident=make_incident(project=world.project)
    ),
    "api/v1/builds/{pk}": lambda world: make_build(project=world.project),
    "api/v1/frontiers/{pk}": lambda world: make_frontier(world.project),
    "api/v1/image-trials/{pk}": lambda world: make_trial(world.project),
    "api/v1/images/{pk}": lambda world: make_image(project=world.project),
    "api/v1/builds/{build}": lambda world: make_build(project=world.project),
    "api/v1/host-rules/{pk}": lambda world: HostRule.objects.create(host="example.com"),
    "api/v1/hosts/{pk}": lambda world: HostState.objects.create(
        host="example.com", center="c1", reported_at=timezone.now()
    ),
    "api/v1/job-links/{pk}": lambda world: JobLink.objects.create(
        job=make_job(project=world.project), after=make_job(project=world.project)
    ),
    "api/v1/jobs/{job}": lambda world: make_job(project=world.project),
    "api/v1/jobs/{pk}": lambda world: make_job(project=world.project),
    "api/v1/run-hosts/{pk}": lambda world: make_host("one"),
    "api/v1/log-errors/{pk}": lambda world: make_group(make_job(project=world.project)),
    "api/v1/log-policies/{pk}": lambda world: LogPolicy.objects.create(
        project=world.project, job=make_job(project=world.project), days=9
    ),
    "api/v1/memberships/{pk}": lambda world: Membership.objects.get(user=world.owner),
    "api/v1/planned-runs/{pk}": lambda world: PlannedRun.objects.create(
        schedule=Schedule.objects.create(
            job=make_job(project=world.project),
            cron="* * * * *",
            time_zone="UTC",
            planned_through=timezone.now(),
        ),
        planned_at=timezone.now(),
        outcome="missed",
        decided_at=timezone.now(),
    ),
    "api/v1/projects/{pk}": lambda world: world.project,
    "api/v1/sample-pages/{pk}": lambda world: make_sample(world.project),
    "api/v1/harvests/{pk}": lambda world: Harvest.objects.create(
        project=world.project, source="news"
    ),
    "api/v1/saved-filters/{pk}": lambda world: save_filter(
        user=world.owner, path="/admin/jobs/run/", name="mine", query="state=failed"
    ),
    "api/v1/source-credentials/{pk}": lambda world: Credential.objects.create(
        project=world.project, name=f"vendor-{Credential.objects.count()}"
    ),
    "api/v1/sources/projects/{pk}": lambda world: sourced(world.project),
    "api/v1/resource-pools/{pk}": lambda world: make_pool(world.project),
    "api/v1/resources/{pk}": lambda world: make_resource(make_pool(world.project)),
    "api/v1/routing/items/{pk}": lambda world: row_of(arrive(world.project)[0]),
    "api/v1/routing/projects/{pk}": lambda world: ruled(world.project),
    "api/v1/runs/{pk}": lambda world: make_run(job=make_job(project=world.project)),
    "api/v1/runs/{run}": lambda world: make_run(job=make_job(project=world.project)),
    "api/v1/seed-operations/{pk}": lambda world: make_operation(make_frontier(world.project)),
    "api/v1/tokens/{pk}": lambda world: make_token(world.owner).token,
}


def path_of(route: Route, world: World) -> str:
    makers = [make for start, make in MAKERS.items() if route.path.startswith(start)]
    assert makers, f"{route}: say in MAKERS how to make one"
    return route.at(**{name: makers[0](world).pk for name in route.names})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TIMEOUT_SECONDS", 0.2)


def answered(route: Route, *, sees_everything: bool = False) -> int:
    """The status of what is shown to whom it may be shown."""
    if (route.path in PLATFORM or route.path.startswith(MACHINERY)) and not sees_everything:
        return 403
    if route.path in INCOMPLETE:
        return 400
    if route.path in EMPTY:
        return 404
    return 503 if route.path in AWAY else 200


def calls(route: Route) -> list[str]:
    taken = route.view.http_method_names
    return [method for method in route.actions if method != "head" and method in taken]


def send(api: Api, method: str, path: str) -> Any:
    body = None if method in SAFE else {}
    return api.call(method, path, body)


def test_there_are_routes() -> None:
    assert {"api/v1/me", "api/v1/projects", "api/v1/projects/{pk}"} <= {r.path for r in ROUTES}


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_every_view_derives_from_the_base(route: Route) -> None:
    assert issubclass(route.view, ApiView)
    assert route.view.area


@pytest.mark.slow("9 s")
@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_strangers_get_401(route: Route, world: World) -> None:
    path = path_of(route, world) if route.names else route.at()
    for method in calls(route):
        response = send(Api(), method, path)
        assert response.status_code == 401, method
        assert "WWW-Authenticate" in response


@pytest.mark.slow("25 s")
@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_both_with_and_without_a_last_slash(route: Route, world: World) -> None:
    path = path_of(route, world) if route.names else route.at()
    api = Api(make_superuser() if not route.path.startswith(OWN) else world.owner)
    if "get" in route.actions:
        status = answered(route, sees_everything=True)
        assert send(api, "get", path).status_code == status
        assert send(api, "get", path + "/").status_code == status
    elif route.path not in EMPTY:
        assert send(api, "post", path + "/").status_code != 404


@pytest.mark.slow("15 s")
@pytest.mark.parametrize(
    "route",
    [
        route
        for route in WITH_IDS
        if not route.path.startswith((*(f"{each}/{{" for each in GLOBAL), *MACHINERY))
    ],
    ids=str,
)
def test_things_of_other_projects_do_not_exist(route: Route, world: World) -> None:
    stranger = Api(make_user(roles={make_project(): Role.ADMIN}))
    path = path_of(route, world)
    for method in calls(route):
        response = send(stranger, method, path)
        assert response.status_code == 404, (method, response.content)
        assert response.json()["code"] == "not_found"


@pytest.mark.slow("25 s")
@pytest.mark.parametrize("route", LISTS, ids=str)
def test_lists_show_nothing_of_other_projects(route: Route, world: World) -> None:
    for start, make in MAKERS.items():
        if "{pk}" in start:
            make(world)
    elsewhere = make_project()
    stranger = Api(make_user(roles={elsewhere: Role.ADMIN}))
    response = send(stranger, "get", route.at())
    assert response.status_code == 200
    for row in response.json()["results"]:
        if route.path == "api/v1/projects":
            assert row["id"] == elsewhere.pk
        elif route.path not in (*OWN, *GLOBAL):
            assert row["project"] == elsewhere.pk


@pytest.mark.slow("20 s")
@pytest.mark.parametrize("route", [r for r in ROUTES if not r.path.startswith(OWN)], ids=str)
def test_viewers_read_and_write_nothing(route: Route, world: World) -> None:
    viewer = Api(make_user(roles={world.project: Role.VIEWER}))
    path = path_of(route, world) if route.names else route.at()
    for method in calls(route):
        response = send(viewer, method, path)
        if method not in SAFE and route.path not in ASKING:
            assert response.status_code == 403, (method, response.content)
            assert response.json()["code"] == "role_required"
        elif route.path.startswith("api/v1/audit"):
            assert response.status_code in (403, 404), response.content
        else:
            assert response.status_code == answered(route), response.content


@pytest.mark.slow("20 s")
@pytest.mark.parametrize("route", ROUTES, ids=str)
def test_a_reading_token_writes_nothing(route: Route, world: World) -> None:
    reader = Api(world.owner, scopes=("*:read",))
    path = path_of(route, world) if route.names else route.at()
    for method in calls(route):
        response = send(reader, method, path)
        if method in SAFE or route.path in ASKING:
            assert response.status_code == answered(route), response.content
        else:
            assert (response.status_code, response.json()["code"]) == (403, "scope_missing")


@pytest.mark.slow("40 s")
@pytest.mark.parametrize(
    ("path", "method", "needed"),
    [
        ("api/v1/frontiers", "post", Role.EDITOR),
        ("api/v1/frontiers/{pk}", "patch", Role.EDITOR),
        ("api/v1/frontiers/{pk}", "delete", Role.EDITOR),
        ("api/v1/frontiers/{pk}/add", "post", Role.OPERATOR),
        ("api/v1/frontiers/{pk}/drop-segment", "post", Role.EDITOR),
        ("api/v1/frontiers/{pk}/export", "get", Role.VIEWER),
        ("api/v1/frontiers/{pk}/extend", "post", Role.OPERATOR),
        ("api/v1/frontiers/{pk}/finish", "post", Role.OPERATOR),
        ("api/v1/frontiers/{pk}/forget", "post", Role.OPERATOR),
        ("api/v1/frontiers/{pk}/give-back", "post", Role.OPERATOR),
        ("api/v1/frontiers/{pk}/grab", "post", Role.OPERATOR),
        ("api/v1/frontiers/{pk}/granularity", "get", Role.VIEWER),
        ("api/v1/frontiers/{pk}/granularity", "post", Role.EDITOR),
        ("api/v1/frontiers/{pk}/import", "post", Role.OPERATOR),
        ("api/v1/frontiers/{pk}/lease", "post", Role.OPERATOR),
        ("api/v1/frontiers/{pk}/look-up", "post", Role.VIEWER),
        ("api/v1/frontiers/{pk}/operations", "get", Role.VIEWER),
        ("api/v1/frontiers/{pk}/reopen", "post", Role.OPERATOR),
        ("api/v1/frontiers/{pk}/reopen-failed", "post", Role.OPERATOR),
        ("api/v1/frontiers/{pk}/stats", "get", Role.VIEWER),
        ("api/v1/frontiers/{pk}/wipe", "post", Role.ADMIN),
        ("api/v1/jobs", "post", Role.EDITOR),
        ("api/v1/jobs/{pk}", "patch", Role.EDITOR),
        ("api/v1/jobs/{pk}/start", "post", Role.OPERATOR),
        ("api/v1/jobs/{pk}/restore", "post", Role.EDITOR),
        ("api/v1/runs/{pk}/stop", "post", Role.OPERATOR),
        ("api/v1/projects/{pk}", "patch", Role.ADMIN),
        ("api/v1/projects/{pk}/test-connection", "post", Role.EDITOR),
        ("api/v1/projects/{pk}/tags/preview", "post", Role.VIEWER),
        ("api/v1/projects/{pk}/images/refresh", "post", Role.OPERATOR),
        ("api/v1/projects/{pk}/webhook", "get", Role.VIEWER),
        ("api/v1/projects/{pk}/webhook/reveal", "post", Role.EDITOR),
        ("api/v1/projects/{pk}/webhook/rotate", "post", Role.ADMIN),
        ("api/v1/config/versions", "post", Role.EDITOR),
        ("api/v1/config/versions/{pk}/activate", "post", Role.EDITOR),
        ("api/v1/config/versions/{pk}/diff", "get", Role.VIEWER),
        ("api/v1/config/{pk}/check", "post", Role.VIEWER),
        ("api/v1/config/{pk}/revert", "post", Role.OPERATOR),
        ("api/v1/config/{pk}/deactivate", "post", Role.EDITOR),
        ("api/v1/config/{pk}/running", "get", Role.VIEWER),
        ("api/v1/deliveries/{pk}/replay", "post", Role.OPERATOR),
        ("api/v1/log-errors/{pk}/ignore", "post", Role.OPERATOR),
        ("api/v1/log-policies", "post", Role.EDITOR),
        ("api/v1/memberships", "post", Role.ADMIN),
        ("api/v1/memberships/{pk}", "delete", Role.ADMIN),
        ("api/v1/audit", "get", Role.ADMIN),
        ("api/v1/agents/{pk}", "patch", Role.ADMIN),
        ("api/v1/agents/{pk}/drain", "post", Role.ADMIN),
        ("api/v1/agents/{pk}/exit", "post", Role.ADMIN),
        ("api/v1/agents/allocations/preview", "post", Role.VIEWER),
        ("api/v1/run-hosts/{pk}", "patch", Role.ADMIN),
        ("api/v1/run-hosts/{pk}", "delete", Role.ADMIN),
        ("api/v1/run-hosts/{pk}/drain", "post", Role.ADMIN),
        ("api/v1/jobs/{job}/placement", "get", Role.VIEWER),
        ("api/v1/bizzes/{pk}/rebalance", "get", Role.VIEWER),
        ("api/v1/bizzes/{pk}/rebalance", "post", Role.EDITOR),
        ("api/v1/bizzes/{pk}/extract-again", "post", Role.OPERATOR),
        ("api/v1/bizzes/{pk}/reopen", "post", Role.OPERATOR),
        ("api/v1/reextractions/{pk}/cancel", "post", Role.OPERATOR),
        ("api/v1/rebalances/{pk}/cancel", "post", Role.EDITOR),
        ("api/v1/requests", "post", Role.OPERATOR),
        ("api/v1/requests/{pk}", "get", Role.VIEWER),
        ("api/v1/resource-pools/{pk}/lease", "post", Role.EDITOR),
        ("api/v1/sample-pages", "post", Role.EDITOR),
        ("api/v1/sample-pages/{pk}", "delete", Role.EDITOR),
        ("api/v1/resources/{pk}/return", "post", Role.OPERATOR),
        ("api/v1/resources/{pk}/ban", "post", Role.OPERATOR),
        ("api/v1/routing/projects/{pk}/task", "post", Role.OPERATOR),
        ("api/v1/source-credentials", "post", Role.EDITOR),
        ("api/v1/sources/projects/{pk}/start", "post", Role.OPERATOR),
        ("api/v1/sources/projects/{pk}/lease", "post", Role.OPERATOR),
        ("api/v1/sources/projects/{pk}/marker", "post", Role.EDITOR),
        ("api/v1/sources/projects/{pk}/dry-run", "post", Role.OPERATOR),
        ("api/v1/routing/projects/{pk}/explain", "post", Role.VIEWER),
        ("api/v1/routing/projects/{pk}/replay", "post", Role.VIEWER),
        ("api/v1/routing/items/{pk}/cancel", "post", Role.OPERATOR),
        ("api/v1/routing/items/{pk}/resubmit", "post", Role.OPERATOR),
        ("api/v1/routing/items/resubmit", "post", Role.OPERATOR),
        ("api/v1/seed-operations/{pk}/cancel", "post", Role.OPERATOR),
    ],
)
@pytest.mark.parametrize("held", list(Role))
def test_the_role_that_is_needed(
    path: str, method: str, needed: Role, held: Role, world: World
) -> None:
    route = next(each for each in ROUTES if each.path == path)
    address = path_of(route, world) if route.names else route.at()
    response = send(Api(make_user(roles={world.project: held})), method, address)
    if held.covers(needed):
        assert response.status_code not in (401, 403, 404), response.content
    else:
        assert response.status_code == 403


@pytest.mark.parametrize("path", ["api/v1/jobs", "api/v1/memberships"], ids=str)
def test_nothing_can_be_made_in_projects_of_others(path: str, world: World) -> None:
    mine = make_project()
    user = make_user(roles={mine: Role.ADMIN})
    body: dict[str, Any] = {"project": world.project.pk}
    if path == "api/v1/jobs":
        body |= {"name": "New", "spider": "yardspider.spiders:SiteSpider"}
    else:
        body |= {"user": user.username, "role": "viewer"}
    hidden = Api(user).post(f"/{path}", body)
    assert hidden.status_code == 400
    assert set(hidden.json()["fields"]) == {"project"}
    Membership.objects.create(user=user, project=world.project, role=Role.VIEWER)
    # Seen now, but to look at: refused for the role, or not offered as a choice.
    refused = Api(user).post(f"/{path}", body)
    assert refused.status_code in (400, 403)
    assert refused.json()["code"] == "role_required" or "project" in refused.json()["fields"]
    assert Api(user).post(f"/{path}", body | {"project": mine.pk}).status_code == 201


@pytest.mark.slow("1 s")
def test_the_schema_is_made_without_complaints() -> None:
    with GENERATOR_STATS.silence():
        GENERATOR_STATS.reset()
        schema = SchemaGenerator().get_schema(request=None, public=True)
        complaints = [*GENERATOR_STATS._warn_cache, *GENERATOR_STATS._error_cache]
    assert complaints == []
    assert set(schema["paths"]) == {"/" + route.path.replace("{pk}", "{id}") for route in ROUTES}
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            assert "default" in operation["responses"], (method, path)
            assert operation["tags"] != ["platform"]
            retrieves = method == "get" and path.endswith("{id}")
            # Without a body: a client must not look for the error that "default" promises.
            assert ("content" not in operation["responses"].get("304", "content")) == retrieves
    assert "format" not in schema["components"]["schemas"]["Me"]["properties"]["email"]
