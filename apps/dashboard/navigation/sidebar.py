"""Sidebar of the admin, grouped by task instead of by app."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from apps.alerts.queries import count_open_incidents
from apps.alerts.states import Severity


@dataclass(frozen=True, slots=True)
class SidebarPage:
    """A page that is not a model's list; it needs the permission to view ``model``."""

    model: str
    icon: str
    # URL name.
    view: str
    title: Promise


# Pages below those of another app: the list that they belong to.
_PARENTS: Final = {
    "dashboard:run": "admin:jobs_run_changelist",
    "dashboard:run-log": "admin:jobs_run_changelist",
    "dashboard:run-settings": "admin:jobs_run_changelist",
    "dashboard:job": "admin:jobs_job_changelist",
    "dashboard:job-runs": "admin:jobs_job_changelist",
    "dashboard:job-alerts": "admin:jobs_job_changelist",
    "dashboard:calendar": "admin:jobs_plannedrun_changelist",
    "dashboard:timeline": "admin:jobs_plannedrun_changelist",
    "dashboard:dependencies": "admin:jobs_plannedrun_changelist",
    "datasets:run-requests": "admin:jobs_run_changelist",
    "datasets:run": "admin:jobs_run_changelist",
    "datasets:compare": "admin:jobs_run_changelist",
    "datasets:run-files": "admin:jobs_run_changelist",
    "datasets:run-pages": "admin:jobs_run_changelist",
    "datasets:run-page": "admin:jobs_run_changelist",
    "datasets:job": "admin:jobs_job_changelist",
    "datasets:project": "admin:projects_project_changelist",
}

# A page links some fifty others twice; to look their addresses up was a tenth of its time.
_address = cache(reverse)

RULE: Final = "alerts.RuleMute"
ROUTER: Final = "routing.RouterReport"
ITEM: Final = "routing.RoutedItem"
SAMPLE: Final = "requeststore.SamplePage"
STORED: Final = "requeststore.ShardReport"
QUEUED: Final = "requeststore.QueueReport"
SOURCE: Final = "sources.SourceState"
ERRORS: Final = "joblogs.ErrorGroup"
# (group, [(model, icon)]); unregistered or forbidden models are left out.
GROUPS: Final[list[tuple[Promise, list[tuple[str, str] | SidebarPage]]]] = [
    (
        _("Operate"),
        [
            ("jobs.Job", "work"),
            ("jobs.Run", "directions_run"),
            ("jobs.PlannedRun", "event"),
            ("jobs.Host", "storage"),
            ("jobs.DeletedJob", "delete"),
            ("queuestats.FailedRequest", "report"),
            ("queuestats.RunStats", "query_stats"),
            ("queuestats.QueueState", "stacks"),
        ],
    ),
    (
        _("Alerts"),
        [
            ("alerts.Incident", "notifications_active"),
            SidebarPage(
                RULE, "rule_settings", "admin:alerts_rulemute_changelist", _("Alert rules")
            ),
            ("alerts.Channel", "campaign"),
            ("alerts.Notice", "outgoing_mail"),
        ],
    ),
    (_("Data"), [SidebarPage("datasets.Dataset", "table_view", "datasets:list", _("Datasets"))]),
    (
        _("Logs"),
        [
            SidebarPage(ERRORS, "manage_search", "joblogs:search", _("Search logs")),
            SidebarPage(ERRORS, "bug_report", "joblogs:errors", _("Errors")),
            ("joblogs.LogPolicy", "auto_delete"),
        ],
    ),
    (
        _("Routing"),
        [
            SidebarPage(ROUTER, "alt_route", "admin:routing_routerreport_changelist", _("Router")),
            SidebarPage(ROUTER, "rule", "admin:routing_rules", _("Rules")),
            SidebarPage(ITEM, "help", "routing-explain", _("Explain a task")),
            SidebarPage(ITEM, "receipt_long", "admin:routing_routeditem_changelist", _("Items")),
            SidebarPage(ITEM, "hourglass", "admin:routing_parked", _("Parked")),
            SidebarPage(ITEM, "heart_broken", "admin:routing_dead_letters", _("Dead tasks")),
        ],
    ),
    (
        _("Seeds"),
        [
            ("seeds.Frontier", "park"),
            ("seeds.ResourcePool", "key_vertical"),
            ("seeds.Resource", "badge"),
        ],
    ),
    (
        _("Request store"),
        [
            SidebarPage(
                STORED,
                "inventory_2",
                "admin:requeststore_shardreport_changelist",
                _("Request groups"),
            ),
            SidebarPage(
                QUEUED, "monitoring", "admin:requeststore_queuereport_changelist", _("Throughput")
            ),
            SidebarPage(STORED, "search", "admin:requeststore_look_up", _("Find request")),
            SidebarPage(
                SAMPLE, "science", "admin:requeststore_samplepage_changelist", _("Test rule")
            ),
        ],
    ),
    (
        _("Sources"),
        [
            SidebarPage(SOURCE, "database", "admin:sources_sourcestate_changelist", _("Sources")),
            ("sources.Harvest", "agriculture"),
            ("sources.Credential", "key"),
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
            ("projects.DeletedProject", "folder_delete"),
        ],
    ),
    (
        _("Configuration"),
        [("configcenter.Configuration", "tune"), ("configcenter.ConfigVersion", "difference")],
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
            ("axes.AccessAttempt", "lock_clock"),
            ("access.AuditRecord", "history"),
        ],
    ),
]


