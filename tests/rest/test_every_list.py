"""Every list has keyset pages: nothing is seen twice or missed while rows are inserted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from django.utils import timezone

from apps.access.services import save_filter
from apps.access.states import Role
from apps.agents.models import HostRule, HostState
from apps.jobs.services import delete_job
from apps.projects.services import delete_project
from apps.queuestats.models import RunStats
from apps.queuestats.services import record_gauges
from apps.seeds.models import Frontier
from tests.access.factories import Api, make_project, make_superuser, make_user
from tests.access.test_routes import MAKERS, OWN, World
from tests.access.test_routes import world as world
from tests.alerts.monitor_harness import use_rules
from tests.jobs.factories import make_host, make_job, make_run
from tests.queuestats.test_queues import make_queue
from tests.rest.openapi_schema import published
from tests.seeds.factories import make_frontier, make_operation

pytestmark = pytest.mark.django_db

# Answers that are no longer than their reason allows.
BOUNDED = {
    "alert-sources": "what the code knows",
    "config/kinds": "what the code knows",
    "config/{id}/running": "living processes of one kind",
    "datasets/{id}/history": "the last 1,000 items of one key",
    "frontiers/{id}/look-up": "the seeds that were asked for",
    "health/parts": "what the code knows",
    "runs/{run}/requests/failures": "the 100 largest groups",
    "routing/items/find": "the routes of one item",
    "routing/projects/{id}/books": "the outbounds of one project's rules",
    "routing/projects/{id}/parked": "the outbounds of one project's rules",
    "routing/projects/{id}/routers": "living processes of one kind",
    "runs/{run}/items/fields": "at most 500 fields of one dataset",
}
# Lines of logs are read both ways, and segments by their time.
OF_THEIR_OWN = {
    "datasets/{dataset}/items": "tests/datasets",
    "logs": "tests/joblogs",
    "runs/{run}/compare": "tests/datasets",
    "runs/{run}/items": "tests/datasets",
    # Read like items.
    "runs/{run}/pages": "tests/datasets",
    "runs/{run}/requests": "tests/datasets",
    "runs/{run}/logs": "tests/joblogs",
    "builds/{build}/logs": "tests/joblogs",
    "frontiers/{id}/stats": "tests/seeds",
}
# Below one row, by the same class as what is tried here.
NESTED = {
    "agents/{agent}/samples",
    "datasets/{dataset}/deliveries",
    "datasets/{dataset}/deliveries/{id}/dead-letters",
    "datasets/{id}/runs",
    "jobs/{job}/yields",
    "runs/{id}/commands",
    "runs/{run}/failures",
    "runs/{run}/files",
}


SCHEMA = published()


def lists() -> dict[str, set[str]]:
    """By path the parameters of each GET that answers an array, or ``results``."""
    found = {}
    for path, operations in SCHEMA["paths"].items():
        body = operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        shape = resolved(body.get("application/json", {}).get("schema", {}))
        if shape.get("type") == "array" or "results" in shape.get("properties", {}):
            names = {each["name"] for each in operations["get"].get("parameters", [])}
            found[path.removeprefix("/api/v1/")] = names
    return found


def resolved(shape: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in shape:
        return shape
    named: dict[str, Any] = SCHEMA["components"]["schemas"][shape["$ref"].rpartition("/")[2]]
    return named


LISTS = lists()


def test_every_list_takes_a_cursor_and_a_limit() -> None:
    assert BOUNDED.keys() | OF_THEIR_OWN.keys() | NESTED <= LISTS.keys()
    assert len(LISTS) > 60
    for path in LISTS.keys() - BOUNDED.keys():
        cursor = "after" if "after" in LISTS[path] else "cursor"
        assert {cursor, "limit"} <= LISTS[path], path


def _elsewhere(world: World) -> World:
    return World(make_project(), world.owner)


def _run_stats(world: World) -> None:
    run = make_run(job=make_job(project=world.project))
    RunStats.objects.create(
        run=run, project=world.project, boot="b", seq=1, updated_at=timezone.now()
    )


def _deleted_job(world: World) -> None:
    delete_job(job=make_job(project=world.project), actor=None)


def _deleted_project(world: World) -> None:
    delete_project(project=make_project(), actor=None)


def _host_state(world: World) -> None:
    HostState.objects.create(
        host=f"{HostState.objects.count()}.example", center="c1", reported_at=timezone.now()
    )


def _rule(world: World) -> None:
    rule = {"name": f"r{next(_numbers)}", "event": "run.failed", "severity": "warning"}
    use_rules(rule, project=make_project().pk)


def _series(project: int | None) -> None:
    number = next(_numbers)
    record_gauges({("sample.gauge", project, f"l{number}"): 1.0}, now=timezone.now())


def _filter(world: World) -> None:
    path, name = "/admin/jobs/run/", f"f{next(_numbers)}"
    save_filter(user=world.owner, path=path, name=name, query="state=failed")


_numbers = count(1)
# One more of the kind, where the maker of an id makes the same one again.
MORE: dict[str, Callable[[World], Any]] = {
    "alert-rules": _rule,
    "frontiers/{id}/operations": lambda world: make_operation(
        Frontier.objects.filter(project=world.project).first() or make_frontier(world.project)
    ),
    "host-rules": lambda world: HostRule.objects.create(host=f"{next(_numbers)}.example"),
    "hosts": _host_state,
    "jobs/deleted": _deleted_job,
    "memberships": lambda world: make_user(roles={make_project(): Role.VIEWER}),
    "projects": lambda world: make_project(),
    "projects/deleted": _deleted_project,
    "projects/{id}/series": lambda world: _series(world.project.pk),
    "queues": lambda world: make_queue(
        f"q{next(_numbers)}", project=make_project(), at=timezone.now()
    ),
    "run-hosts": lambda world: make_host(f"h{next(_numbers)}"),
    "run-stats": _run_stats,
    "saved-filters": _filter,
    "series": lambda world: _series(None),
}
WALKED = sorted(LISTS.keys() - BOUNDED.keys() - OF_THEIR_OWN.keys() - NESTED)


def make_one(path: str, world: World) -> None:
    if path in MORE:
        MORE[path](world)
    else:
        MAKERS[f"api/v1/{path}/{{pk}}"](_elsewhere(world))


def name_of(row: dict[str, Any]) -> Any:
    """What no other row has."""
    if "id" in row:
        return row["id"]
    return tuple(row.get(name) for name in ("project", "name", "label", "builtin"))


@pytest.mark.slow("10 s")
@pytest.mark.parametrize("path", WALKED)
def test_rows_that_are_inserted_shift_nothing(path: str, world: World) -> None:
    for _ in range(5):
        make_one(path, world)
    api = Api(world.owner if f"api/v1/{path}" in OWN else make_superuser())
    owners = {"frontiers/{id}/operations": Frontier.objects, "projects/{id}/series": None}
    where = path
    if path in owners:
        rows = owners[path]
        where = path.replace("{id}", str(world.project.pk if rows is None else rows.get().pk))
    before = [name_of(row) for row in walk(api, where, 200)]
    assert len(before) >= 5
    seen = [name_of(row) for row in walk(api, where, 2, lambda: make_one(path, world))]
    assert len(seen) == len(set(seen))
    assert [name for name in seen if name in before] == before


def walk(
    api: Api, path: str, limit: int, between: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """All rows, page by page. What comes in between may be seen or not, and is no endless row."""
    rows: list[dict[str, Any]] = []
    after = ""
    for page in range(100):
        answer = api.get(f"{path}?limit={limit}{after}")
        assert answer.status_code == 200, answer.content
        told = answer.json()
        assert len(told["results"]) <= limit
        rows += told["results"]
        if told["next"] is None:
            return rows
        after = f"&after={told['next']}"
        if page < 5:
            between()
    raise AssertionError("the list has no end")


# "x", [], {}, [1,2], ["a", "b", "c", "d"], null, no ASCII, too long
NO_CURSORS = ["x", "W10", "e30", "WzEsMl0", "WyJhIiwgImIiLCAiYyIsICJkIl0", "bnVsbA", "é"]
NO_CURSORS += ["9" * 3000]


@pytest.mark.slow("2 s")
@pytest.mark.parametrize("path", ["alert-rules", "bizzes", "queues", "series"])
@pytest.mark.parametrize("cursor", NO_CURSORS)
def test_what_is_no_cursor_is_refused(path: str, cursor: str, world: World) -> None:
    make_one(path, world)
    refused = Api(make_superuser()).get(f"{path}?after={cursor}")
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_cursor")


def truths() -> list[tuple[str, str]]:
    """The lists that filter by what is true or false, and the name of it."""
    found = []
    for path, operations in published()["paths"].items():
        for each in operations.get("get", {}).get("parameters", ()):
            if each["in"] == "query" and each["schema"].get("type") == "boolean":
                found.append((path.removeprefix("/api/v1/"), each["name"]))
    return found


@pytest.mark.slow("1 s")
def test_what_is_neither_true_nor_false_filters_nothing_away_in_silence(world: World) -> None:
    api = Api(make_superuser())
    asked = [(path, name) for path, name in truths() if "{" not in path]
    assert ("jobs", "has_cron") in asked
    assert ("jobs", "enabled") in asked
    for path, name in asked:
        for value in ("true", "False", "1", "0"):
            assert api.get(f"{path}?{name}={value}").status_code == 200, (path, name, value)
        refused = api.get(f"{path}?{name}=perhaps")
        assert refused.status_code == 400, (path, name, refused.content)
        assert name in refused.content.decode(), (path, refused.content)
