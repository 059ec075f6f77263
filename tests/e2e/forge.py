"""What a git server sends when somebody has pushed a tag, signed with the project's secret."""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from typing import Any

from tests.e2e.rest import send
from tools.requirement_marks import ROOT

_SAMPLES = ROOT / "tests" / "data" / "webhooks" / "github"
# The clone address of a payload is never used: a build from here would show that.
ELSEWHERE = "https://github.com/Codertocat/Hello-World.git"


def github_push(tag: str, commit: str) -> dict[str, Any]:
    """GitHub's ``push`` of a new tag, made of its published sample of a deleted one."""
    payload: dict[str, Any] = json.loads((_SAMPLES / "push-tag-deleted.json").read_text("utf-8"))
    assert payload["repository"]["clone_url"] == ELSEWHERE
    head = {"id": commit, "message": "a new version", "timestamp": "2026-11-21T10:00:00+00:00"}
    return payload | {
        "ref": f"refs/tags/{tag}",
        "before": "0" * 40,
        "after": commit,
        "created": True,
        "deleted": False,
        "head_commit": head,
    }


def deliver_github(
    address: str,
    secret: str,
    payload: dict[str, Any],
    *,
    event: str = "push",
    delivery: str | None = None,
) -> tuple[int, Any]:
    """Send it as GitHub does; the status and the JSON of the answer."""
    body = json.dumps(payload).encode()
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "GitHub-Hookshot/044aadd",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": delivery or str(uuid.uuid4()),
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    status, _headers, answer = send(address, method="POST", body=body, headers=headers)
    return status, json.loads(answer) if answer else None
