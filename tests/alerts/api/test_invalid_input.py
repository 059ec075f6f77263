"""Invalid REST requests get an error with its reason, never a 500 or data of other projects."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from django.test import Client

from apps.access.states import Role
from apps.alerts.models import Incident, Notice
from apps.alerts.states import ChannelKind
from tests.access.factories import make_project, make_superuser, make_user
from tests.alerts.factories import make_channel, make_incident, make_notice
from tests.jobs.factories import make_job
from tests.plugins.long_tests import FULL_FUZZ, part

pytestmark = [pytest.mark.django_db, pytest.mark.fuzz, pytest.mark.timeout(300)]

SECRET = "pa55word-of-nobody"
WORDS: tuple[str, ...] = (
    "",
    "x",
    "0",
    "-1",
    "1e400",
    "9" * 40,
    "\0",
    "\ud7ff\uffff",
    "null",
    "true",
    "2026-03-01T00:00:00Z",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+14:00",
    "open",
    "'; --",
    "%s%(x)s{0}",
    "a" * 5000,
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**30,
    1e308,
    [],
    {},
    [[]],
    {"a": {"b": [1]}},
    "\0",
    *WORDS[:4],
    ["x", 1, None],
)
LISTS = ("incidents", "channels", "notices", "alert-rules", "alert-sources")
NAMES = (
    "project",
    "state",
    "severity",
    "rule",
    "source",
    "key",
    "opened_after",
    "opened_before",
    "name",
    "kind",
    "enabled",
    "incident",
    "channel",
    "channel_name",
    "cursor",
    "page",
    "page_size",
    "limit",
    "ordering",
    "search",
    "format",
)
# 7 and 71 divide none of the numbers of combinations.
EVERY = 7 if FULL_FUZZ else 71
RULE: dict[str, Any] = {"name": "r", "event": "run.failed", "when": {"times": 2, "in_seconds": 60}}
SERIES: dict[str, Any] = {"name": "r", "series": "queue.ready", "when": {"above": 1}}


def api(user: Any) -> Client:
    client = Client(raise_request_exception=True)
    client.force_login(user)
    return client


@pytest.fixture
def foreign() -> Any:
    """Create rows of a project that no client of these tests may see."""
    project = make_project()
    secrets = {"url": f"https://example.com/{SECRET}", "key": SECRET}
    channel = make_channel(
        project=project, kind=ChannelKind.WEBHOOK, name="foreign-hook", secrets=secrets, settings={}
    )
    incident = make_incident(project=project, rule="foreign rule")
    make_notice(channel=channel, incident=incident, project=project)
    return project


def clients() -> list[Client]:
    own = make_project()
    job = make_job(project=own)
    people = [make_user(roles={own: role}) for role in (Role.VIEWER, Role.EDITOR)]
    assert job.pk
    return [api(each) for each in (*people, make_user(roles={}))]


def fine(answer: Any, root: bool = False) -> None:
    assert answer.status_code < 500, (answer.request, answer.content[:300])
    text = answer.content.decode(errors="replace")
    assert SECRET not in text
    if not root:
        assert "foreign" not in text, (answer.request, text[:300])


def test_questions(foreign: Any) -> None:
    for number, client in enumerate(clients()):
        asked = itertools.product(LISTS, NAMES, WORDS)
        # Each client gets a different part of the combinations.
        for where, name, word in itertools.islice(asked, number, None, EVERY):
            fine(client.get(f"/api/v1/{where}", {name: word}))
        for model in (Incident, Notice):
            for row in model.objects.all():
                where = f"{model.__name__.lower()}s/{row.pk}"
                assert client.get(f"/api/v1/{where}").status_code == 404
        for word in WORDS[1:6]:
            for where in LISTS[:3]:
                fine(client.get(f"/api/v1/{where}/{word}"))


def test_orders(foreign: Any) -> None:
    root = api(make_superuser())
    incident = make_incident()
    for client in (clients()[1], root):
        is_root = client is root

        def post(where: str, body: Any, client: Client = client, is_root: bool = is_root) -> None:
            raw = json.dumps(body)
            fine(client.post(f"/api/v1/{where}", raw, content_type="application/json"), is_root)

        # The editor sends one half of a part, the superuser the other.
        for value in part(VALUES, int(is_root)):
            post("channels", value)
            post("alert-rules/preview", value)
            post("alert-rules/preview", {"project": value, "rule": RULE})
            post("alert-rules/preview", {"project": None, "rule": value})
            post("alert-rules/preview", {"project": None, "rule": RULE, "seconds": value})
            for base, name in itertools.product(
                (RULE, SERIES), ("name", "event", "series", "when", "label", "match", "recover")
            ):
                post("alert-rules/preview", {"project": None, "rule": base | {name: value}})
            for name in ("tell", "escalate", "quiet", "severity", "repeat_seconds", "enabled"):
                post("alert-rules/preview", {"project": None, "rule": RULE | {name: value}})
            for verb in ("acknowledge", "snooze", "close"):
                post(f"incidents/{incident.pk}/{verb}", {"note": value, "seconds": value})
            for kind in ChannelKind.values:
                base = {"name": "c", "kind": kind, "project": None, "language": "en"}
                post("channels", base | {"settings": value, "secrets": value})
                for name in ("to", "numbers", "url", "body", "headers", "mobiles", "characters"):
                    post("channels", base | {"settings": {name: value}, "secrets": {}})
                for name in ("url", "key", "secret"):
                    post("channels", base | {"settings": {}, "secrets": {name: value}})
            for name in ("project", "name", "kind", "language", "enabled"):
                good = {"name": "c", "kind": "mail", "project": None, "settings": {"to": ["a@b.c"]}}
                post("channels", good | {name: value})
