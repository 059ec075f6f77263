"""What destroys or throws away asks first. The actions are read from the admin, so none is
forgotten.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import Model
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from apps.access.models import ApiToken, AuditRecord, User
from apps.access.states import Role
from apps.agents.models import Agent, HostRule
from apps.alerts.models import Channel
from apps.jobs.models import Host, Job, Run
from apps.jobs.states import RunState
from apps.projects.models import Build, Project
from apps.projects.states import BuildState
from apps.runtime.models import Daemon, DeadLetter, OutboxMessage
from apps.seeds.models import Resource
from apps.sources.models import Credential
from tests.access.factories import enter, make_project, make_superuser, make_token, make_user, page
from tests.agents.factories import make_agent
from tests.alerts.factories import make_channel
from tests.confirmation import confirm, fields_of, is_asked
from tests.dashboard.machinery import make_outgoing
from tests.joblogs.factories import make_build
from tests.jobs.factories import make_host, make_job, make_run
from tests.plugins.audit_trail import Watched
from tests.seeds.resources.factories import make_pool, make_resource

pytestmark = pytest.mark.django_db

# What nothing is lost by: it can be taken back, or adds something. The others ask.
HARMLESS = {
    "acknowledge_selected",
    "clone_selected",
    "close_selected",
    "disable",
    "disable_selected",
    "drain_selected",
    "enable",
    "enable_selected",
    "export_csv",
    "export_yaml",
    "pause_runs",
    "pause_selected",
    "rebuild_selected",
    "requeue_selected",
    "restore_selected",
    "resume_runs",
    "resume_selected",
    "retry_selected",
    "send_again_selected",
    "start_now",
    "stop_selected of agents.hostrule",
    "stop_selected of agents.hoststate",
    "unban_selected",
    "unlock_selected",
}


def _actions() -> list[tuple[type[Model], str, Any]]:
    request = RequestFactory().get("/")
    request.user = User(username="all", is_superuser=True, is_staff=True, is_active=True)
    return [
        (model, name, function)
        for model, model_admin in admin.site._registry.items()
        for name, (function, _name, _words) in model_admin.get_actions(request).items()
    ]


def _is_harmless(model: type[Model], name: str) -> bool:
    return name in HARMLESS or f"{name} of {model._meta.label_lower}" in HARMLESS


def test_every_action_asks_or_is_known_to_be_harmless() -> None:
    actions = _actions()
    asks = {(model, name) for model, name, function in actions if hasattr(function, "asks_first")}
    assert len(asks) > 15
    silent = {
        f"{name} of {model._meta.label_lower}"
        for model, name, _function in actions
        if (model, name) not in asks and not _is_harmless(model, name)
    }
    assert silent == set()
    known = {name for _model, name, _function in actions}
    known |= {f"{name} of {model._meta.label_lower}" for model, name, _function in actions}
    assert known >= HARMLESS
    assert not {name for model, name in asks if _is_harmless(model, name)}


def _letters() -> list[Model]:
    return [
        DeadLetter.objects.create(
            message_id=f"m{number}",
            queue="work",
            reason="no such job",
            body=b"{}",
            body_size=2,
            died_at=timezone.now(),
        )
        for number in range(2)
    ]


def _daemons() -> list[Model]:
    now = timezone.now()
    return [
        Daemon.objects.create(
            kind="run_center",
            name=name,
            boot=name,
            host="h",
            pid=1,
            state="stopped",
            started_at=now,
            beat_at=now,
        )
        for name in ("one", "two")
    ]


def _of_one(make: Any) -> list[Model]:
    return [make(0), make(1)]


MAKERS: dict[tuple[type[Model], str], Any] = {
    (DeadLetter, "drop_selected"): _letters,
    (OutboxMessage, "drop_selected"): lambda: _of_one(lambda n: make_outgoing()),
    (Daemon, "forget_selected"): _daemons,
    (Host, "forget_selected"): lambda: _of_one(lambda n: make_host(f"host-{n}")),
    (Job, "stop_runs"): lambda: [
        make_run(job=make_job(), state=RunState.RUNNING).job for _each in range(2)
    ],
    (Job, "delete_selected"): lambda: _of_one(lambda n: make_job(name=f"job {n}")),
    (Project, "delete_selected"): lambda: _of_one(lambda n: make_project()),
    (Run, "stop_selected"): lambda: _of_one(lambda n: make_run(state=RunState.RUNNING)),
    (Run, "restart_selected"): lambda: _of_one(lambda n: make_run(state=RunState.RUNNING)),
    (Build, "cancel_selected"): lambda: _of_one(lambda n: make_build(state=BuildState.RUNNING)),
    (Agent, "exit_selected"): lambda: _of_one(lambda n: make_agent(name=f"agent-{n}")),
    (HostRule, "delete_selected"): lambda: _of_one(
        lambda n: HostRule.objects.create(host=f"{n}.example.com")
    ),
    (ApiToken, "revoke_selected"): lambda: _of_one(lambda n: make_token(make_user()).token),
    (User, "delete_selected"): lambda: _of_one(lambda n: make_user()),
    (Channel, "delete_selected"): lambda: _of_one(
        lambda n: make_channel(project=make_project(), name=f"ops-{n}")
    ),
    (Credential, "delete_selected"): lambda: _of_one(
        lambda n: Credential.objects.create(project=make_project(), name=f"vendor-{n}")
    ),
    (Resource, "ban_selected"): lambda: _of_one(lambda n: make_resource(make_pool(make_project()))),
    (Resource, "reset_selected"): lambda: _of_one(
        lambda n: make_resource(make_pool(make_project()))
    ),
}
# They can be undone, so nothing has to be typed.
UNDONE = {(Job, "delete_selected"), (Project, "delete_selected"), (Resource, "ban_selected")}


def _states(rows: list[Model]) -> list[Any]:
    model = type(rows[0])
    stored = model._default_manager.filter(pk__in=[row.pk for row in rows])
    return list(stored.order_by("pk").values())


@pytest.mark.slow("25 s")
@pytest.mark.parametrize(
    ("model", "action"), MAKERS, ids=[f"{m._meta.label_lower}-{a}" for m, a in MAKERS]
)
def test_it_names_what_goes_and_does_nothing_before_it_is_told_to(
    model: type[Model], action: str, watched: list[Watched]
) -> None:
    client, rows = enter(make_superuser()), MAKERS[model, action]()
    trail = AuditRecord.objects.count()
    where, before = page(model, "changelist"), _states(rows)
    chosen = {"action": action, ACTION_CHECKBOX_NAME: [row.pk for row in rows]}

    client.get(where, chosen)
    asked = client.post(where, chosen)
    assert asked.status_code == 200
    assert is_asked(asked)
    text = asked.content.decode()
    assert asked.context_data["count"] == 2
    assert sorted(asked.context_data["names"]) == sorted(str(row) for row in rows)
    types = (model, action) not in UNDONE
    assert ("Type 2 to continue" in text) == types

    fields = fields_of(asked)
    wrong: list[dict[str, Any]] = [fields | {"confirmed": "made up"}, chosen | {"confirm": "yes"}]
    wrong.append(fields | {ACTION_CHECKBOX_NAME: [rows[0].pk]})
    if types:
        wrong += [{k: v for k, v in fields.items() if k != "typed"}, fields | {"typed": "3"}]
    for each in wrong:
        again = client.post(where, each)
        assert is_asked(again), each
    assert _states(rows) == before
    assert AuditRecord.objects.count() == trail
    # The seal is of one person.
    assert is_asked(enter(make_superuser()).post(where, fields))

    assert client.post(where, fields).status_code == 302
    # Each of them by itself, by whom, and in which request.
    entries = watched[-1].entries
    assert watched[-1].faults() == []
    assert len({entry.object_id for entry in entries}) >= 2
    assert all(entry.actor_id for entry in entries)
    assert AuditRecord.objects.count() > trail


@pytest.mark.slow("2 s")
def test_one_is_not_counted_and_many_are_named_by_the_first() -> None:
    client = enter(make_superuser())
    job = make_job()
    runs = [make_run(job=job, state=RunState.RUNNING) for _each in range(12)]
    where = page(Run, "changelist")
    one = client.post(where, {"action": "stop_selected", ACTION_CHECKBOX_NAME: [runs[0].pk]})
    assert is_asked(one)
    assert "to go on" not in one.content.decode()
    across = {"action": "stop_selected", "select_across": "1", ACTION_CHECKBOX_NAME: [runs[0].pk]}
    asked = client.post(where, across)
    assert asked.context_data["count"] == 12
    assert "and 2 more" in asked.content.decode()
    # One more has come since: what is done would not be what was asked about.
    make_run(job=job, state=RunState.RUNNING)
    changed = client.post(where, fields_of(asked))
    assert "The selection has changed meanwhile" in changed.content.decode()
    assert not Run.objects.exclude(state=RunState.RUNNING).exists()
    assert client.post(where, fields_of(changed)).status_code == 302
    assert not Run.objects.exclude(state=RunState.STOPPING).exists()


def test_what_belongs_to_it_is_counted() -> None:
    client, person = enter(make_superuser()), make_user(roles={make_project(): Role.VIEWER})
    chosen = {"action": "delete_selected", ACTION_CHECKBOX_NAME: [person.pk]}
    asked = client.post(page(User, "changelist"), chosen)
    assert "Also affected:" in asked.content.decode()
    assert confirm(client, page(User, "changelist"), chosen).status_code == 302
    assert not User.objects.filter(pk=person.pk).exists()


def test_deleting_many_is_all_or_nothing() -> None:
    people = [make_superuser(), make_superuser()]
    chosen = {"action": "delete_selected", ACTION_CHECKBOX_NAME: [each.pk for each in people]}
    client = enter(people[0])
    assert confirm(client, page(User, "changelist"), chosen).status_code == 302
    # The second would have been the last: the first stays, too, and nothing says it went.
    assert User.objects.filter(is_superuser=True).count() == 2
    assert not AuditRecord.objects.filter(action="access.delete_user").exists()


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("name", ["jobs_run_stop", "jobs_run_restart", "jobs_run_freeze"])
def test_buttons_of_one_ask_as_well(name: str, client: Client) -> None:
    run = make_run(state=RunState.RUNNING)
    client = enter(make_user(roles={run.job.project: Role.OPERATOR}))
    address = reverse(f"admin:{name}", args=[run.pk])
    assert client.get(address).status_code == 405
    asked = client.post(address)
    assert is_asked(asked)
    other = make_run(job=run.job, state=RunState.RUNNING)
    # The seal of one is none for another.
    assert is_asked(client.post(reverse(f"admin:{name}", args=[other.pk]), fields_of(asked)))
    before = _states([run])
    assert (before[0]["state"], before[0]["freeze_wanted"]) == (RunState.RUNNING, False)
    assert client.post(address, fields_of(asked)).status_code == 302
    assert _states([run]) != before
