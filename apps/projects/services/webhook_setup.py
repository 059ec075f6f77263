"""Setup instructions of the webhook for git servers and registries."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.projects.engine.signatures import registry_token
from apps.projects.engine.tags import TagReading, write_tag
from apps.projects.models import Project

PLACEHOLDER: Final = "<secret>"
TOKEN_PLACEHOLDER: Final = "<token>"  # noqa: S105 - a placeholder


@dataclass(frozen=True)
class SetupText:
    """Setup instructions for one kind of sender. ``text`` is to be copied."""

    name: str
    title: str
    text: str


def webhook_address(project: Project) -> str:
    """Return the URL of the webhook, based on ``PUBLIC_URL``."""
    return f"{settings.PUBLIC_URL}{reverse('projects:webhook', args=[project.slug])}"


def setup_texts(project: Project, secret: str | None = None) -> list[SetupText]:
    """Return the setup instructions, with the secret or a placeholder."""
    address = webhook_address(project)
    shown = secret or PLACEHOLDER
    token = registry_token(secret) if secret else TOKEN_PLACEHOLDER
    return [
        SetupText("github", "GitHub", _github(address, shown)),
        SetupText("gitlab", "GitLab", _gitlab(address, shown)),
        SetupText("gitea", "Gitea, Forgejo", _gitea(address, shown)),
        SetupText("curl", "curl", _curl(project, address, shown)),
        SetupText("registry", _("Registry"), _registry(address, token)),
    ]


def _lines(*rows: tuple[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in rows)


def _github(address: str, secret: str) -> str:
    return _lines(
        ("Settings → Webhooks → Add webhook", ""),
        ("Payload URL", address),
        ("Content type", "application/json"),
        ("Secret", secret),
        ("Events", "Just the push event"),
    )


def _gitlab(address: str, secret: str) -> str:
    return _lines(
        ("Settings → Webhooks → Add new webhook", ""),
        ("URL", address),
        ("Secret token", secret),
        ("Trigger", "Tag push events"),
    )


def _gitea(address: str, secret: str) -> str:
    return _lines(
        ("Settings → Webhooks → Add webhook → Gitea / Forgejo", ""),
        ("Target URL", address),
        ("HTTP method", "POST"),
        ("POST content type", "application/json"),
        ("Secret", secret),
        ("Trigger on", "Push events"),
    )


def _curl(project: Project, address: str, secret: str) -> str:
    """Return a shell command that sends a signed Standard Webhooks request."""
    tag = write_tag(project.tag_template, _example(project.tag_template))
    return "\n".join(
        (
            f"SECRET={shlex.quote(secret)}",
            f'BODY=\'{{"tag": "{tag}"}}\'',
            'ID="$(date +%s)-$$"; AT="$(date +%s)"',
            'SIGNATURE="$(printf \'%s\' "$ID.$AT.$BODY" |'
            ' openssl dgst -sha256 -hmac "$SECRET" -binary | base64)"',
            f"curl -sS '{address}' -H 'Content-Type: application/json' \\",
            '  -H "webhook-id: $ID" -H "webhook-timestamp: $AT" \\',
            '  -H "webhook-signature: v1,$SIGNATURE" --data "$BODY"',
        )
    )


def _example(template: str) -> TagReading:
    return TagReading(
        release="prod" if "{release}" in template.lower() else "",
        name="news" if "{name}" in template.lower() else "",
        version="1.0",
    )


def _registry(address: str, token: str) -> str:
    return _lines(
        ("URL", f"{address}?token={token}"),
        ("Events", "push"),
        (_("or with a header"), f"Authorization: Bearer {token}"),
    )
