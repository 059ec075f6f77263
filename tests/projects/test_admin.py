"""The pages of projects and deliveries."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.messages import get_messages
from django.test import Client

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.engine.signatures import registry_token
from apps.projects.models import Build, Delivery, Image, Project
from tests.access.factories import enter, make_superuser, make_user, page
from tests.confirmation import confirm
from tests.plugins.git_server import GitServer
from tests.projects.factories import deliver, make_delivery, make_git_project
from tests.projects.registry_double import LOOPBACK, running_registry
from tests.projects.webhooks import SECRET, Signed, github

pytestmark = pytest.mark.django_db
FORM: dict[str, Any] = {
    "name": "News",
    "slug": "news",
    "description": "",
    "allowed_networks": "",
    "git_url": "https://git.example.com/team/spiders.git",
    "git_username": "robot",
    "git_password": "git pass word",
    "default_branch": "main",
    "tag_template": "{release}/{name}/{version}",
    "webhook_secret": "",
    "builds_enabled": "on",
    "dockerfile": "Dockerfile",
    "build_script": "FROM scratch\n",
    "build_arguments": "PYTHON=3.12\nEMPTY=\nURL=https://x/?a=b",
    "build_timeout_seconds": "1800",
    "max_image_bytes": "100",
    "registry_url": "",
    "registry_repository": "",
    "registry_username": "",
    "registry_password": "",
    "keep_days": "90",
    "keep_runs": "",
    "keep_bytes": "3",
    "memberships-TOTAL_FORMS": 0,
    "memberships-INITIAL_FORMS": 0,
}


def member(project: Project, role: Role) -> Client:
    return enter(make_user(roles={project: role}))


def at(project: Project, what: str) -> str:
    return f"/admin/projects/project/{project.pk}/{what}"


def text_of(response: Any) -> str:
    assert response.status_code == 200, response
    text: str = response.content.decode()
    return text


def said(response: Any) -> str:
    return " ".join(str(message) for message in get_messages(response.wsgi_request))


@pytest.mark.slow("1 s")
@pytest.mark.covers("S1.1")
def test_a_project_is_added_with_its_git_settings_and_a_secret() -> None:
    client = enter(make_superuser())
    # What the form proposes, so that saving it unchanged works.
    assert 'name="max_image_bytes" value="4096"' in text_of(client.get(page(Project, "add")))
    assert client.post(page(Project, "add"), FORM).status_code == 302
    project = Project.objects.get(slug="news")
    assert project.git_password == "git pass word"
    assert project.build_arguments == {"PYTHON": "3.12", "EMPTY": "", "URL": "https://x/?a=b"}
    assert (project.max_image_bytes, project.build_script) == (100 * 1024**2, "FROM scratch\n")
    assert (project.keep_days, project.keep_runs, project.keep_bytes) == (90, None, 3 * 1024**2)
    assert project.webhook_secret.startswith("whsec_")
    shown = text_of(client.get(page(Project, "change", project.pk)))
    assert "git pass word" not in shown
    assert project.webhook_secret not in shown
    assert "/webhooks/news/" in shown
    trail = str(list(AuditRecord.objects.values()))
    assert "git pass word" not in trail
    assert project.webhook_secret not in trail
    # Nothing typed keeps what is stored, and is no change.
    again = FORM | {"git_password": ""}
    assert client.post(page(Project, "change", project.pk), again).status_code == 302
    trail = AuditRecord.objects.filter(action="projects.change_project")
    assert not list(trail.values_list("before", "after"))
    project.refresh_from_db()
    assert project.git_password == "git pass word"


def test_a_size_that_rest_set_to_the_byte_stays() -> None:
    sizes = {"max_image_bytes": 100 * 1024**2 + 7, "keep_bytes": 3 * 1024**2 + 5}
    project = make_git_project(slug="news", name="News", **sizes)
    client = enter(make_superuser())
    assert client.post(page(Project, "change", project.pk), FORM).status_code == 302
    project.refresh_from_db()
    assert {name: getattr(project, name) for name in sizes} == sizes


@pytest.mark.slow("6 s")
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"git_url": "ext::sh -c id"}, "contains a space"),
        ({"git_url": "git@example.com:x/y.git"}, "ssh://git@example.com/x/y.git"),
        ({"git_url": "http://169.254.169.254/x.git"}, "cloud metadata service"),
        ({"tag_template": "{release}{version}"}, "A separator is missing"),
        ({"default_branch": "--upload-pack=x"}, "which is not allowed"),
        ({"dockerfile": "../x"}, "inside the repository"),
        ({"build_arguments": "A=1\nB"}, "Line 2"),
        ({"build_arguments": "A=1\nA=2"}, "occurs twice"),
        ({"build_arguments": "a b=1"}, "not a valid name of a build argument"),
        ({"build_timeout_seconds": "1"}, "10"),
        ({"max_image_bytes": "0"}, "1"),
        ({"registry_url": "https://registry.example.com/v2"}, "Enter only the host"),
        ({"webhook_secret": "short"}, "at least 16"),
    ],
)
def test_bad_settings_are_refused_with_the_reason(changed: dict[str, str], told: str) -> None:
    response = enter(make_superuser()).post(page(Project, "add"), FORM | changed)
    assert told in text_of(response)
    assert not Project.objects.filter(slug="news").exists()


@pytest.mark.covers("S1.2")
def test_the_secret_is_shown_on_demand() -> None:
    project = make_git_project()
    editor = member(project, Role.EDITOR)
    shown = text_of(editor.get(at(project, "webhook")))
    assert SECRET not in shown
    for text in ("X-Hub" not in shown, "Payload URL", "Secret token", "Target URL", "openssl"):
        assert text is True or text in shown
    revealed = editor.post(at(project, "webhook"))
    assert SECRET in text_of(revealed)
    assert registry_token(SECRET) in text_of(revealed)
    assert "no-store" in revealed["Cache-Control"]
    assert AuditRecord.objects.filter(action="projects.reveal_webhook_secret").count() == 1
    viewer = member(project, Role.VIEWER)
    assert SECRET not in text_of(viewer.get(at(project, "webhook")))
    assert viewer.post(at(project, "webhook")).status_code == 403
    assert editor.post(at(project, "webhook/rotate")).status_code == 403
    assert member(make_git_project(), Role.ADMIN).post(at(project, "webhook")).status_code == 404


def test_a_new_secret_is_asked_for_twice() -> None:
    project = make_git_project()
    client = member(project, Role.ADMIN)
    assert "Replace the secret?" in text_of(client.get(at(project, "webhook/rotate")))
    project.refresh_from_db()
    assert project.webhook_secret == SECRET
    shown = confirm(client, at(project, "webhook/rotate"))
    project.refresh_from_db()
    assert project.webhook_secret != SECRET
    assert project.webhook_secret in text_of(shown)
    assert client.get("/admin/projects/project/x/webhook/rotate").status_code == 404


@pytest.mark.covers("S1.5")
def test_a_tag_is_tried() -> None:
    project = make_git_project(slug="yard")
    client = member(project, Role.VIEWER)
    fits = text_of(client.get(at(project, "tags"), {"tag": "prod/news/1.2"}))
    assert "crawlyard/yard/news:prod-1.2" in fits
    ignored = text_of(client.get(at(project, "tags"), {"tag": "v1<script>"}))
    assert "Would be ignored." in ignored
    assert "<script>v1" not in ignored
    assert "v1<script>" not in ignored
    other = client.get(at(project, "tags"), {"tag": "news-2", "template": "{name}-{version}"})
    assert "crawlyard/yard/news:2" in text_of(other)
    assert client.post(at(project, "tags")).status_code == 403
    assert client.get(at(make_git_project(), "tags")).status_code == 404


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.1")
def test_the_connection_is_tested(git_server: GitServer, settings: LazySettings) -> None:
    settings.GIT_ALLOWED_NETWORKS = LOOPBACK
    repository = git_server.make_repository("pages-of-projects")
    commit = repository.commit({"Dockerfile": "FROM scratch\n"})
    repository.tag("prod/news/1.2")
    repository.tag("v1")
    project = make_git_project(
        slug="yard",
        git_url=repository.url,
        git_username=git_server.username,
        git_password=git_server.password,
    )
    client = member(project, Role.EDITOR)
    shown = text_of(client.post(at(project, "tags")))
    assert "2 tags; 1 of them fit" in shown
    assert "crawlyard/yard/news:prod-1.2" in shown
    assert commit[:8] in shown
    project.git_password = "wrong word"
    project.save()
    refused = text_of(client.post(at(project, "tags")))
    assert "does not accept the user name and password" in refused
    assert "wrong word" not in refused
    settings.GIT_ALLOWED_NETWORKS = []
    assert "may not be reached" in text_of(client.post(at(project, "tags")))


@pytest.mark.covers("S1.7")
def test_images_are_refreshed(settings: LazySettings) -> None:
    settings.GIT_ALLOWED_NETWORKS = LOOPBACK
    with running_registry(auth="none") as registry:
        registry.push("team/spiders", "1.2")
        fields = {"registry_url": registry.url, "registry_repository": "team/spiders"}
        project = make_git_project(**fields)
        client = member(project, Role.OPERATOR)
        assert "Refresh images" in text_of(client.get(page(Project, "change", project.pk)))
        assert "1 images were added" in said(client.post(at(project, "images/refresh")))
        assert Image.objects.get().tag == "1.2"
    assert "does not answer" in said(client.post(at(project, "images/refresh")))
    assert client.get(at(project, "images/refresh")).status_code == 405
    assert member(project, Role.VIEWER).post(at(project, "images/refresh")).status_code == 403


# --- deliveries -----------------------------------------------------------------------------------


def test_a_delivery_is_shown_with_headers_and_body() -> None:
    project = make_git_project()
    delivery = make_delivery(project)
    client = member(project, Role.VIEWER)
    listed = text_of(client.get(page(Delivery, "changelist")))
    assert "prod/news/1.2" in listed
    assert "build queued" in listed
    shown = text_of(client.get(page(Delivery, "change", delivery.pk)))
    assert "x-github-event: push" in shown
    assert "&quot;ref&quot;: &quot;refs/tags/prod/news/1.2&quot;" in shown
    assert '/replay"' not in shown
    assert SECRET not in shown
    assert delivery.build is not None
    assert str(delivery.build) in shown


@pytest.mark.slow("1 s")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b'{"a": "\\ud800"}',
        b"[" * 100_000,
        b'{"a": "' + b"x" * 300_000 + b'"}',
        b'{"a": "<script>alert(1)</script>"}',
    ],
)
def test_whatever_a_body_holds_its_page_opens(body: bytes) -> None:
    project = make_git_project()
    pk = deliver(project, github("push", body)).json()["delivery"]
    shown = text_of(member(project, Role.VIEWER).get(page(Delivery, "change", pk)))
    assert "<script>alert" not in shown
    assert len(shown) < 500_000


def test_a_refused_one_has_no_body_and_no_button() -> None:
    project = make_git_project()
    deliver(project, Signed(b"secret things"))
    client = member(project, Role.OPERATOR)
    shown = text_of(client.get(page(Delivery, "change", Delivery.objects.get().pk)))
    assert "not stored" in shown
    assert '/replay"' not in shown
    answer = client.post(f"/admin/projects/delivery/{Delivery.objects.get().pk}/replay")
    assert "was refused" in said(answer)


@pytest.mark.covers("S1.4")
def test_an_operator_has_a_delivery_judged_again() -> None:
    project = make_git_project(builds_enabled=False)
    delivery = make_delivery(project)
    assert delivery.code == "builds_disabled"
    Project.objects.update(builds_enabled=True)
    address = f"/admin/projects/delivery/{delivery.pk}/replay"
    assert member(project, Role.VIEWER).post(address).status_code == 403
    assert member(make_git_project(), Role.OPERATOR).post(address).status_code == 404
    client = member(project, Role.OPERATOR)
    assert '/replay"' in text_of(client.get(page(Delivery, "change", delivery.pk)))
    answer = client.post(address)
    again = Delivery.objects.get(replay_of=delivery)
    assert answer["Location"] == page(Delivery, "change", again.pk)
    assert "build queued" in said(answer)
    assert Build.objects.get() == again.build
    assert client.get(address).status_code == 405


@pytest.mark.slow("2 s")
def test_lists_cost_the_same_however_long_they_are(django_assert_max_num_queries: Any) -> None:
    project = make_git_project()
    client = member(project, Role.VIEWER)
    make_delivery(project, "prod/news/0")
    for model in (Delivery, Project):
        client.get(page(model, "changelist"))
        with django_assert_max_num_queries(12) as few:
            client.get(page(model, "changelist"))
            cost = len(few)
        for number in range(15):
            make_delivery(project, f"prod/{model.__name__}/{number}")
        with django_assert_max_num_queries(cost) as many:
            client.get(page(model, "changelist"))
        assert not [each for each in many if '."body"' in each["sql"]]
