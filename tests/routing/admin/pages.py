"""Helpers for the tests of the router's pages."""

from __future__ import annotations

import json
import re
from datetime import datetime
from html import unescape
from typing import Any

import msgspec
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.access.states import Role
from apps.configcenter.models import ConfigVersion
from apps.configcenter.services import activate, save_version
from apps.projects.models import Project
from apps.routing.engine.files.data import to_data
from apps.routing.engine.reports import Reports
from apps.routing.engine.rules import Inbound, Outbound, RuleSet
from apps.routing.models import RouterReport
from tests.access.factories import enter, make_user

OVERVIEW = "routing_routerreport_changelist"
LIVE = "routing_routerreport_live"
RULES = "routing_rules"
SECRET = "hunter2"
URL = f"redis://:{SECRET}@cache:6379/0"


def person(project: Project, role: Role = Role.EDITOR) -> Client:
    """Return a client that is logged in with this role in the project."""
    return enter(make_user(roles={project: role}))


def address(name: str, project: Project | None = None, **query: Any) -> str:
    """Return the URL of a project's page."""
    more = query if project is None else {"project": project.pk} | query
    return reverse(f"admin:{name}", query=more)


def html_of(client: Client, where: str) -> str:
    """Return the HTML of a page."""
    answer = client.get(where)
    assert answer.status_code == 200, answer.content
    return str(answer.content.decode())


def text_of(html: str) -> str:
    """Return the visible text of a page."""
    without = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", without).split()))


def row_with(html: str, mark: str) -> str:
    """Return the text of the table row that has this attribute."""
    found = re.search(rf"<tr[^>]*{re.escape(mark)}.*?</tr>", html, flags=re.DOTALL)
    assert found is not None, mark
    return text_of(found[0])


def outbound(name: str, *selector: str, **fields: Any) -> Outbound:
    """Return an outbound to a Redis list of the same name."""
    values: dict[str, Any] = {
        "cls": "redis_queue.RedisListOutbound",
        "init": {"url": "{redis_url}", "key": name},
        "selector": selector,
    }
    return Outbound(name=name, **(values | fields))


def rule_set(*outbounds: Outbound) -> RuleSet:
    """Return rules with one inbound and these outbounds, two by default."""
    return RuleSet(
        project="yard",
        inbounds=(Inbound("logs", "http.HttpInbound", selector=("data_type",)),),
        outbounds=outbounds
        or (outbound("captcha", "data_type == 'change'"), outbound("rest", "True", retry_limits=3)),
        terminal_codes=(1000, 1101),
    )


def save(project: Project, rules: RuleSet | None = None, *, active: bool = False) -> ConfigVersion:
    """Save a version of these rules."""
    saved = save_version(
        kind="routing",
        project_id=project.pk,
        data=to_data(rules or rule_set()),
        actor=None,
        now=timezone.now(),
    ).version
    if active:
        activate(version=saved, actor=None, now=timezone.now())
    return saved


def report(
    project: Project, reports: Reports, *, router: str = "r1", at: datetime | None = None
) -> RouterReport:
    """Store a status report of a router."""
    row, _created = RouterReport.objects.update_or_create(
        router=router,
        project=project,
        defaults={
            "rules_version": 1,
            "at": at or timezone.now(),
            "reports": msgspec.to_builtins(reports),
        },
    )
    return row


def form_of(html: str) -> dict[str, Any]:
    """Return the data that the editor's script receives."""
    found = re.search(r'<script id="rules-data" type="application/json">(.*?)</script>', html)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def unchanged(form: dict[str, Any]) -> dict[str, Any]:
    """Return the draft of an editor who changed nothing."""
    return {
        "rules": {},
        **{
            of: [{"from": at, "set": {}} for at in range(len(form["state"][of]))]
            for of in ("inbound", "outbound")
        },
    }
