"""Projects with active rules, and requests to the seed's paths."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from apps.configcenter.models import Configuration, ConfigVersion
from apps.configcenter.services import activate, save_version
from apps.projects.models import Project
from apps.routing.engine.files.data import to_data
from apps.routing.engine.rules import Failure, Inbound, Outbound, RuleSet, Server
from apps.routing.queries import track_of
from tests.routing.factories import NOW

QUEUE = "redis_queue.RedisListOutbound"
CHANGES = Outbound(
    name="changes",
    cls=QUEUE,
    init={"url": "redis://:hush@127.0.0.1/0", "key": "changes"},
    selector=("data_type == 'change'",),
    retry_limits=1,
)
REST = Outbound(
    name="rest", cls=QUEUE, init={"url": "{redis_url}", "key": "rest"}, selector=("search_key",)
)


def http_inbound(name: str = "web", **fields: Any) -> Inbound:
    """Return the rule of an HTTP inbound."""
    return Inbound(name=name, cls="http.HttpInbound", **fields)


def activate_rules(
    project: Project,
    *,
    inbounds: tuple[Inbound, ...] = (),
    outbounds: tuple[Outbound, ...] = (CHANGES, REST),
    server: Server | None = None,
    failure: Failure | None = None,
) -> ConfigVersion:
    """Save a version of these rules and activate it."""
    rules = RuleSet(
        project=project.slug,
        inbounds=inbounds,
        outbounds=outbounds,
        terminal_codes=(1000, 1101),
        server=server,
        failure=failure,
    )
    saved = save_version(
        kind="routing", project_id=project.pk, data=to_data(rules), actor=None, now=NOW
    )
    activate(version=saved.version, actor=None, now=NOW)
    return saved.version


def ruled(project: Project) -> Project:
    """Return a project with active rules."""
    track_of.cache_clear()
    if not Configuration.objects.filter(project=project, active__isnull=False).exists():
        activate_rules(project)
    return project


def send(path: str, body: Any, *, client: Client | None = None, **options: Any) -> Any:
    """POST a body: bytes unchanged, anything else as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    options.setdefault("content_type", "application/json")
    client = client or Client(raise_request_exception=False)
    return client.post(path, raw, **options)
