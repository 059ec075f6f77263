"""What the admin's pages list and do is in REST, too, or there is a reason why it is not."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin

from apps.access.models import AuditRecord
from apps.access.states import Role
from apps.alerts.models import RuleMute
from tests.access.factories import Api, make_project, make_user
from tests.rest.generated_calls import operations, read_schema

PATHS = {
    f"{each.method.upper()} {each.path.removeprefix('/api/v1/')}"
    for each in operations(read_schema())
}

# By model: the list, and by action of its pages the operation.
PAGES: dict[str, tuple[str, dict[str, str]]] = {
    "access.ApiToken": (
        "tokens",
        {
            "revoke_selected": "POST tokens/{id}/revoke",
            "revoke": "POST tokens/{id}/revoke",
            "rotate": "POST tokens/{id}/rotate",
        },
    ),
    "access.AuditRecord": ("audit", {}),
    "access.User": (
        "people",
        {"reset_factor": "POST people/{id}/reset-factor", "log_out": "POST people/{id}/log-out"},
    ),
    "agents.Agent": (
        "agents",
        {
            f"{each}_selected": f"POST agents/{{id}}/{each}"
            for each in ("enable", "drain", "disable", "exit")
        },
    ),
    "agents.Allocation": ("agents/allocations", {}),
    "agents.HostRule": (
        "host-rules",
        {
            "stop_selected": "POST host-rules/{id}/stop",
            "resume_selected": "POST host-rules/{id}/resume",
        },
    ),
    "agents.HostState": (
        "hosts",
        # A rule of the host is what stops it.
        {"stop_selected": "POST host-rules", "resume_selected": "POST host-rules/{id}/resume"},
    ),
    "alerts.Channel": ("channels", {"send_test": "POST channels/{id}/test"}),
    "alerts.Incident": (
        "incidents",
        {
            "acknowledge_selected": "POST incidents/{id}/acknowledge",
            "close_selected": "POST incidents/{id}/close",
        },
    ),
    "alerts.Notice": ("notices", {"send_again_selected": "POST notices/{id}/resend"}),
    "alerts.RuleMute": ("alert-rules", {}),
    "configcenter.ConfigVersion": ("config/versions", {}),
    "configcenter.Configuration": ("config", {}),
    "django_celery_beat.PeriodicTask": ("periodic-tasks", {}),
    "datasets.Dataset": ("datasets", {}),
    "joblogs.ErrorGroup": ("log-errors", {}),
    "joblogs.LogPolicy": ("log-policies", {}),
    "jobs.DeletedJob": (
        "jobs/deleted",
        dict.fromkeys(("restore_selected", "restore"), "POST jobs/{id}/restore"),
    ),
    "jobs.Host": (
        "run-hosts",
        {
            "enable_selected": "POST run-hosts/{id}/enable",
            "drain_selected": "POST run-hosts/{id}/drain",
            "disable_selected": "POST run-hosts/{id}/disable",
            "forget_selected": "DELETE run-hosts/{id}",
        },
    ),
    "jobs.Job": (
        "jobs",
        {
            "start_now": "POST jobs/{id}/start",
            "enable": "PATCH jobs/{id}",
            "disable": "PATCH jobs/{id}",
            "pause_runs": "POST jobs/{id}/pause",
            "resume_runs": "POST jobs/{id}/resume",
            "stop_runs": "POST jobs/{id}/stop",
            "clone_selected": "POST jobs/{id}/clone",
            "export_yaml": "GET jobs/export",
            "export_csv": "GET jobs/export",
        },
    ),
    "jobs.PlannedRun": ("planned-runs", {}),
    "jobs.Run": (
        "runs",
        {
            f"{each}_selected": f"POST runs/{{id}}/{each}"
            for each in ("pause", "resume", "restart", "stop")
        }
        | {"export_csv": "GET runs"},
    ),
    "projects.Build": (
        "builds",
        {
            "cancel_selected": "POST builds/{id}/cancel",
            "rebuild_selected": "POST builds/{id}/rebuild",
        },
    ),
    "projects.DeletedProject": (
        "projects/deleted",
        dict.fromkeys(("restore_selected", "restore"), "POST projects/{id}/restore"),
    ),
    "projects.Delivery": ("deliveries", {}),
    "projects.Image": ("images", {}),
    "projects.Project": ("projects", {}),
    "queuestats.FailedRequest": ("runs/{run}/failures", {}),
    "queuestats.RunStats": ("run-stats", {}),
    "queuestats.QueueState": ("queues", {}),
    "requeststore.QueueReport": ("bizzes", {}),
    "requeststore.SamplePage": ("sample-pages", {}),
    "requeststore.ShardReport": ("bizzes", {}),
    "routing.RoutedItem": ("routing/items", {}),
    "routing.RouterReport": ("routing/projects/{id}/routers", {}),
    "runtime.Daemon": ("daemons", {"forget_selected": "DELETE daemons/{id}"}),
    "runtime.DeadLetter": (
        "dead-letters",
        {
            "requeue_selected": "POST dead-letters/{id}/requeue",
            "drop_selected": "POST dead-letters/{id}/drop",
        },
    ),
    "runtime.OutboxMessage": (
        "outbox",
        {"retry_selected": "POST outbox/{id}/retry", "drop_selected": "DELETE outbox/{id}"},
    ),
    "seeds.Frontier": ("frontiers", {}),
    "seeds.Resource": (
        "resources",
        {
            f"{each}{ending}": f"POST resources/{{id}}/{each}"
            for each in ("ban", "unban", "disable", "enable", "release", "reset")
            for ending in ("", "_selected")
        },
    ),
    "seeds.ResourcePool": ("resource-pools", {}),
    "sources.Credential": ("source-credentials", {}),
    "sources.Harvest": ("harvests", {}),
    "sources.SourceState": ("sources/projects", {}),
}
# As docs/rest.md tells.
IN_THE_BROWSER_ALONE = {
    "auth.Group": "permissions of pages",
    "axes.AccessAttempt": "who is locked out has no token at hand; manage.py unlock_login",
}
SITE = {model._meta.label: page for model, page in admin.site._registry.items()}


def actions_of(page: Any) -> set[str]:
    found = set()
    for kind in ("actions", "actions_detail", "actions_list", "actions_row"):
        for each in getattr(page, kind, None) or ():
            found.add(each if isinstance(each, str) else each.__name__)
    return found


def test_every_page_is_known() -> None:
    assert SITE.keys() == PAGES.keys() | IN_THE_BROWSER_ALONE.keys()


@pytest.mark.parametrize("label", sorted(PAGES))
def test_what_a_page_does_rest_can_do(label: str) -> None:
    listed, acts = PAGES[label]
    assert f"GET {listed}" in PATHS
    assert actions_of(SITE[label]) <= acts.keys()
    assert set(acts.values()) <= PATHS


@pytest.mark.django_db
def test_a_rule_is_muted_and_tells_again() -> None:
    project = make_project()
    operator = Api(make_user(roles={project: Role.OPERATOR}))
    body = {"rule": "run failed", "project": project.pk}
    muted = operator.post("alert-rules/mute", {**body, "seconds": 3600, "note": "we know"})
    assert (muted.status_code, muted.json()["note"]) == (200, "we know")
    assert RuleMute.objects.get().project_id == project.pk
    assert operator.post("alert-rules/unmute", body).status_code == 204
    assert not RuleMute.objects.exists()
    assert AuditRecord.objects.filter(action__startswith="alerts.").count() == 2
    for refused in (
        operator.post("alert-rules/mute", {"rule": "x", "project": None, "seconds": 3600}),
        Api(make_user(roles={project: Role.VIEWER})).post("alert-rules/unmute", body),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "role_required")
    other = {**body, "project": make_project().pk}
    assert operator.post("alert-rules/unmute", other).status_code == 400
