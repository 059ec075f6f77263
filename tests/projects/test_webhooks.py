"""Deliveries, from the wire to what became of them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import LazySettings
from django.test import Client
from django.utils import timezone

from apps.access.models import AuditRecord
from apps.projects.engine.signatures import registry_token
from apps.projects.models import Build, Delivery, Image
from apps.projects.services import deliveries as service
from apps.projects.services.deliveries import KEPT_REFUSED
from apps.projects.states import BuildState
from tests.projects.factories import GIT_URL, deliver, make_git_project
from tests.projects.registry_double import LOOPBACK, running_registry
from tests.projects.webhooks import (
    COMMIT,
    SECRET,
    Signed,
    gitea,
    github,
    gitlab,
    hex_of,
    image_push,
    sample,
    signed,
    tag_push,
)

pytestmark = pytest.mark.django_db
DIGEST = "sha256:" + "ab" * 32
GITLAB = {"object_kind": "tag_push", **tag_push("prod/news/1.2")}


@pytest.mark.covers("S1.2", "S1.4", "S1.5")
@pytest.mark.parametrize(
    ("sent", "source"),
    [
        (github("push", tag_push("prod/news/1.2")), "github"),
        (github("create", {"ref": "prod/news/1.2", "ref_type": "tag"}), "github"),
        (gitlab(GITLAB), "gitlab"),
        (gitea("push", tag_push("prod/news/1.2")), "gitea"),
        (gitea("create", {"ref": "prod/news/1.2", "ref_type": "tag"}, brand="Forgejo"), "gitea"),
        (signed({"tag": "prod/news/1.2"}), "signed"),
        (signed({"tag": "prod:news:1.2", "commit": COMMIT}), "signed"),
    ],
    ids=["github", "github-create", "gitlab", "gitea", "forgejo", "signed", "colon"],
)
def test_a_tag_is_built(sent: Signed, source: str) -> None:
    project = make_git_project()
    if "webhook-timestamp" in sent.headers:
        sent = signed(json.loads(sent.body))
    answer = deliver(project, sent)
    assert answer.status_code == 202, answer.content
    delivery = Delivery.objects.get()
    said = answer.json()
    assert said == {"delivery": delivery.pk, "verdict": "built", "code": "", "reason": ""}
    build = Build.objects.get()
    assert (build.tag, build.release, build.name, build.version, build.state) == (
        *("prod/news/1.2", "prod", "news", "1.2"),
        BuildState.QUEUED,
    )
    assert (delivery.build, delivery.source, bytes(delivery.body)) == (build, source, sent.body)
    assert build.requested_by == f"webhook {source}"
    assert SECRET not in json.dumps(delivery.headers)
    # The address is the project's, whatever the payload says.
    build.project.refresh_from_db()
    assert build.project.git_url == GIT_URL
    trail = AuditRecord.objects.get(action="projects.receive_delivery")
    assert (trail.actor_label, trail.object_id) == (f"webhook {source}", str(delivery.pk))


@pytest.mark.covers("S1.4", "S1.5")
@pytest.mark.parametrize(
    ("sent", "code", "shown"),
    [
        (github("ping", sample("github/ping")), "ping", ""),
        (github("create", sample("github/create-tag")), "tag_does_not_fit", "simple-tag"),
        (github("push", sample("github/push-tag-deleted")), "tag_deleted", "simple-tag"),
        (
            github("registry_package", sample("github/registry-package-published")),
            "package_without_tag",
            "",
        ),
        (gitlab(sample("gitlab/tag-push")), "tag_does_not_fit", "v1.0.0"),
        (github("push", tag_push("a/b/1", before="1" * 40)), "tag_moved", "a/b/1"),
        (github("push", tag_push("x") | {"ref": "refs/heads/main"}), "branch", ""),
        (github("star", {}), "unknown_event", ""),
        (github("push", tag_push("a:b:1")), "ref_character", "a:b:1"),
        (github("push", tag_push("a/b/$(id)")), "ref_character", "a/b/$(id)"),
        (github("push", tag_push("x\u0000\ud800y")), "ref_character", "x��y"),
        (github("push", tag_push("--upload-pack=x")), "ref_character", "--upload-pack=x"),
        (github("push", tag_push("x" * 3000)), "ref_too_long", "x" * 250),
    ],
)
def test_what_is_ignored_has_a_reason(sent: Signed, code: str, shown: str) -> None:
    answer = deliver(make_git_project(), sent)
    assert answer.status_code == 202
    said = answer.json()
    assert (said["verdict"], said["code"]) == ("ignored", code)
    assert said["reason"]
    delivery = Delivery.objects.get()
    assert (delivery.code, delivery.reason, delivery.tag) == (code, said["reason"], shown)
    assert not Build.objects.exists()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"builds_enabled": False}, "builds_disabled"),
        ({"git_url": ""}, "no_git_url"),
        ({"tag_template": "{name}-{version}"}, "tag_does_not_fit"),
    ],
)
def test_settings_of_the_project_decide(fields: dict[str, Any], code: str) -> None:
    answer = deliver(make_git_project(**fields), github("push", tag_push("prod/news/1.2")))
    assert answer.json()["code"] == code
    assert not Build.objects.exists()


@pytest.mark.covers("S1.5")
def test_the_colon_form_is_built_from_the_tag_that_git_has() -> None:
    project = make_git_project(tag_template="{release}-{name}-{version}")
    assert deliver(project, signed({"tag": "prod:news:1.2"})).json()["verdict"] == "built"
    assert Build.objects.get().tag == "prod-news-1.2"
    refused = deliver(project, signed({"tag": "prod:news-site:1.2"})).json()
    assert (refused["verdict"], refused["code"]) == ("ignored", "tag_ambiguous")


def test_a_tag_is_built_once() -> None:
    project = make_git_project()
    first = deliver(project, github("push", tag_push("prod/news/1.2"))).json()
    again = deliver(project, github("create", {"ref": "prod/news/1.2", "ref_type": "tag"})).json()
    assert (first["verdict"], again["verdict"], again["code"]) == (
        *("built", "ignored"),
        "already_built",
    )
    assert Delivery.objects.first().build == Build.objects.get()  # type: ignore[union-attr]


def test_a_repeated_delivery_is_counted_and_builds_nothing() -> None:
    project = make_git_project()
    sent = github("push", tag_push("prod/news/1.2"))
    first = deliver(project, sent)
    Build.objects.update(state=BuildState.FAILED, ended_at=timezone.now() + timedelta(hours=1))
    for _ in range(2):
        again = deliver(project, sent)
        assert again.status_code == 202
        assert again.json()["delivery"] == first.json()["delivery"]
        assert again.json()["code"] == "repeated"
    assert (Delivery.objects.get().repeats, Build.objects.count()) == (2, 1)
    # The same id from somebody else, or to another project, is another delivery.
    other = deliver(make_git_project(), sent)
    assert other.json()["verdict"] == "built"


def test_a_refused_delivery_uses_up_no_id() -> None:
    project = make_git_project()
    sent = github("push", tag_push("prod/news/1.2"), delivery="known")
    stranger = github("push", {}, secret="wrong", delivery="known")
    assert deliver(project, stranger).status_code == 401
    assert deliver(project, sent).json()["verdict"] == "built"


def test_a_body_without_an_id_stands_for_itself_for_a_while() -> None:
    project = make_git_project()
    sent = gitlab(GITLAB)
    del sent.headers["X-Gitlab-Event-UUID"]
    now = timezone.now()
    incoming = service.IncomingDelivery(
        {name.lower(): value for name, value in sent.headers.items()}, sent.body
    )
    codes = []
    for hours in (0, 0, 2):
        receipt = service.receive_delivery(
            slug=project.slug,
            incoming=incoming,
            remote_address="",
            now=now + timedelta(hours=hours),
        )
        assert receipt is not None
        codes.append(receipt.code)
    assert codes == ["", "repeated", "already_built"]


@pytest.mark.parametrize(
    "sent",
    [
        github("push", tag_push("a/b/1"), secret="wrong"),
        gitlab(GITLAB, secret="wrong"),
        gitea("push", tag_push("a/b/1"), secret="wrong"),
        signed({"tag": "a/b/1"}, at=1_000_000),
        Signed(b"{}", {}),
        Signed(b"{}", {"X-GitHub-Event": "push"}),
        Signed(b'{"Push_Data": {}}', query="?token=wrong"),
        Signed(b'{"Push_Data": {}}', query=f"?token={SECRET}"),
    ],
)
def test_who_is_not_believed_learns_nothing(sent: Signed) -> None:
    project = make_git_project()
    known, unknown = deliver(project, sent), deliver("no-such-project", sent)
    without = deliver(make_git_project(webhook_secret=""), sent)
    for answer in (known, unknown, without):
        assert answer.status_code == 401
        bodies = {name: answer.json()[name] for name in ("code", "detail", "fields")}
        assert bodies == {
            "code": "unauthorized",
            "detail": "the signature or the token is missing or wrong",
            "fields": {},
        }
    delivery = Delivery.objects.get(project=project)
    assert (delivery.verdict, bytes(delivery.body)) == ("refused", b"")
    assert delivery.code
    assert delivery.body_bytes == len(sent.body)
    assert Delivery.objects.count() == 2


@pytest.mark.slow("1 s")
def test_only_the_newest_refused_ones_are_kept() -> None:
    project, other = make_git_project(), make_git_project()
    good = deliver(project, github("ping", {}))
    deliver(other, Signed(b"{}"))
    for _ in range(KEPT_REFUSED + 3):
        assert deliver(project, Signed(b"{}")).status_code == 401
    refused = Delivery.objects.filter(project=project, verdict="refused")
    assert refused.count() == KEPT_REFUSED
    assert Delivery.objects.filter(pk=good.json()["delivery"]).exists()
    assert Delivery.objects.filter(project=other).count() == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "body_malformed"),
        (b"{", "body_malformed"),
        (b"[]", "body_no_object"),
        (b'{"a": NaN}', "body_malformed"),
        (b'{"a": 1e400}', "body_malformed"),
        (b'{"a": "\xff"}', "body_not_utf8"),
        (b"[" * 200_000, "body_too_deep"),
        (b"{}", "field_missing"),
        (b'{"ref": 1}', "field_no_text"),
    ],
)
def test_a_believed_body_that_cannot_be_read(body: bytes, code: str) -> None:
    answer = deliver(make_git_project(), github("push", body))
    assert answer.status_code == 400
    assert (answer.json()["verdict"], answer.json()["code"]) == ("ignored", code)
    delivery = Delivery.objects.get()
    assert (bytes(delivery.body), delivery.code, delivery.event) == (body, code, "push")


def test_the_form_that_github_sends_unless_told_otherwise() -> None:
    body = urlencode({"payload": json.dumps(tag_push("prod/news/1.2"))}).encode()
    sent = github("push", body)
    sent.headers["Content-Type"] = "application/x-www-form-urlencoded"
    assert deliver(make_git_project(), sent).json()["verdict"] == "built"


@pytest.mark.parametrize("size", [30 * 1024 * 1024, 25 * 1024 * 1024 + 1])
def test_a_body_that_is_too_long(size: int) -> None:
    answer = deliver(make_git_project(), github("push", b"x" * size))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert not Delivery.objects.exists()


def test_a_body_larger_than_django_would_take(settings: LazySettings) -> None:
    payload = tag_push("prod/news/1.2", commits=["x" * 1000] * 4000)
    answer = deliver(make_git_project(), github("push", payload))
    assert answer.json()["verdict"] == "built"
    assert Delivery.objects.get().body_bytes > settings.DATA_UPLOAD_MAX_MEMORY_SIZE


@pytest.mark.parametrize("method", ["get", "put", "patch", "delete", "head", "options"])
def test_other_methods(method: str) -> None:
    project = make_git_project()
    answer = getattr(Client(), method)(f"/webhooks/{project.slug}/")
    assert (answer.status_code, answer["Allow"]) == (405, "POST")


def test_no_session_no_csrf_and_an_address_without_its_slash() -> None:
    project = make_git_project()
    sent = github("ping", {})
    client = Client(enforce_csrf_checks=True)
    answer = client.generic("POST", f"/webhooks/{project.slug}", sent.body, headers=sent.headers)
    assert answer.status_code == 202
    assert not answer.cookies


def test_reasons_are_in_the_language_of_the_installation() -> None:
    answer = deliver(make_git_project(), github("ping", {}), **{"Accept-Language": "zh-hans"})
    assert answer.json()["reason"] == "Ping received: the connection works."


# --- registries -----------------------------------------------------------------------------------

REGISTRY = {"registry_url": "https://registry.example.com", "registry_repository": "team/spiders"}


def pushed(payload: dict[str, Any], how: str = "query") -> Signed:
    token = registry_token(SECRET)
    body = json.dumps(payload).encode()
    if how == "signed":
        return signed(payload)
    if how == "query":
        return Signed(body, query=f"?token={token}")
    return Signed(body, {"X-Registry-Token": token} if how == "header" else
                  {"Authorization": f"Bearer {token}"})  # fmt: skip


@pytest.mark.covers("S1.6", "S1.58")
@pytest.mark.parametrize("how", ["query", "header", "bearer", "signed"])
def test_a_pushed_image_is_listed(how: str) -> None:
    project = make_git_project(**REGISTRY)
    answer = deliver(project, pushed(image_push("1.2", digest=DIGEST), how))
    assert answer.status_code == 200
    said = answer.json()
    assert (said["verdict"], said["Code"], said["Status"], said["Data"]) == (
        *("listed", 100),
        *("Success", "1.2"),
    )
    image = Image.objects.get()
    assert str(image) == "registry.example.com/team/spiders:1.2"
    assert (image.digest, image.source, image.build) == (DIGEST, "registry", None)
    assert Delivery.objects.get().image == image


@pytest.mark.covers("S1.6")
def test_what_of_a_registry_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    project = make_git_project(**REGISTRY)
    assert deliver(project, pushed(image_push("1.2", digest=DIGEST))).status_code == 200
    Image.objects.create(
        project=project,
        name="registry.example.com/team/spiders",
        tag="1.3",
        digest=DIGEST,
        created_at=timezone.now(),
    )
    other = "sha256:" + "cd" * 32
    for payload, code in (
        (image_push("latest", digest=DIGEST), "latest_pushed"),
        (image_push("1.3", digest=DIGEST), "image_known"),
        (image_push("1.2", digest=other), "image_moved"),
        (image_push("1.4", repository="team/other", digest=DIGEST), "unknown_repository"),
        (image_push("no tag", digest=DIGEST), "image_tag_malformed"),
    ):
        answer = deliver(project, pushed(payload))
        assert answer.status_code == 200
        assert (answer.json()["verdict"], answer.json()["code"]) == ("ignored", code)
        assert answer.json()["Message"]
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert ["latest" in each or "team/other" in each for each in warnings] == [True, True]
    assert Image.objects.count() == 2
    assert Image.objects.get(tag="1.2").digest == DIGEST
    unset = deliver(make_git_project(), pushed(image_push("1", digest=DIGEST)))
    assert (unset.status_code, unset.json()["code"]) == (200, "registry_not_set")


@pytest.mark.covers("S1.6")
def test_a_package_of_github_is_listed() -> None:
    project = make_git_project(
        registry_url="https://ghcr.example.com",
        registry_repository="codertocat/hello-world/hello-world-npm",
    )
    payload = sample("github/registry-package-published")
    tag = payload["registry_package"]["package_version"]["container_metadata"]["tag"]
    tag["name"] = "1.2"
    answer = deliver(project, github("registry_package", payload))
    assert (answer.status_code, answer.json()["verdict"]) == (202, "listed")
    assert Image.objects.get().tag == "1.2"


@pytest.mark.covers("S1.6", "S1.7")
def test_a_push_without_a_digest_is_looked_up(settings: LazySettings) -> None:
    settings.GIT_ALLOWED_NETWORKS = LOOPBACK
    with running_registry() as registry:
        digest = registry.push("team/spiders", "1.2")
        project = make_git_project(
            registry_url=registry.url,
            registry_repository="team/spiders",
            registry_username=registry.username,
            registry_password=registry.password,
        )
        assert deliver(project, pushed(image_push("1.2"))).json()["verdict"] == "listed"
        assert Image.objects.get().digest == digest
        missing = deliver(project, pushed(image_push("9")))
        assert (missing.status_code, missing.json()["code"]) == (200, "registry_refused")
        settings.GIT_ALLOWED_NETWORKS = []
        blocked = deliver(project, pushed(image_push("1.3")))
        assert blocked.json()["code"] == "url_blocked"
    settings.GIT_ALLOWED_NETWORKS = LOOPBACK
    stored = Delivery.objects.count()
    away = deliver(project, pushed(image_push("1.4")))
    assert (away.status_code, away.json()["code"]) == (503, "unavailable")
    assert int(away.headers["Retry-After"]) > 0
    assert Delivery.objects.count() == stored


def test_the_token_of_a_registry_builds_nothing() -> None:
    project = make_git_project(**REGISTRY)
    answer = deliver(project, pushed({"tag": "a:b:1"}))
    assert (answer.status_code, answer.json()["code"]) == (400, "field_missing")
    assert not Build.objects.exists()


def test_a_signature_over_another_body_under_the_same_id() -> None:
    project = make_git_project()
    sent = github("push", tag_push("prod/news/1.2"))
    sent.body = sent.body.replace(b"prod", b"evil")
    assert deliver(project, sent).status_code == 401
    sent.headers["X-Hub-Signature-256"] = "sha256=" + hex_of(SECRET, sent.body)
    assert deliver(project, sent).json()["verdict"] == "built"
