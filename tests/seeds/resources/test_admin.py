"""Pools and resources in the admin: what is shown, who may what, and never a secret."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.messages import get_messages
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Project
from apps.seeds.engine.resource_files import opened
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.states import ResourceState
from tests.access.factories import enter, make_project, make_user, page
from tests.confirmation import confirm, press
from tests.seeds.resources.factories import PASSWORD, make_pool, make_resource

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def editor(project: Project) -> Client:
    return enter(make_user(roles={project: Role.EDITOR}))


def said(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


@pytest.mark.covers("S3.21")
def test_the_lists_say_how_the_pools_and_resources_are(
    project: Project, editor: Client, django_assert_max_num_queries: Any
) -> None:
    pool = make_pool(project, name="accounts")
    later = timezone.now() + timedelta(hours=3, minutes=5)
    make_resource(pool, name="ready", score=0.25, last_used_at=timezone.now())
    make_resource(pool, name="resting", available_at=later, reason="captcha")
    make_resource(
        pool, name="taken", state=ResourceState.LEASED, leased_by="run:7:abc", leased_until=later
    )
    make_resource(pool, name="gone", state=ResourceState.BANNED)
    make_resource(make_pool(), name="of-others")
    with django_assert_max_num_queries(10):
        text = editor.get(page(ResourcePool, "changelist")).content.decode()
    assert "accounts" in text
    with django_assert_max_num_queries(12) as few:
        text = editor.get(page(Resource, "changelist")).content.decode()
    for shown in ("ready", "0.25", "score 25 of 100", "cooling down", "free in 3", "captcha"):
        assert shown in text, shown
    assert "run:7:abc" in text
    assert "banned" in text
    assert "of-others" not in text
    for _ in range(10):
        make_resource(pool)
    with django_assert_max_num_queries(len(few)):
        editor.get(page(Resource, "changelist"))


def test_no_page_has_a_secret(project: Project, editor: Client) -> None:
    pool = make_pool(project)
    resource = make_resource(pool)
    pages = [
        page(Resource, "changelist"),
        page(Resource, "change", resource.pk),
        page(ResourcePool, "changelist"),
        page(ResourcePool, "change", pool.pk),
        page(ResourcePool, "import", pool.pk),
    ]
    for address in pages:
        response = editor.get(address)
        assert response.status_code == 200, address
        assert PASSWORD not in response.content.decode(), address
    export: Any = editor.get(page(ResourcePool, "export", pool.pk))
    assert PASSWORD not in b"".join(export.streaming_content).decode()


def test_adding_and_changing_goes_by_the_services(project: Project, editor: Client) -> None:
    pool = make_pool(project)
    form = {"pool": pool.pk, "name": "ann", "secret": f'{{"password": "{PASSWORD}"}}'}
    assert editor.post(page(Resource, "add"), form).status_code == 302
    made = Resource.objects.get(pool=pool)
    assert opened(made.secret) == {"password": PASSWORD}
    kept = editor.post(page(Resource, "change", made.pk), {"name": "bob", "secret": ""})
    assert kept.status_code == 302
    made = Resource.objects.get(pk=made.pk)
    assert (made.name, opened(made.secret)) == ("bob", {"password": PASSWORD})
    wrong = {"pool": pool.pk, "name": "carl", "secret": f'{{"k": ["{PASSWORD}"]}}'}
    refused = editor.post(page(Resource, "add"), wrong)
    assert refused.status_code == 200
    assert "k of the secret is no text" in refused.content.decode()
    assert PASSWORD not in refused.content.decode()
    actions = list(AuditRecord.objects.order_by("pk").values_list("action", flat=True))[-2:]
    assert actions == ["seeds.add_resource", "seeds.change_resource"]
    assert PASSWORD not in str(list(AuditRecord.objects.values("before", "after")))


@pytest.mark.covers("S3.21")
def test_a_file_is_taken_whole_or_not_at_all(project: Project, editor: Client) -> None:
    pool = make_pool(project)
    address = page(ResourcePool, "import", pool.pk)
    text = f"name,user,password\nann,a,{PASSWORD}\n,b,{PASSWORD}\n"
    wrong = editor.post(address, {"text": text, "kind": "csv"})
    assert "Line 3: a name is needed." in wrong.content.decode()
    assert PASSWORD not in wrong.content.decode()
    assert not pool.resources.exists()
    nothing = editor.post(address, {"kind": "csv"})
    assert "Choose a file" in nothing.content.decode()
    upload = SimpleUploadedFile("more.jsonl", b'{"name": "ann", "secret": "x"}\n')
    done = editor.post(address, {"file": upload, "kind": "csv"})
    assert done.status_code == 302
    assert said(done) == ["Imported: 1 added, 0 changed, 0 unchanged."]
    assert pool.resources.get().name == "ann"


@pytest.mark.slow("2 s")
@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [
        ("ban", "free", "banned"),
        ("unban", "banned", "free"),
        ("disable", "free", "disabled"),
        ("enable", "disabled", "free"),
        ("release", "leased", "free"),
        ("reset", "free", "free"),
    ],
)
def test_buttons_ask_first_and_bulk_actions_count(
    verb: str, before: str, after: str, project: Project
) -> None:
    operator = enter(make_user(roles={project: Role.OPERATOR}))
    pool = make_pool(project)
    one, two = make_resource(pool, state=before), make_resource(pool, state=before)
    address = page(Resource, verb, one.pk)
    assert operator.get(address).status_code == 200
    assert Resource.objects.get(pk=one.pk).state == before
    assert confirm(operator, address).status_code == 302
    assert Resource.objects.get(pk=one.pk).state == after
    ticked = {"action": f"{verb}_selected", ACTION_CHECKBOX_NAME: [one.pk, two.pk]}
    done = press(operator, page(Resource, "changelist"), ticked)
    assert Resource.objects.get(pk=two.pk).state == after
    expected = ["1 resource updated.", "1 resource skipped: its state does not allow this."]
    assert (
        said(done)[-2:] == expected if verb != "reset" else said(done)[-1] == "2 resources updated."
    )
    done_times = 3 if verb == "reset" else 2
    assert AuditRecord.objects.filter(action=f"seeds.{verb}_resource").count() == done_times


def test_viewers_look_and_touch_nothing(project: Project) -> None:
    viewer = enter(make_user(roles={project: Role.VIEWER}))
    pool = make_pool(project)
    resource = make_resource(pool)
    assert viewer.get(page(Resource, "change", resource.pk)).status_code == 200
    for address in (
        page(Resource, "ban", resource.pk),
        page(ResourcePool, "import", pool.pk),
        page(Resource, "add"),
    ):
        assert viewer.post(address, {}).status_code == 403, address
    ticked = {"action": "ban_selected", ACTION_CHECKBOX_NAME: [resource.pk]}
    viewer.post(page(Resource, "changelist"), ticked)
    assert Resource.objects.get(pk=resource.pk).state == ResourceState.FREE


def test_strangers_see_nothing(project: Project) -> None:
    stranger = enter(make_user(roles={make_project(): Role.ADMIN}))
    pool = make_pool(project)
    resource = make_resource(pool)
    assert stranger.get(page(ResourcePool, "import", pool.pk)).status_code == 404
    assert stranger.get(page(ResourcePool, "export", pool.pk)).status_code == 404
    stranger.post(page(Resource, "ban", resource.pk))
    ticked = {"action": "ban_selected", ACTION_CHECKBOX_NAME: [resource.pk]}
    stranger.post(page(Resource, "changelist"), ticked)
    assert Resource.objects.get(pk=resource.pk).state == ResourceState.FREE
