"""The sidebar: by what people come for, not by which app a model lives in."""

from __future__ import annotations

from typing import Any, Final

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

# (group, [(model, icon)]); what is not registered, or not for this person, is left out.
GROUPS: Final[list[tuple[Promise, list[tuple[str, str]]]]] = [
    (
        _("Operate"),
        [
            ("jobs.Job", "work"),
            ("jobs.Run", "directions_run"),
            ("jobs.PlannedRun", "event"),
            ("jobs.Host", "storage"),
            ("queuestats.FailedRequest", "report"),
        ],
    ),
    (
        _("Download"),
        [
            ("agents.Agent", "cloud_download"),
            ("agents.Allocation", "lan"),
            ("agents.HostState", "dns"),
            ("agents.HostRule", "speed"),
        ],
    ),
    (
        _("Code"),
        [
            ("projects.Project", "folder"),
            ("projects.Build", "construction"),
            ("projects.Image", "deployed_code"),
            ("projects.Delivery", "webhook"),
        ],
    ),
    (
        _("Configuration"),
        [
            ("configcenter.Configuration", "tune"),
            ("configcenter.ConfigVersion", "difference"),
        ],
    ),
    (
        _("Platform"),
        [
            ("django_celery_beat.PeriodicTask", "schedule"),
            ("runtime.OutboxMessage", "outbox"),
            ("runtime.DeadLetter", "mark_email_unread"),
            ("runtime.Daemon", "memory"),
        ],
    ),
    (
        _("Access"),
        [
            ("access.User", "person"),
            ("auth.Group", "group"),
            ("access.ApiToken", "key"),
            ("access.AuditRecord", "history"),
        ],
    ),
]


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """The groups of links this person may follow; the admin theme calls it."""
    home = {"title": _("Home"), "icon": "dashboard", "link": reverse("admin:index")}
    groups: list[dict[str, Any]] = [{"items": [home]}]
    for title, models in GROUPS:
        items = [item for name, icon in models if (item := _item(request, name, icon))]
        if items:
            groups.append({"title": title, "separator": True, "items": items})
    return groups


def _item(request: HttpRequest, name: str, icon: str) -> dict[str, Any] | None:
    model = apps.get_model(name)
    model_admin = admin.site._registry.get(model)
    if model_admin is None or not model_admin.has_module_permission(request):
        return None
    address = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
    title = str(model._meta.verbose_name_plural)
    return {"title": title[:1].upper() + title[1:], "icon": icon, "link": reverse(address)}
