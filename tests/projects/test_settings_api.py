"""Git, webhook, build and registry settings of a project over REST."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.projects.models import Image, Project
from apps.projects.services import create_project, default_project
from apps.projects.services.webhook_setup import setup_texts
from tests.access.factories import Api, make_superuser, make_user
from tests.projects.factories import deliver, make_git_project
from tests.projects.registry_double import LOOPBACK, running_registry
from tests.projects.webhooks import SECRET, Signed, github, tag_push

pytestmark = pytest.mark.django_db
CORPUS = Path(__file__).parents[1] / "data" / "corpus"
REFUSED = json.loads((CORPUS / "git.json").read_text())
NEW = {"name": "News", "slug": "news"}
SECRETS = {
    "git_password": "git pass: word",
    "registry_password": "registry pass word",
    "webhook_secret": "whsec_a longer secret",
}


@pytest.mark.covers("S1.1")
def test_a_project_with_everything() -> None:
    api = Api(make_superuser())
    plain = {
        **NEW,
        "git_url": "https://git.example.com/team/spiders.git",
        "git_username": "robot",
        "default_branch": "trunk",
        "tag_template": "{release}-{name}-{version}",
        "builds_enabled": False,
        "dockerfile": "docker/Dockerfile.spider",
        "build_script": "FROM scratch\n",
        "build_arguments": {"PYTHON": "3.12"},
        "build_timeout_seconds": 60,
        "max_image_bytes": 5 * 1024**2,
        "registry_url": "https://registry.example.com:5000",
        "registry_repository": "team/spiders",
        "registry_username": "robot",
        "keep_days": 90,
        "keep_runs": 10,
        "keep_bytes": 5 * 1024**3,
    }
    made = api.post("projects", {**plain, **SECRETS})
    assert made.status_code == 201, made.content
    shown = made.json()
    assert {name: shown[name] for name in plain} == plain
    assert all(shown[f"{name}_set"] is True for name in SECRETS)
    assert not set(SECRETS) & set(shown)
    assert shown["webhook_address"] == "http://127.0.0.1:8000/webhooks/news/"
    project = Project.objects.get(slug="news")
    assert {name: getattr(project, name) for name in SECRETS} == SECRETS
    path = f"projects/{project.pk}"
    cleared = api.patch(path, {"git_password": ""}).json()
    assert (cleared["git_password_set"], cleared["registry_password_set"]) == (False, True)
    said = json.dumps(
        [api.get(path).json(), api.get("projects").json(), [*AuditRecord.objects.values()]],
        default=str,
    )
    assert not [secret for secret in SECRETS.values() if secret in said]


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.1", "S1.5")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("git_url", url) for url in REFUSED["refused_clone_urls"]),
        ("git_url", "https://u:p@git.example.com/x.git"),
        ("git_username", "a:b"),
        *(("default_branch", tag) for tag in REFUSED["refused_tags"]),
        ("default_branch", ""),
        ("tag_template", ""),
        ("tag_template", "{release}{name}/{version}"),
        ("tag_template", "{release}:{name}:{version}"),
        ("tag_template", "{release}/{name}"),
        ("dockerfile", "../Dockerfile"),
        ("dockerfile", "/etc/passwd"),
        ("dockerfile", "a//b"),
        ("dockerfile", "a\\b"),
        ("dockerfile", "-f"),
        ("dockerfile", ""),
        ("build_arguments", []),
        ("build_arguments", "x"),
        ("build_arguments", {"A": 1}),
        ("build_arguments", {"a b": "1"}),
        ("build_arguments", {"A": "x" * 4097}),
        ("build_arguments", {f"A{n}": "" for n in range(101)}),
        ("build_timeout_seconds", 9),
        ("build_timeout_seconds", 6 * 3600 + 1),
        ("max_image_bytes", 1),
        ("keep_days", 0),
        ("keep_runs", 0),
        ("keep_bytes", 0),
        ("registry_url", "registry.example.com"),
        ("registry_url", "https://registry.example.com/v2/"),
        ("registry_url", "http://127.0.0.1:5000"),
        ("registry_repository", "Team/Spiders"),
        ("registry_username", "a\nb"),
        ("webhook_secret", ""),
        ("webhook_secret", "short"),
        ("webhook_secret", "密" * 20),
    ],
)
def test_bad_settings(field: str, value: Any) -> None:
    response = Api(make_superuser()).post("projects", {**NEW, field: value})
    assert response.status_code == 400
    assert {name.partition(".")[0] for name in response.json()["fields"]} == {field}
    assert not Project.objects.filter(slug="news").exists()


def test_a_new_project_has_a_secret_and_an_old_one_gets_it_when_it_is_needed() -> None:
    made = create_project(actor=None, values=NEW)
    assert made.webhook_secret.startswith("whsec_")
    old = default_project()
    assert not old.has_secret("webhook_secret")
    api = Api(make_superuser())
    path = f"projects/{old.pk}/webhook"
    assert api.get(path).json()["secret"] is None
    first = api.post(f"{path}/reveal").json()["secret"]
    assert first
    assert api.post(f"{path}/reveal").json()["secret"] == first


@pytest.mark.covers("S1.2")
def test_the_secret_is_shown_to_whoever_asks_for_it_and_may() -> None:
    project = make_git_project()
    api = Api(make_user(roles={project: Role.EDITOR}))
    path = f"projects/{project.pk}/webhook"
    shown = api.get(path)
    assert SECRET not in shown.content.decode()
    assert [each["name"] for each in shown.json()["texts"]] == [
        *("github", "gitlab", "gitea"),
        *("curl", "registry"),
    ]
    assert all("/webhooks/" in each["text"] for each in shown.json()["texts"])
    revealed = api.post(f"{path}/reveal")
    assert revealed["Cache-Control"] == "no-store"
    assert revealed.json()["secret"] == SECRET
    assert SECRET in revealed.json()["texts"][0]["text"]
    actions = AuditRecord.objects.values_list("action", flat=True)
    assert "projects.reveal_webhook_secret" in actions
    assert api.post(f"{path}/rotate").status_code == 403


@pytest.mark.covers("S1.2")
def test_a_rotated_secret_ends_the_old_one() -> None:
    project = make_git_project()
    api = Api(make_superuser())
    new = api.post(f"projects/{project.pk}/webhook/rotate").json()["secret"]
    assert new != SECRET
    push = tag_push("a/b/1")
    assert deliver(project, github("push", push)).status_code == 401
    assert deliver(project, github("push", push, secret=new)).status_code == 202
    assert AuditRecord.objects.filter(action="projects.rotate_webhook_secret").count() == 1


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl to sign with")
@pytest.mark.parametrize("secret", [SECRET, 'it\'s $HOME `id` "x" \\ y'])
def test_the_text_for_curl_works_as_it_stands(secret: str) -> None:
    project = make_git_project(webhook_secret=secret)
    text = next(each.text for each in setup_texts(project, secret) if each.name == "curl")
    # curl as a function that says what it was called with.
    script = "curl() { printf '%s\\0' \"$@\"; }\n" + text
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, check=True, env={"PATH": os.environ["PATH"]}
    )
    words = done.stdout.decode().split("\0")
    headers = dict(
        words[index + 1].split(": ", 1) for index, word in enumerate(words) if word == "-H"
    )
    body = words[words.index("--data") + 1].encode()
    answer = deliver(project, Signed(body, headers))
    assert answer.json()["verdict"] == "built", answer.content


@pytest.mark.covers("S1.5")
def test_the_preview_says_how_a_tag_is_read() -> None:
    project = make_git_project(slug="yard")
    api = Api(make_user(roles={project: Role.VIEWER}), scopes=("*:read",))
    path = f"projects/{project.pk}/tags/preview"
    fits = api.post(path, {"tag": "prod/news/1.2"}).json()
    assert fits == {
        "tag": "prod/news/1.2",
        "commit": "",
        "fits": True,
        "release": "prod",
        "name": "news",
        "version": "1.2",
        "git_tag": "prod/news/1.2",
        "image": "crawlyard/yard/news:prod-1.2",
        "code": "",
        "reason": "",
    }
    colon = api.post(path, {"tag": "prod:news:1.2"}).json()
    assert (colon["fits"], colon["git_tag"]) == (True, "prod/news/1.2")
    other = api.post(path, {"tag": "news-1.2", "template": "{name}-{version}"}).json()
    assert (other["name"], other["image"]) == ("news", "crawlyard/yard/news:1.2")
    for body, code in (
        ({"tag": "v1"}, "tag_does_not_fit"),
        ({"tag": "a-b-c", "template": "{name}-{version}"}, "tag_ambiguous"),
        ({"tag": "x", "template": "{version}!"}, "template_separator"),
        ({}, "ref_empty"),
        ({"tag": "a b"}, "ref_character"),
    ):
        ignored = api.post(path, body).json()
        assert (ignored["fits"], ignored["code"]) == (False, code)
        assert ignored["reason"]
    assert api.post(path, {"tag": "x" * 1001}).status_code == 400


@pytest.mark.covers("S1.7")
def test_the_images_of_a_registry_are_listed(settings: LazySettings) -> None:
    settings.GIT_ALLOWED_NETWORKS = LOOPBACK
    with running_registry() as registry:
        for tag in ("latest", "1.9", "1.10"):
            registry.push("team/spiders", tag)
        project = make_git_project(
            registry_url=registry.url,
            registry_repository="team/spiders",
            registry_username=registry.username,
            registry_password=registry.password,
        )
        api = Api(make_user(roles={project: Role.OPERATOR}))
        path = f"projects/{project.pk}/images/refresh"
        host = registry.url.removeprefix("http://")
        first = api.post(path, Idempotency_Key="k1").json()
        assert api.post(path, Idempotency_Key="k1").json() == first
        assert [each.rpartition(":")[2] for each in first["added"]] == ["1.9", "1.10", "latest"]
        assert first["added"][0] == f"{host}/team/spiders:1.9"
        newest = Image.objects.values_list("tag", flat=True)
        assert list(newest) == ["latest", "1.10", "1.9"]
        moved = registry.push("team/spiders", "latest", "new")
        registry.push("team/spiders", "1.9", "new")
        again = api.post(path).json()
        assert (len(again["moved"]), len(again["known"]), len(again["differ"])) == (1, 1, 1)
        assert Image.objects.get(tag="latest").digest == moved
        assert Image.objects.get(tag="1.9").digest != registry.images["team/spiders"]["1.9"]
        trail = AuditRecord.objects.filter(action="projects.refresh_images")
        assert trail.count() == 2
        project.registry_password = "wrong"
        project.save()
        refused = api.post(path)
        assert (refused.status_code, refused.json()["code"]) == (409, "registry_refused")
        assert "401" in refused.json()["detail"]


def test_a_registry_that_is_not_set() -> None:
    project = make_git_project()
    answer = Api(make_superuser()).post(f"projects/{project.pk}/images/refresh")
    assert (answer.status_code, answer.json()["code"]) == (409, "registry_refused")
