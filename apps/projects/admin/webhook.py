"""Page with the webhook setup of a project."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from apps.projects.models import Project
from apps.projects.services.webhook_setup import setup_texts, webhook_address

LATEST = 5


def webhook_page(
    request: HttpRequest, project: Project, context: dict[str, Any], secret: str | None
) -> HttpResponse:
    """Show the webhook setup, with the secret if it was requested."""
    context |= {
        "title": _("Webhook of %(project)s") % {"project": project},
        "project": project,
        "address": webhook_address(project),
        "texts": setup_texts(project, secret),
        "secret": secret,
        "latest": list(project.deliveries.defer("body", "headers")[:LATEST]),
        "deliveries": reverse("admin:projects_delivery_changelist")
        + f"?project__id__exact={project.pk}",
    }
    return TemplateResponse(request, "admin/projects/project/webhook.html", context)
