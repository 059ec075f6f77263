"""Every form and every action of the admin leaves a record of what there was and what there is.

The pages come from the admin itself: one that is added without a line here fails these tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Group
from django.db.models import Model
from django.test import Client, RequestFactory
from django.utils import timezone
from lxml import html

from apps.access.models import ApiToken, SecondFactor, User
from apps.agents.models import Agent, HostRule, HostState
from apps.alerts.models import Channel, Incident, Notice
from apps.configcenter.models import Configuration
from apps.joblogs.models import LogPolicy
from apps.jobs.models import DeletedJob, Host, Job, Run
from apps.jobs.services import delete_job
from apps.jobs.states import RunState
from apps.projects.models import Build, DeletedProject, Project
from apps.projects.services import delete_project
from apps.projects.states import BuildState
from apps.runtime.models import DeadLetter, OutboxMessage
from apps.seeds.models import Frontier, Resource, ResourcePool
from apps.sources.models import Credential
from tests.access.factories import enter, make_project, make_superuser, make_token, make_user, page
from tests.access.test_confirmation import MAKERS, _actions
from tests.agents.factories import make_agent
from tests.alerts.factories import make_channel, make_incident, make_notice
from tests.confirmation import press
from tests.dashboard.machinery import make_letter, make_outgoing
from tests.jobs.factories import make_host, make_job, make_run
from tests.plugins.audit_trail import Watched
from tests.projects.build_factories import make_build
from tests.seeds.factories import make_frontier
from tests.seeds.resources.factories import make_pool, make_resource, take

pytestmark = pytest.mark.django_db

Make = Callable[[], Model]


def _twice(make: Make) -> Callable[[], list[Model]]:
    return lambda: [make(), make()]


def _deleted_job() -> Model:
    job = make_job()
    delete_job(job=job, actor=None)
    return DeletedJob.objects.get(pk=job.pk)


def _deleted_project() -> Model:
    project = make_project()
    delete_project(project=project, actor=None)
    return DeletedProject.objects.get(pk=project.pk)


def _leased() -> Model:
    resource = make_resource()
    take(resource.pool, timezone.now())
    return resource


def _sent() -> Model:
    project = make_project()
    incident = make_incident(project=project)
    channel = make_channel(project=project)
    return make_notice(incident=incident, channel=channel, state="sent", next_try_at=None)


def _locked_out() -> Model:
    return AccessAttempt.objects.create(
        username=make_user().username,
        ip_address="203.0.113.9",
        failures_since_start=99,
        get_data="",
        post_data="",
    )


def _host_state() -> Model:
    number = HostState.objects.count()
    return HostState.objects.create(
        host=f"{number}.example.com", center="c1", reported_at=timezone.now()
    )


def _credential() -> Model:
    return Credential.objects.create(project=make_project(), name="vendor")


def _policy() -> Model:
    return LogPolicy.objects.create(project=make_project(), days=9)


def _rule(**fields: Any) -> Model:
    return HostRule.objects.create(host=f"{HostRule.objects.count()}.example.org", **fields)


def _with_factor() -> Model:
    user = make_user()
    SecondFactor.objects.create(user=user, secret="JBSWY3DPEHPK3PXP", confirmed_at=timezone.now())
    return user


def _logged_in() -> Model:
    user = make_user()
    enter(user)
    return user


# One to change and to delete, what is changed, and what a new one is made of. None: no such form.
Form = tuple[Make | None, dict[str, str] | None, Callable[[], dict[str, Any]]]
FORMS: dict[type[Model], Form] = {
    User: (
        make_user,
        {"first_name": "Ada"},
        lambda: {"username": "fresh", "password1": "correct horse", "password2": "correct horse"},
    ),
    Group: (
        lambda: Group.objects.create(name="readers"),
        {"name": "others"},
        lambda: {"name": "fresh"},
    ),
    ApiToken: (None, None, lambda: {"name": "nightly"}),
    Channel: (
        lambda: make_channel(project=make_project()),
        {"language": "zh-hans"},
        lambda: {"name": "fresh", "own_to": "ops@example.com"},
    ),
    Project: (
        make_project,
        {"description": "told anew"},
        lambda: {"name": "Fresh", "slug": "fresh"},
    ),
    Credential: (
        _credential,
        {"username": "me"},
        lambda: {"project": make_project().pk, "name": "fresh"},
    ),
    LogPolicy: (_policy, {"days": "8"}, lambda: {"project": make_project().pk, "days": "7"}),
    HostRule: (
        lambda: HostRule.objects.create(host="example.com"),
        {"notes": "told anew"},
        lambda: {"host": "example.net", "concurrency": "1"},
    ),
    Job: (
        make_job,
        {"notes": "told anew"},
        lambda: {
            "project": make_project().pk,
            "name": "fresh",
            "spider": "yardspider.spiders:SiteSpider",
        },
    ),
    Frontier: (
        make_frontier,
        {"description": "told anew"},
        lambda: {"project": make_project().pk, "name": "fresh"},
    ),
    ResourcePool: (
        make_pool,
        {"description": "told anew"},
        lambda: {"project": make_project().pk, "name": "fresh"},
    ),
    Resource: (
        make_resource,
        {"name": "other"},
        lambda: {"pool": make_pool().pk, "name": "fresh", "secret": '{"user": "me"}'},
    ),
}
ADD_QUERY: dict[type[Model], str] = {Channel: "?kind=mail"}
# Their page to add is one of its own, and audited by the tests of its app.
ADDED_ELSEWHERE: dict[type[Model], str] = {Configuration: "tests/configcenter"}

ACTIONS: dict[tuple[type[Model], str], Callable[[], list[Model]]] = {
    **MAKERS,
    (Group, "delete_selected"): lambda: [
        Group.objects.create(name="one"),
        Group.objects.create(name="two"),
    ],
    (AccessAttempt, "unlock_selected"): _twice(_locked_out),
    (DeadLetter, "requeue_selected"): _twice(make_letter),
    (OutboxMessage, "retry_selected"): _twice(make_outgoing),
    (Build, "rebuild_selected"): _twice(lambda: make_build(state=BuildState.FAILED)),
    (DeletedProject, "restore_selected"): _twice(_deleted_project),
    (DeletedJob, "restore_selected"): _twice(_deleted_job),
    (Incident, "acknowledge_selected"): _twice(make_incident),
    (Incident, "close_selected"): _twice(make_incident),
    (Notice, "send_again_selected"): _twice(_sent),
    (LogPolicy, "delete_selected"): _twice(_policy),
    (Run, "pause_selected"): _twice(lambda: make_run(state=RunState.RUNNING)),
    (Run, "resume_selected"): _twice(lambda: make_run(state=RunState.PAUSED)),
    (Agent, "enable_selected"): _twice(lambda: make_agent(mode="disabled")),
    (Agent, "drain_selected"): _twice(make_agent),
    (Agent, "disable_selected"): _twice(make_agent),
    (HostRule, "stop_selected"): _twice(_rule),
    (HostRule, "resume_selected"): _twice(lambda: _rule(stopped=True)),
    (HostState, "stop_selected"): _twice(_host_state),
    (HostState, "resume_selected"): lambda: [_stopped(_host_state()) for _each in range(2)],
    (Host, "enable_selected"): lambda: [make_host(name, mode="disabled") for name in "ab"],
    (Host, "drain_selected"): lambda: [make_host(name) for name in "ab"],
    (Host, "disable_selected"): lambda: [make_host(name) for name in "ab"],
    (Job, "start_now"): _twice(make_job),
    (Job, "enable"): _twice(lambda: make_job(enabled=False)),
    (Job, "disable"): _twice(make_job),
    (Job, "pause_runs"): _twice(lambda: make_run(state=RunState.RUNNING).job),
    (Job, "resume_runs"): _twice(lambda: make_run(state=RunState.PAUSED).job),
    (Job, "clone_selected"): _twice(make_job),
    (ResourcePool, "delete_selected"): _twice(make_pool),
    (Resource, "delete_selected"): _twice(make_resource),
    (Resource, "unban_selected"): _twice(lambda: make_resource(state="banned")),
    (Resource, "disable_selected"): _twice(make_resource),
    (Resource, "enable_selected"): _twice(lambda: make_resource(state="disabled")),
    (Resource, "release_selected"): _twice(_leased),
}
CHANGE_NOTHING = {(Job, "export_yaml"), (Job, "export_csv"), (Run, "export_csv")}
# A message is sent, and no row is another one.
TELL = {(Agent, "exit_selected")}
# The seed service has to answer; tests/seeds/admin.
AWAY = {(Frontier, "delete_selected")}
# Buttons on the page of one; with what is sent to those that ask for something.
BUTTONS: dict[tuple[type[Model], str], tuple[Make, dict[str, str]]] = {
    (User, "reset_factor"): (_with_factor, {}),
    (User, "log_out"): (_logged_in, {}),
    (Channel, "send_test"): (lambda: make_channel(project=make_project()), {}),
    (DeletedProject, "restore"): (_deleted_project, {}),
    (DeletedJob, "restore"): (_deleted_job, {}),
    (Resource, "ban"): (make_resource, {"reason": "blocked"}),
    (Resource, "unban"): (lambda: make_resource(state="banned"), {}),
    (Resource, "disable"): (make_resource, {}),
    (Resource, "enable"): (lambda: make_resource(state="disabled"), {}),
    (Resource, "release"): (_leased, {}),
    (Resource, "reset"): (make_resource, {}),
}
# Of the person who presses them: of their own tokens alone.
OWN_BUTTONS = {(ApiToken, "rotate"): {"overlap": "0"}, (ApiToken, "revoke"): {}}


def _stopped(state: Model) -> Model:
    HostRule.objects.create(host=state.host, stopped=True)  # type: ignore[attr-defined]
    return state


@pytest.fixture
def boss() -> User:
    return make_superuser()


@pytest.fixture
def client(boss: User) -> Client:
    return enter(boss)


def _named(values: Mapping[tuple[type[Model], str], Any]) -> Any:
    return pytest.mark.parametrize(
        ("model", "name"), values, ids=[f"{m._meta.label_lower}-{n}" for m, n in values]
    )


def _filled(client: Client, address: str) -> dict[str, Any]:
    """What a browser would send of the form as it is."""
    shown = client.get(address)
    assert shown.status_code == 200, (address, shown.status_code)
    (form,) = html.fromstring(shown.content.decode()).xpath("//form[contains(@id, '_form')]")
    values: dict[str, Any] = {}
    for name, value in form.form_values():
        values.setdefault(name, []).append(value)
    return values


def _send(client: Client, address: str, values: Mapping[str, Any]) -> None:
    answer = client.post(address, values)
    told = html.fromstring(answer.content.decode() or "<p/>").xpath("//*[contains(@class,'error')]")
    assert answer.status_code == 302 or b"new-token" in answer.content, [
        each.text_content().strip() for each in told
    ]


def _entry_of(watched: list[Watched], model: type[Model], boss: User) -> Any:
    one = watched[-1]
    assert one.faults() == []
    label = model._meta.concrete_model._meta.label_lower  # type: ignore[union-attr]
    found = [entry for entry in one.entries if entry.object_type == label]
    assert found, [f"{entry.action} {entry.object_type}" for entry in one.entries]
    assert {entry.actor_id for entry in one.entries} == {boss.pk}
    return found[-1]


@pytest.mark.slow("7 s")
@pytest.mark.parametrize("model", FORMS, ids=lambda model: model._meta.label_lower)
def test_forms(model: type[Model], client: Client, boss: User, watched: list[Watched]) -> None:
    make, change, add = FORMS[model]
    address = page(model, "add") + ADD_QUERY.get(model, "")
    _send(client, address, _filled(client, address) | add() | {"_save": "1"})
    made = _entry_of(watched, model, boss)
    assert (bool(made.object_id), made.before, bool(made.after)) == (True, None, True)
    if make is None or change is None:
        return
    obj = make()
    address = page(model, "change", obj.pk)
    _send(client, address, _filled(client, address) | change | {"_save": "1"})
    changed = _entry_of(watched, model, boss)
    assert changed.object_id == str(obj.pk)
    ((name, value),) = change.items()
    assert changed.before != changed.after
    # Of what is sealed only that it is another.
    assert model is Credential or str(changed.after[name]) == value
    if model is Frontier:
        return
    _send(client, page(model, "delete", obj.pk), {"post": "yes"})
    gone = _entry_of(watched, model, boss)
    assert (gone.object_id, bool(gone.before)) == (str(obj.pk), True)


@pytest.mark.slow("10 s")
@_named(ACTIONS)
def test_actions(
    model: type[Model], name: str, client: Client, boss: User, watched: list[Watched]
) -> None:
    rows = ACTIONS[model, name]()
    chosen = {"action": name, ACTION_CHECKBOX_NAME: [row.pk for row in rows]}
    assert press(client, page(model, "changelist"), chosen).status_code == 302
    entries = watched[-1].entries
    assert watched[-1].faults() == []
    # Each of them by itself, and what there was or is.
    # Who is let in again is told by name and address: the row itself is gone.
    about = {(entry.object_type, entry.object_id or str(entry.after)) for entry in entries}
    assert len(about) >= len(rows)
    assert {entry.actor_id for entry in entries} == {boss.pk}
    told = [(each.action, each.before, each.after) for each in entries]
    assert (model, name) in TELL or all(before or after for _action, before, after in told), told


@pytest.mark.slow("5 s")
@_named(BUTTONS | OWN_BUTTONS)
def test_buttons(
    model: type[Model], name: str, client: Client, boss: User, watched: list[Watched]
) -> None:
    if (model, name) in OWN_BUTTONS:
        obj: Model = make_token(boss).token
        sent = OWN_BUTTONS[model, name]
    else:
        make, sent = BUTTONS[model, name]
        obj = make()
    answer = press(client, page(model, name, obj.pk), sent)
    assert answer.status_code == 302 or b"new-token" in answer.content
    entry = _entry_of(watched, model, boss)
    assert entry.object_id == str(obj.pk)
    assert entry.before or entry.after


def test_every_form_action_and_button_is_here() -> None:
    request = RequestFactory().get("/")
    request.user = User(username="all", is_superuser=True, is_staff=True, is_active=True)
    pages = admin.site._registry.items()
    adds = {model for model, each in pages if each.has_add_permission(request)}
    assert adds == FORMS.keys() | ADDED_ELSEWHERE.keys()
    changes = {model for model, each in pages if each.has_change_permission(request)}
    changes |= {model for model, each in pages if each.has_delete_permission(request)}
    assert changes == {model for model, (make, _change, _add) in FORMS.items() if make}
    actions = {(model, name) for model, name, _function in _actions()}
    assert actions == ACTIONS.keys() | CHANGE_NOTHING | AWAY
    buttons = {(model, name) for model, each in pages for name in each.actions_detail or ()}
    assert buttons == BUTTONS.keys() | OWN_BUTTONS.keys()
    others = ("actions_list", "actions_row", "actions_submit_line")
    assert not [each for _model, each in pages for name in others if getattr(each, name, None)]
