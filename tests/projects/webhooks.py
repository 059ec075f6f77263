"""Deliveries as git servers and registries send them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "webhooks"
SECRET = "whsec_bG9uZ2VyIHRoYW4gYW55Ym9keSBjYW4gZ3Vlc3M"
COMMIT = "82b3d5ae55f7080f1e6022629cdb57bfae7cccc7"
ZERO = "0" * 40
_numbers = count(1)


@dataclass
class Signed:
    """A body with the headers that go with it."""

    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    query: str = ""


def sample(name: str) -> dict[str, Any]:
    """A published payload, such as ``github/ping``."""
    loaded: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return loaded


def as_bytes(payload: Any) -> bytes:
    """The body of a payload."""
    return payload if isinstance(payload, bytes) else json.dumps(payload).encode()


def hex_of(secret: str, body: bytes) -> str:
    """HMAC-SHA256 as text."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def new_id() -> str:
    """An id that no other delivery has."""
    return f"delivery-{next(_numbers)}"


def github(event: str, payload: Any, *, secret: str = SECRET, delivery: str = "") -> Signed:
    """As GitHub signs it."""
    body = as_bytes(payload)
    return Signed(
        body,
        {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": delivery or new_id(),
            "X-Hub-Signature-256": f"sha256={hex_of(secret, body)}",
        },
    )


def gitlab(payload: Any, *, secret: str = SECRET, delivery: str = "") -> Signed:
    """As GitLab sends its token."""
    return Signed(
        as_bytes(payload),
        {
            "Content-Type": "application/json",
            "X-Gitlab-Event": "Tag Push Hook",
            "X-Gitlab-Event-UUID": delivery or new_id(),
            "X-Gitlab-Token": secret,
        },
    )


def gitea(
    event: str, payload: Any, *, secret: str = SECRET, delivery: str = "", brand: str = "Gitea"
) -> Signed:
    """As Gitea and Forgejo do, with the headers they copy from others."""
    body = as_bytes(payload)
    delivery = delivery or new_id()
    headers = {"Content-Type": "application/json", "X-GitHub-Event": event}
    for each in {"Gitea", brand}:
        headers[f"X-{each}-Event"] = event
        headers[f"X-{each}-Delivery"] = delivery
        headers[f"X-{each}-Signature"] = hex_of(secret, body)
    headers["X-Hub-Signature-256"] = f"sha256={hex_of(secret, body)}"
    return Signed(body, headers)


def signed(
    payload: Any, *, secret: str = SECRET, delivery: str = "", at: float | None = None,
    key: bytes | None = None,
) -> Signed:  # fmt: skip
    """As Standard Webhooks has it."""
    body = as_bytes(payload)
    delivery = delivery or new_id()
    stamp = str(int(time.time() if at is None else at))
    content = f"{delivery}.{stamp}.".encode() + body
    digest = hmac.new(key or secret.encode(), content, hashlib.sha256).digest()
    return Signed(
        body,
        {
            "Content-Type": "application/json",
            "webhook-id": delivery,
            "webhook-timestamp": stamp,
            "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
        },
    )


def tag_push(tag: str, *, before: str = ZERO, after: str = COMMIT, **more: Any) -> dict[str, Any]:
    """A push of a tag as GitHub and Gitea tell it."""
    return {
        "ref": f"refs/tags/{tag}",
        "before": before,
        "after": after,
        "repository": {"clone_url": "https://evil.example.com/x.git"},
        **more,
    }


def image_push(tag: str, *, repository: str = "team/spiders", digest: str = "") -> dict[str, Any]:
    """A push to a registry (seed S1.6)."""
    return {
        "Push_Data": {"Digest": digest, "Pushed_At": "2026-01-02 03:04:05", "Tag": tag},
        "Repository": {"Repo_Full_Name": repository, "Name": repository.rpartition("/")[2]},
    }
