"""Every POST that does something takes an ``Idempotency-Key``, and answers a repeat alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from apps.access.models import SecondFactor, User
from apps.access.states import Role
from apps.agents.models import HostRule
from apps.alerts.models import RuleMute
from apps.configcenter.models import Configuration
from apps.configcenter.services import activate, save_version
from apps.jobs.services import delete_job
from apps.jobs.states import RunState
from apps.projects.models import Project
from apps.projects.services import delete_project
from apps.projects.states import BuildState
from apps.routing.states import ItemState
from apps.runtime.models import IdempotencyKey
from apps.seeds.models import Frontier
from apps.seeds.services import clients
from apps.sources.services.consumption import lease_records
from tests.access.factories import Api, enter, make_superuser, make_user
from tests.access.test_routes import MACHINERY, ROUTES, World, path_of
from tests.access.test_routes import world as world
from tests.agents.factories import make_agent
from tests.alerts.factories import make_channel, make_incident, make_notice
from tests.joblogs.factories import make_group
from tests.jobs.factories import make_host, make_job, make_run
from tests.projects.build_factories import make_build
from tests.requeststore.factories import make_biz
from tests.rest.generated_calls import operations, read_schema
from tests.routing.factories import arrive, moved, row_of
from tests.seeds.resources.factories import make_pool, make_resource, take
from tests.sources.records import publish, sourced

pytestmark = pytest.mark.django_db

# A question changes nothing, so there is nothing that could happen twice.
QUESTIONS = {
    "agents/allocations/preview",
    "alert-rules/preview",
    "bizzes/{pk}/rules/test",
    "config/{pk}/check",
    "frontiers/{pk}/look-up",
    "jobs/schedule/preview",
    "projects/{pk}/tags/preview",
    "projects/{pk}/test-connection",
    "routing/projects/{pk}/explain",
    "routing/projects/{pk}/replay",
    "sources/projects/{pk}/dry-run",
    "sources/projects/{pk}/peek",
}
# Of a secret no copy may be kept, nor a digest of one that a person has thought of. The first
# changes nothing, a repeat of the second does not know the password any more.
SECRETS = {"projects/{pk}/webhook/reveal", "me/password"}
# The seed service, a registry or a store with more in it has to answer: tested where there is one.
ELSEWHERE = {
    "bizzes/{pk}/extract-again": "tests/requeststore",
    "bizzes/{pk}/rebalance": "tests/requeststore",
    "datasets/{dataset}/deliveries/{pk}/deliver-again": "tests/datasets",
    "frontiers/{pk}/add": "tests/seeds/api",
    "frontiers/{pk}/drop-segment": "tests/seeds/api",
    "frontiers/{pk}/extend": "tests/seeds/api",
    "frontiers/{pk}/finish": "tests/seeds/api",
    "frontiers/{pk}/forget": "tests/seeds/api",
    "frontiers/{pk}/give-back": "tests/seeds/api",
    "frontiers/{pk}/grab": "tests/seeds/api",
    "frontiers/{pk}/granularity": "tests/seeds/api",
    "frontiers/{pk}/import": "tests/seeds/api",
    "frontiers/{pk}/lease": "tests/seeds/api",
    "frontiers/{pk}/reopen": "tests/seeds/api",
    "frontiers/{pk}/reopen-failed": "tests/seeds/api",
    "image-trials": "tests/datasets",
    "runs/{run}/replay": "tests/datasets",
    "projects/{pk}/images/refresh": "tests/projects",
    "sample-pages": "tests/requeststore",
}
OF_A_SUPERUSER = {"projects", "projects/{pk}/restore", "memberships"}

JOBS_FILE = """crawlyard_jobs: 1
jobs:
- name: from a file
  spider: yardspider.spiders:SiteSpider