def sidebar(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the groups of permitted links; the admin theme calls this."""
    groups = linked_pages(request)
    _add_badge(request, groups)
    match = request.resolver_match
    parent = _PARENTS.get(match.view_name) if match is not None else None
    path = request.path if parent is None else _address(parent)
    _mark_active(path, [item for group in groups for item in group["items"]])
    return groups


def linked_pages(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the groups of permitted links without badges and the active mark."""
    home = {"title": _("Overview"), "icon": "dashboard", "link": _address("admin:index")}
    health = {
        "title": _("System health"),
        "icon": "emergency_home",
        "link": _address("dashboard:health"),
    }
    groups: list[dict[str, Any]] = [{"items": [home, health]}]
    for title, pages in GROUPS:
        items = [item for page in pages if (item := _item(request, page))]
        if items:
            groups.append({"title": title, "separator": True, "items": items})
    return groups


def _add_badge(request: HttpRequest, groups: list[dict[str, Any]]) -> None:
    """Show the number of open, unacknowledged incidents at their link. One query."""
    incidents = _address("admin:alerts_incident_changelist")
    for item in (item for group in groups for item in group["items"]):
        if item["link"] == incidents:
            counted = count_open_incidents(request.user)
            if number := sum(counted.values()):
                item["badge"] = str(number)
                item["badge_variant"] = "danger" if counted[Severity.CRITICAL] else "warning"


def _mark_active(path: str, items: list[dict[str, Any]]) -> None:
    """Mark the item of the open page: the one with the longest matching link."""
    home = _address("admin:index")
    above = [item["link"] for item in items if path.startswith(item["link"])]
    nearest = max((link for link in above if link != home or path == home), key=len, default="")
    for item in items:
        item["active"] = item["link"] == nearest


def _item(request: HttpRequest, page: tuple[str, str] | SidebarPage) -> dict[str, Any] | None:
    name, icon = (page.model, page.icon) if isinstance(page, SidebarPage) else page
    model = apps.get_model(name)
    model_admin = admin.site._registry.get(model)
    if model_admin is None or not model_admin.has_module_permission(request):
        return None
    if isinstance(page, SidebarPage):
        return {"title": str(page.title), "icon": icon, "link": _address(page.view)}
    view = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
    title = str(model._meta.verbose_name_plural)
    return {"title": title[:1].upper() + title[1:], "icon": icon, "link": _address(view)}
