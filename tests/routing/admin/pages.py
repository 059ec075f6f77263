"""What the tests of the router's pages share."""

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
    """Somebody with this role in the project, logged in."""
    return enter(make_user(roles={project: role}))


def address(name: str, project: Project | None = None, **query: Any) -> str:
    """The address of a page, of a project."""
    more = query if project is None else {"project": project.pk} | query
    return reverse(f"admin:{name}", query=more)


def html_of(client: Client, where: str) -> str:
    """The page as it is sent."""
    answer = client.get(where)
    assert answer.status_code == 200, answer.content
    return str(answer.content.decode())


def text_of(html: str) -> str:
    """What a person reads of a page."""
    without = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", without).split()))


def row_with(html: str, mark: str) -> str:
    """The row of a table that has this attribute, as text."""
    found = re.search(rf"<tr[^>]*{re.escape(mark)}.*?</tr>", html, flags=re.DOTALL)
    assert found is not None, mark
    return text_of(found[0])


def outbound(name: str, *selector: str, **fields: Any) -> Outbound:
    """An outbound to a Redis list of the same name."""
    values: dict[str, Any] = {
        "cls": "redis_queue.RedisListOutbound",
        "init": {"url": "{redis_url}", "key": name},
        "selector": selector,
    }
    return Outbound(name=name, **(values | fields))


def rule_set(*outbounds: Outbound) -> RuleSet:
    """One inbound and these outbounds, or two."""
    return RuleSet(
        project="yard",
        inbounds=(Inbound("logs", "http.HttpInbound", selector=("data_type",)),),
        outbounds=outbounds
        or (outbound("captcha", "data_type == 'change'"), outbound("rest", "True", retry_limits=3)),
        terminal_codes=(1000, 1101),
    )


def save(project: Project, rules: RuleSet | None = None, *, active: bool = False) -> ConfigVersion:
    """A version of these rules."""
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
    """What a router writes every other second."""
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
    """What the editor's script is given."""
    found = re.search(r'<script id="rules-data" type="application/json">(.*?)</script>', html)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def unchanged(form: dict[str, Any]) -> dict[str, Any]:
    """The draft of somebody who has not touched anything."""
    return {
        "rules": {},
        **{
            of: [{"from": at, "set": {}} for at in range(len(form["state"][of]))]
            for of in ("inbound", "outbound")
        },
    }