"""


def _dead_item(world: World) -> Any:
    (entry,) = arrive(world.project)
    return row_of(moved(entry, ItemState.FAILED))


def _deleted_job(world: World) -> Any:
    job = make_job(project=world.project)
    delete_job(job=job, actor=world.owner)
    return job


def _deleted_project(world: World) -> Any:
    delete_project(project=world.project, actor=None)
    return world.project


def _run(state: RunState, **fields: Any) -> Callable[[World], Any]:
    return lambda world: make_run(job=make_job(project=world.project), state=state, **fields)


def _sent(world: World) -> Any:
    incident = make_incident(project=world.project)
    return make_notice(project=world.project, incident=incident, state="sent", next_try_at=None)


def _ended_build(world: World) -> Any:
    return make_build(project=_with_git(world), state=BuildState.FAILED)


def _with_git(world: World) -> Project:
    world.project.git_url = "https://git.example.com/news.git"
    world.project.save()
    return world.project


def _saved(world: World) -> Any:
    """A version that is not active, of a configuration with another one that is."""
    sourced(world.project)
    return save_version(
        kind="sources", project_id=world.project.pk, data={}, actor=None, now=timezone.now()
    ).version


def _active(world: World) -> Any:
    """A configuration of which two versions were active, one after the other."""
    activate(version=_saved(world), actor=None, now=timezone.now())
    return Configuration.objects.get(project=world.project, kind="sources")


def _records(world: World) -> dict[str, Any]:
    queue = publish(world.project, 1, 2)
    now = timezone.now()
    taken = lease_records(queue=queue, count=2, seconds=60, holder="me", now=now)
    return {"lease": taken.lease}


def _with_factor(world: World) -> Any:
    user = make_user()
    SecondFactor.objects.create(user=user, secret="JBSWY3DPEHPK3PXP", confirmed_at=timezone.now())
    return user


def _logged_in(world: World) -> Any:
    user = make_user()
    enter(user)
    return user


def _ignored(world: World) -> Any:
    state = {"state": "ignored", "ignored_at": timezone.now()}
    return make_group(make_job(project=world.project), **state)


def _muted(world: World) -> str:
    until = timezone.now() + timedelta(hours=1)
    RuleMute.objects.create(project=world.project, rule="run failed", until=until, by="ada")
    return "run failed"


def _leased(world: World) -> Any:
    resource = make_resource(make_pool(world.project))
    take(resource.pool, timezone.now())
    return resource


# Rows in the state that a call needs, where the usual one is in another.
READY: dict[str, Callable[[World], Any]] = {
    "agents/{pk}/enable": lambda world: make_agent(mode="disabled"),
    "builds/{pk}/rebuild": _ended_build,
    "config/versions/{pk}/activate": _saved,
    "config/{pk}/deactivate": _active,
    "config/{pk}/revert": _active,
    "host-rules/{pk}/resume": lambda world: HostRule.objects.create(host="a.test", stopped=True),
    "jobs/{pk}/pause": lambda world: _run(RunState.RUNNING)(world).job,
    "jobs/{pk}/restore": _deleted_job,
    "jobs/{pk}/resume": lambda world: _run(RunState.PAUSED)(world).job,
    "jobs/{pk}/stop": lambda world: _run(RunState.RUNNING)(world).job,
    "log-errors/{pk}/watch": _ignored,
    "notices/{pk}/resend": _sent,
    "people/{pk}/log-out": _logged_in,
    "people/{pk}/reset-factor": _with_factor,
    "projects/{pk}/restore": _deleted_project,
    "resource-pools/{pk}/lease": lambda world: make_resource(make_pool(world.project)).pool,
    "resources/{pk}/enable": lambda world: make_resource(
        make_pool(world.project), state="disabled"
    ),
    "resources/{pk}/release": _leased,
    "resources/{pk}/return": _leased,
    "resources/{pk}/unban": lambda world: make_resource(make_pool(world.project), state="banned"),
    "routing/items/{pk}/resubmit": _dead_item,
    "run-hosts/{pk}/enable": lambda world: make_host("one", mode="disabled"),
    "runs/{pk}/freeze": _run(RunState.RUNNING),
    "runs/{pk}/pause": _run(RunState.RUNNING),
    "runs/{pk}/restart": _run(RunState.RUNNING),
    "runs/{pk}/resume": _run(RunState.PAUSED),
    "runs/{pk}/thaw": _run(RunState.PAUSED, frozen=True),
    "runs/{pk}/tune": _run(RunState.RUNNING),
}

LEASED = {"id": "1", "ts": 0, "tries": 1}


def of_biz(world: World) -> dict[str, Any]:
    biz = str(make_biz(world.project).pk).partition(".")[2]
    return {"project": world.project.pk, "biz": biz}


BODIES: dict[str, Callable[[World], Any]] = {
    "alert-rules/mute": lambda world: {
        "project": world.project.pk,
        "rule": "run failed",
        "seconds": 3600,
    },
    "alert-rules/unmute": lambda world: {"project": world.project.pk, "rule": _muted(world)},
    "builds": lambda world: {"project": _with_git(world).pk, "tag": "prod/news/1.2"},
    "channels": lambda world: {
        "project": world.project.pk,
        "name": "ops",
        "kind": "mail",
        "settings": {"to": ["ops@example.com"]},
    },
    "run-subscriptions": lambda world: {
        "project": world.project.pk,
        "channel": make_channel(project=world.project).name,
        "when": "end",
    },
    "jobs/{job}/notify-me": lambda world: {"when": "failure", "address": "ann@example.com"},
    "config/versions": lambda world: {
        "project": world.project.pk,
        "kind": "sources",
        "data": {"sources": {}},
    },
    "datasets/{dataset}/deliveries": lambda world: {
        "name": "fresh",
        "kind": "table",
        "options": {"table": "items"},
    },
    "frontiers": lambda world: {"project": world.project.pk, "name": "fresh"},
    "frontiers/{pk}/wipe": lambda world: {
        "confirm": Frontier.objects.get(project=world.project).name
    },
    "host-rules": lambda world: {"host": "slow.example", "concurrency": 1},
    "image-trials/{pk}/activate": lambda world: {"note": "known"},
    "job-links": lambda world: {
        "job": make_job(project=world.project).pk,
        "after": make_job(project=world.project).pk,
    },
    "jobs": lambda world: {
        "project": world.project.pk,
        "name": "fresh",
        "spider": "yardspider.spiders:SiteSpider",
    },
    "jobs/import": lambda world: {"project": world.project.pk, "text": JOBS_FILE},
    "log-policies": lambda world: {"project": world.project.pk, "days": 9},
    "memberships": lambda world: {
        "project": world.project.pk,
        "user": make_user().username,
        "role": "viewer",
    },
    "people": lambda world: {"username": "fresh"},
    "projects": lambda world: {"name": "Fresh", "slug": "fresh"},
    "requests": lambda world: {**of_biz(world), "requests": ["https://example.com/"]},
    "requests/finish": lambda world: {**of_biz(world), "requests": [LEASED]},
    "requests/return": lambda world: {**of_biz(world), "requests": [LEASED]},
    "requests/take": lambda world: {**of_biz(world), "limit": 1},
    "resource-pools": lambda world: {"project": world.project.pk, "name": "fresh"},
    "resource-pools/{pk}/import": lambda world: {
        "text": "name,secret.user\nmail1,me\n",
        "file_format": "csv",
    },
    "resources": lambda world: {
        "pool": make_pool(world.project).pk,
        "name": "mail1",
        "secret": {"user": "me"},
    },
    "resources/{pk}/return": lambda world: {"lease": 1, "outcome": "ok"},
    "routing/items/resubmit": lambda world: {
        "project": world.project.pk,
        "ids": [_dead_item(world).pk],
    },
    "runs/{pk}/tune": lambda world: {"concurrency": 5},
    "saved-filters": lambda world: {
        "path": "/admin/jobs/run/",
        "name": "failed ones",
        "query": "state=failed",
    },
    "source-credentials": lambda world: {"project": world.project.pk, "name": "fresh"},
    "sources/projects/{pk}/marker": lambda world: {"name": "news", "marker": 700},
    "sources/projects/{pk}/acknowledge": _records,
    "sources/projects/{pk}/give-back": _records,
    "tokens": lambda world: {"name": "fresh", "scopes": ["*:read"]},
}
POSTS = {
    route.path.removeprefix("api/v1/"): route
    for route in ROUTES
    if "post" in route.actions and "post" in route.view.http_method_names
}
EFFECTS = sorted(POSTS.keys() - QUESTIONS - SECRETS)
# Names of what is shown once; a repeat has null there, or a placeholder.
ONCE = {"secret", "texts", "password"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TIMEOUT_SECONDS", 0.2)


def address(path: str, world: World) -> str:
    route = POSTS[path]
    if path in READY:
        return route.at(**dict.fromkeys(route.names, READY[path](world).pk))
    return path_of(route, world) if route.names else route.at()


def caller(path: str, world: World) -> Api:
    superuser = path in OF_A_SUPERUSER or f"api/v1/{path}".startswith(MACHINERY)
    return Api(make_superuser() if superuser else world.owner)


def test_the_schema_says_so_of_each() -> None:
    said = {
        each.path.removeprefix("/api/v1/").replace("{id}", "{pk}")
        for each in operations(read_schema())
        if each.method.upper() == "POST"
        and any(header.name == "Idempotency-Key" for header in each.headers)
    }
    assert said == set(EFFECTS)


@pytest.mark.slow("5 s")
@pytest.mark.parametrize("path", EFFECTS)
def test_what_is_no_key_is_refused_by_each(path: str, world: World) -> None:
    refused = caller(path, world).post(address(path, world), Idempotency_Key="no key")
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_idempotency_key")


@pytest.mark.slow("10 s")
@pytest.mark.parametrize("path", sorted(EFFECTS - ELSEWHERE.keys()))
def test_a_repeat_is_answered_alike(path: str, world: World) -> None:
    api, where = caller(path, world), address(path, world)
    body = BODIES.get(path, lambda world: {})(world)
    first = api.post(where, body, Idempotency_Key="k1")
    assert first.status_code in (200, 201, 202, 204), first.content
    again = api.post(where, body, Idempotency_Key="k1")
    assert again.status_code == first.status_code
    assert shown(again) == shown(first)
    if path != "resource-pools/{pk}/lease":
        assert again["Idempotent-Replayed"] == "true"
        changed = api.post(where, {**body, "note": "another"}, Idempotency_Key="k1")
        assert (changed.status_code, changed.json()["code"]) == (422, "idempotency_key_reused")


def shown(answer: Any) -> Any:
    told = answer.json() if answer.content else None
    return {k: v for k, v in told.items() if k not in ONCE} if isinstance(told, dict) else told


def test_no_secret_is_kept_for_a_repeat(world: World) -> None:
    api, pool = Api(world.owner), READY["resource-pools/{pk}/lease"](world)
    resource = api.post(f"resource-pools/{pool.pk}/lease", Idempotency_Key="k1").json()["resource"]
    webhook = api.post(f"projects/{world.project.pk}/webhook/rotate", Idempotency_Key="k1").json()
    kept = str(list(IdempotencyKey.objects.values()))
    assert resource["secret"]["password"] not in kept
    assert webhook["secret"]
    assert webhook["secret"] not in kept


def test_keys_of_leases_are_their_caller_s(world: World) -> None:
    pool = READY["resource-pools/{pk}/lease"](world)
    make_resource(pool)
    path = f"resource-pools/{pool.pk}/lease"
    other: User = make_user(roles={world.project: Role.EDITOR})
    mine = Api(world.owner).post(path, Idempotency_Key="1").json()["resource"]
    theirs = Api(other).post(path, Idempotency_Key="1").json()["resource"]
    assert mine["id"] != theirs["id"]


def test_another_file_is_another_body(world: World) -> None:
    api, where = Api(world.owner), "/api/v1/jobs/import"

    def send(text: str) -> Any:
        file = SimpleUploadedFile("jobs.yaml", text.encode())
        form = {"project": world.project.pk, "file": file}
        return Client().post(where, form, headers=api.headers | {"Idempotency-Key": "k1"})

    first, again = send(JOBS_FILE), send(JOBS_FILE)
    assert first.status_code == 200, first.content
    assert (first.json(), again["Idempotent-Replayed"]) == (again.json(), "true")
    other = send(JOBS_FILE.replace("from a file", "from no file"))
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


def test_the_lists_above_name_what_there_is() -> None:
    named = QUESTIONS | SECRETS | ELSEWHERE.keys() | READY.keys() | BODIES.keys()
    assert named <= POSTS.keys()
