"""Projects with rules for tests of pages."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from apps.configcenter.models import Configuration, ConfigVersion
from apps.configcenter.services import activate, save_version
from apps.projects.models import Project
from apps.routing.engine.files.data import to_data
from apps.routing.engine.rules import Convert, Inbound, Outbound, RuleSet
from tests.routing.factories import NOW

LIST = "redis_queue.RedisListOutbound"
LOGS = Inbound(
    name="logs",
    cls="redis_queue.RedisListInbound",
    init={"url": "redis://127.0.0.1:6379/0", "key": "ic:logs"},
    selector=("data_type == 'change'", "task_src == 3"),
    convert=(Convert("common.ExtractTaskParams"),),
)
NORTH = Outbound(
    name="north",
    cls=LIST,
    init={"url": "redis://ops:hunter2@10.8.6.1/0", "key": "ic:north"},
    selector=("province == 'BJ' and int(level) > 3",),
)
SOUTH = Outbound(
    name="south",
    cls=LIST,
    init={"url": "redis://127.0.0.1:6379/0", "key": "ic:south"},
    selector=("province == 'GD' and data_type in ['change', 'new']", "province == 'HN'"),
    retry_limits=2,
    failback="spare",
)
SPARE = Outbound(
    name="spare", cls=LIST, init={"url": "redis://127.0.0.1:6379/0", "key": "ic:spare"}
)
REST = Outbound(
    name="rest",
    cls=LIST,
    init={"url": "redis://127.0.0.1:6379/0", "key": "ic:rest"},
    selector=("province",),
)
RULES = RuleSet(
    project="ic", inbounds=(LOGS,), outbounds=(NORTH, SOUTH, SPARE, REST), terminal_codes=(1000,)
)


def save_rules(project: Project, rules: RuleSet = RULES, **changed: Any) -> ConfigVersion:
    """Save a version of the rules."""
    data = to_data(replace(rules, project=project.slug, **changed))
    return save_version(
        kind="routing", project_id=project.pk, data=data, actor=None, now=NOW
    ).version


def activate_rules(project: Project, rules: RuleSet = RULES, **changed: Any) -> ConfigVersion:
    """Save a version of the rules and activate it."""
    version = save_rules(project, rules, **changed)
    activate(version=version, actor=None, now=NOW)
    return version


def save_broken_rules(project: Project) -> ConfigVersion:
    """Save an invalid version, as another release may have left it, bypassing the services."""
    row = Configuration.objects.get(project=project)
    data = to_data(replace(RULES, outbounds=(replace(REST, selector=("province ==",)),)))
    version = ConfigVersion.objects.create(
        configuration=row, number=row.newest + 1, content=json.dumps(data), digest="0" * 64
    )
    Configuration.objects.filter(pk=row.pk).update(newest=version.number)
    return version
