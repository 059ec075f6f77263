"""Senders of deliveries: detection by headers, and authentication."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from apps.projects.engine import signatures
from apps.projects.engine.signatures import SignatureRefused

MAX_ID: Final = 200
MAX_EVENT: Final = 100
# Headers that are stored, since they describe the delivery. None of them is a secret.
KEPT_HEADERS: Final = (
    "content-length",
    "content-type",
    "host",
    "user-agent",
    "idempotency-key",
    "webhook-id",
    "webhook-timestamp",
    "x-forgejo-delivery",
    "x-forgejo-event",
    "x-forgejo-event-type",
    "x-gitea-delivery",
    "x-gitea-event",
    "x-gitea-event-type",
    "x-github-delivery",
    "x-github-event",
    "x-github-hook-id",
    "x-github-hook-installation-target-id",
    "x-github-hook-installation-target-type",
    "x-gitlab-event",
    "x-gitlab-event-uuid",
    "x-gitlab-instance",
    "x-gitlab-webhook-uuid",
    "x-request-id",
)
_MAX_HEADER: Final = 500


class WebhookSender(enum.StrEnum):
    """Kind of sender; the values are those of ``DeliverySource``."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"
    SIGNED = "signed"
    REGISTRY = "registry"


@dataclass(frozen=True, slots=True)
class IncomingDelivery:
    """Received delivery. ``headers`` have lower-case names; ``token`` is from the query string."""

    headers: Mapping[str, str]
    body: bytes
    token: str = ""

    def header(self, *names: str) -> str:
        """Return the first of these headers that was sent, else ""."""
        return next((self.headers[name] for name in names if self.headers.get(name)), "")

    @property
    def kept_headers(self) -> dict[str, str]:
        """Headers to be stored: without secrets, shortened."""
        return {
            name: printable(self.headers[name], _MAX_HEADER)
            for name in KEPT_HEADERS
            if name in self.headers
        }

    @property
    def registry_token(self) -> str:
        """Token of a registry, from the URL or a header."""
        scheme, _, rest = self.header("authorization").partition(" ")
        bearer = rest.strip() if scheme.lower() == "bearer" else ""
        return self.token or self.header("x-registry-token") or bearer


def sender_of(incoming: IncomingDelivery) -> WebhookSender | None:
    """Return the kind of sender by the headers; None if unknown."""
    # Gitea and Forgejo also send GitHub's headers, and Forgejo also sends Gitea's.
    if incoming.header(
        "x-gitea-event", "x-forgejo-event", "x-gitea-signature", "x-forgejo-signature"
    ):
        return WebhookSender.GITEA
    if incoming.header("x-gitlab-event", "x-gitlab-token"):
        return WebhookSender.GITLAB
    if incoming.header("x-github-event", "x-hub-signature-256"):
        return WebhookSender.GITHUB
    if incoming.header("webhook-signature", "webhook-id"):
        return WebhookSender.SIGNED
    return WebhookSender.REGISTRY if incoming.registry_token else None


def event_of(sender: WebhookSender | None, incoming: IncomingDelivery) -> str:
    """Return the name of the event by the headers; "" if only the body contains it."""
    names: dict[WebhookSender | None, tuple[str, ...]] = {
        WebhookSender.GITHUB: ("x-github-event",),
        WebhookSender.GITLAB: ("x-gitlab-event",),
        WebhookSender.GITEA: ("x-forgejo-event", "x-gitea-event"),
    }
    return printable(incoming.header(*names.get(sender, ())), MAX_EVENT)


def delivery_id_of(
    sender: WebhookSender | None, incoming: IncomingDelivery, *, now: datetime
) -> str:
    """Return the sender's delivery ID, which is equal for a repeated delivery.

    Without such an ID a hash of the body and the hour is used: long enough to recognise retries of
    the sender, and short enough to accept an intended repetition.
    """
    names: dict[WebhookSender | None, tuple[str, ...]] = {
        WebhookSender.GITHUB: ("x-github-delivery",),
        WebhookSender.GITLAB: ("x-gitlab-event-uuid", "webhook-id", "idempotency-key"),
        WebhookSender.GITEA: ("x-forgejo-delivery", "x-gitea-delivery"),
        WebhookSender.SIGNED: ("webhook-id",),
    }
    given = incoming.header(*names.get(sender, ()))
    if not given:
        digest = hashlib.sha256(incoming.body).hexdigest()
        return f"body:{digest}:{now:%Y%m%d%H}"
    if len(given) > MAX_ID or not given.isprintable():
        return f"id:{hashlib.sha256(given.encode('utf-8', 'replace')).hexdigest()}"
    return given


def check_sender(
    sender: WebhookSender | None, incoming: IncomingDelivery, *, secret: str, now: datetime
) -> None:
    """Authenticate a delivery. Raises ``SignatureRefused``.

    Only Standard Webhooks sign the delivery ID. This is sufficient: deliveries of the other forms
    build a tag at most once, whatever their ID.
    """
    if sender is None:
        raise SignatureRefused("signature_missing")
    if sender is WebhookSender.GITHUB:
        given = incoming.header("x-hub-signature-256")
        signatures.check_hex(secret, incoming.body, given, prefix="sha256=")
    elif sender is WebhookSender.GITEA:
        given = incoming.header("x-forgejo-signature", "x-gitea-signature")
        signatures.check_hex(secret, incoming.body, given)
    elif sender is WebhookSender.REGISTRY:
        signatures.check_token(signatures.registry_token(secret), incoming.registry_token)
    elif sender is WebhookSender.GITLAB and incoming.header("x-gitlab-token"):
        signatures.check_token(secret, incoming.header("x-gitlab-token"))
    else:
        signatures.check_standard(
            secret,
            incoming.body,
            message_id=incoming.header("webhook-id"),
            timestamp=incoming.header("webhook-timestamp"),
            signatures=incoming.header("webhook-signature"),
            now=now.timestamp(),
        )


def printable(text: str, limit: int) -> str:
    """Return text that every database can store and every page can show, shortened to ``limit``."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)[
        :limit
    ]
