"""What deliveries say."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from apps.projects.engine.payloads import (
    Ignored,
    ImagePushed,
    PayloadRefused,
    TagPushed,
    interpret,
    read_body,
)
from apps.projects.engine.senders import WebhookSender
from tests.projects.webhooks import COMMIT, ZERO, image_push, sample, tag_push

DIGEST = "sha256:" + "ab" * 32
JSON = "application/json"


def said(sender: WebhookSender, event: str, payload: Any) -> Any:
    """The event, or the code of why it is none."""
    try:
        return interpret(sender, event, payload)
    except (Ignored, PayloadRefused) as refusal:
        return refusal.code


@pytest.mark.covers("S1.4", "S1.5")
@pytest.mark.parametrize(
    ("sender", "event", "name", "means"),
    [
        (WebhookSender.GITHUB, "create", "github/create-tag", TagPushed("simple-tag")),
        (WebhookSender.GITHUB, "ping", "github/ping", "ping"),
        (WebhookSender.GITHUB, "push", "github/push-tag-deleted", "tag_deleted"),
        (
            WebhookSender.GITHUB,
            "registry_package",
            "github/registry-package-published",
            "package_without_tag",
        ),
        (WebhookSender.GITLAB, "Tag Push Hook", "gitlab/tag-push", TagPushed("v1.0.0", COMMIT)),
    ],
)
def test_published_samples(sender: WebhookSender, event: str, name: str, means: Any) -> None:
    assert said(sender, event, sample(name)) == means


@pytest.mark.covers("S1.6")
def test_the_package_of_a_registry_with_its_tag() -> None:
    payload = sample("github/registry-package-published")
    version = payload["registry_package"]["package_version"]
    version["container_metadata"]["tag"] = {"name": "1.2", "digest": DIGEST}
    assert said(WebhookSender.GITHUB, "registry_package", payload) == ImagePushed(
        "codertocat/hello-world/hello-world-npm", "1.2", version["version"]
    )
    payload["registry_package"]["ecosystem"] = "npm"
    assert said(WebhookSender.GITHUB, "registry_package", payload) == "package_no_image"
    assert said(WebhookSender.GITHUB, "registry_package", {}) == "field_missing"


@pytest.mark.covers("S1.4")
@pytest.mark.parametrize(
    "sender", [WebhookSender.GITHUB, WebhookSender.GITEA, WebhookSender.GITLAB]
)
def test_pushes(sender: WebhookSender) -> None:
    def push(payload: dict[str, Any]) -> Any:
        return said(sender, "push", {"object_kind": "tag_push", **payload})

    assert push(tag_push("a/b/1")) == TagPushed("a/b/1", COMMIT)
    assert push(tag_push("x", created=True, before="1" * 40)) == TagPushed("x", COMMIT)
    assert push(tag_push("x", before="1" * 40)) == "tag_moved"
    assert push(tag_push("x", created=False, forced=True)) == "tag_moved"
    assert push(tag_push("x", after=ZERO)) == "tag_deleted"
    assert push(tag_push("x", deleted=True)) == "tag_deleted"
    assert push(tag_push("x") | {"ref": "refs/heads/x"}) == "branch"
    assert push(tag_push("x", after="not hex")) == TagPushed("x", "")
    for missing in ("ref", "before", "after"):
        assert push({**tag_push("x"), missing: None}) == "field_missing"
        assert push({**tag_push("x"), missing: 7}) == "field_no_text"


def test_the_commit_of_an_annotated_tag_is_not_the_tag_itself() -> None:
    payload = tag_push("x", after="1" * 40, head_commit={"id": COMMIT})
    assert said(WebhookSender.GITHUB, "push", payload) == TagPushed("x", COMMIT)
    payload = tag_push("x", after="1" * 40, checkout_sha=COMMIT, object_kind="tag_push")
    assert said(WebhookSender.GITLAB, "", payload) == TagPushed("x", COMMIT)


@pytest.mark.parametrize(
    ("sender", "event", "payload", "means"),
    [
        (WebhookSender.GITHUB, "create", {"ref": "x", "ref_type": "branch"}, "branch"),
        (WebhookSender.GITHUB, "create", {"ref_type": "tag"}, "field_missing"),
        (WebhookSender.GITHUB, "delete", {"ref": "x", "ref_type": "tag"}, "tag_deleted"),
        (WebhookSender.GITHUB, "delete", {"ref": "x", "ref_type": "branch"}, "branch"),
        (WebhookSender.GITHUB, "issues", {}, "unknown_event"),
        (WebhookSender.GITHUB, "", {}, "unknown_event"),
        (
            WebhookSender.GITEA,
            "create",
            {"ref": "x", "ref_type": "tag", "sha": COMMIT},
            TagPushed("x", COMMIT),
        ),
        (WebhookSender.GITLAB, "", {"object_kind": "push", "ref": "refs/heads/main"}, "branch"),
        (WebhookSender.GITLAB, "", {"object_kind": "issue"}, "unknown_event"),
        (WebhookSender.GITLAB, "", {}, "field_missing"),
        (WebhookSender.SIGNED, "", {"tag": "a:b:1"}, TagPushed("a:b:1", "", colon_allowed=True)),
        (
            WebhookSender.SIGNED,
            "",
            {"tag": "a", "commit": COMMIT.upper()},
            TagPushed("a", COMMIT, True),
        ),
        (WebhookSender.SIGNED, "", {"tag": "a", "commit": "main"}, "commit_malformed"),
        (WebhookSender.SIGNED, "", {"tag": "a", "commit": 7}, "field_no_text"),
        (WebhookSender.SIGNED, "", {"tag": 7}, "field_no_text"),
        (WebhookSender.SIGNED, "", {}, "field_missing"),
        (WebhookSender.REGISTRY, "", {"tag": "a:b:1"}, "field_missing"),
    ],
)
def test_other_events(sender: WebhookSender, event: str, payload: Any, means: Any) -> None:
    assert said(sender, event, payload) == means


@pytest.mark.covers("S1.6")
@pytest.mark.parametrize("sender", [WebhookSender.SIGNED, WebhookSender.REGISTRY])
def test_pushes_to_a_registry(sender: WebhookSender) -> None:
    pushed = image_push("1.2", digest=DIGEST)
    assert said(sender, "", pushed) == ImagePushed("team/spiders", "1.2", DIGEST)
    lower = json.loads(json.dumps(pushed).lower())
    assert said(sender, "", lower) == ImagePushed("team/spiders", "1.2", DIGEST)
    hub = {"push_data": {"tag": "1"}, "repository": {"repo_name": "team/x"}}
    assert said(sender, "", hub) == ImagePushed("team/x", "1", "")
    assert said(sender, "", image_push("1", digest="md5:1")).digest == ""
    for broken in (
        {"Push_Data": {"Tag": "1"}},
        {"Push_Data": [], "Repository": {"Repo_Full_Name": "x"}},
        image_push(""),
        image_push("1", repository=""),
        {"Push_Data": {"Tag": 1}, "Repository": {"Repo_Full_Name": "x"}},
    ):
        assert said(sender, "", broken) == "field_missing"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "body_malformed"),
        (b"{", "body_malformed"),
        (b"[]", "body_no_object"),
        (b"null", "body_no_object"),
        (b'"x"', "body_no_object"),
        (b'{"a": NaN}', "body_malformed"),
        (b'{"a": -Infinity}', "body_malformed"),
        (b'{"a": 1e400}', "body_malformed"),
        (b'{"a": ' + b"9" * 5000 + b"}", "body_malformed"),
        (b"{} {}", "body_malformed"),
        (b'{"a": "\xff"}', "body_not_utf8"),
        ('{"a": 1}'.encode("utf-16"), "body_not_utf8"),
        (b"\xef\xbb\xbf{}", "body_malformed"),
        (b'{"a": ' + b"[" * 101 + b"]" * 101 + b"}", "body_too_deep"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "body_too_deep"),
        (b"[" * 100_000, "body_too_deep"),
        (b"\x80\x04K\x01.", "body_not_utf8"),
    ],
)
def test_bodies_that_cannot_be_read(body: bytes, code: str) -> None:
    with pytest.raises(PayloadRefused) as refusal:
        read_body(body, JSON)
    assert refusal.value.code == code
    assert len(str(refusal.value)) < 300


def test_bodies_that_can() -> None:
    assert read_body('{"说明": "\\u0000"}'.encode(), "") == {"说明": "\x00"}
    deep = b'{"a": ' + b"[" * 90 + b"]" * 90 + b"}"
    assert read_body(deep, JSON)


def test_the_form_that_github_sends_unless_told_otherwise() -> None:
    form = "application/x-www-form-urlencoded; charset=utf-8"
    body = urlencode({"payload": '{"ref": "新 +"}'}).encode()
    assert read_body(body, form) == {"ref": "新 +"}
    for broken in (b"", b"x=1", b"payload=1&payload=2", b"&".join([b"a=1"] * 50), b"payload=%ff"):
        with pytest.raises(PayloadRefused):
            read_body(broken, form)
