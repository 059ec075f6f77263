"""Projects with git, and deliveries to them."""

from __future__ import annotations

from typing import Any

from django.test import Client

from apps.projects.models import Delivery, Project
from tests.access.factories import make_project
from tests.projects.webhooks import SECRET, Signed, github, tag_push

GIT_URL = "https://git.example.com/team/spiders.git"


def make_git_project(**fields: Any) -> Project:
    """A project whose tags are built."""
    return make_project(**{"git_url": GIT_URL, "webhook_secret": SECRET} | fields)


def deliver(project: Project | str, sent: Signed, **headers: str) -> Any:
    """POST it; the response."""
    slug = project if isinstance(project, str) else project.slug
    return Client(raise_request_exception=False).generic(
        "POST",
        f"/webhooks/{slug}/{sent.query}",
        sent.body,
        content_type=sent.headers.get("Content-Type", ""),
        headers={**sent.headers, **headers},
    )


def make_delivery(project: Project, tag: str = "prod/news/1.2") -> Delivery:
    """One that came in over HTTP."""
    answer = deliver(project, github("push", tag_push(tag)))
    return Delivery.objects.get(pk=answer.json()["delivery"])
