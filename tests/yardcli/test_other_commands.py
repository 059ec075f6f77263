"""Projects, agents, routing, seeds, requests, sources, configuration, incidents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.access.models import User
from apps.agents.models import Agent
from apps.alerts.models import Incident, RunSubscription
from apps.configcenter.models import Configuration
from apps.projects.models import Build, Project
from apps.runtime.models import DeadLetter, OutboxMessage
from tests.access.factories import make_superuser, make_token
from tests.agents.factories import make_agent
from tests.alerts.factories import make_channel, make_incident
from tests.dashboard.machinery import make_letter, make_outgoing
from tests.joblogs.factories import make_build, store_texts
from tests.jobs.factories import make_job
from tests.requeststore.factories import make_biz
from tests.routing.api.active_rules import activate_rules
from tests.seeds.api.conftest import Service
from tests.seeds.factories import make_frontier
from tests.sources.records import sourced
from tests.yardcli.conftest import Crawlyard
from yardcli.groups import channels


@pytest.mark.slow("3 s")
def test_projects_and_builds(entered: Crawlyard, project: Project) -> None:
    assert "news" in entered("projects", "list").out
    for name in ("news", "The news", project.pk):
        assert json.loads(entered("projects", "show", name, "-o", "json").out)["id"] == project.pk
    assert entered("projects", "show", "olds").code == 4
    limits = entered("projects", "retention", "news", "--days", 90, "--runs", 5, "-o", "json")
    assert json.loads(limits.out) == {"keep_days": 90, "keep_runs": 5, "keep_bytes": None}
    build = make_build(project=project, state="failed", ended_at=project.created_at)
    store_texts(f"build:{build.pk}", "step 1")
    assert "step 1" in entered("builds", "logs", build.pk).out
    assert "failed" in entered("builds", "list", "-p", "news", "--state", "failed").out
    assert entered("builds", "cancel", build.pk).code == 6
    Project.objects.filter(pk=project.pk).update(git_url="https://git.example.com/news.git")
    made = entered("projects", "build", "news", "prod/news/2", "-o", "json")
    assert made.code == 0, made.err
    assert Build.objects.get(pk=json.loads(made.out)["id"]).tag == "prod/news/2"


@pytest.mark.slow("3 s")
def test_agents(entered: Crawlyard, project: Project) -> None:
    agent = make_agent()
    assert agent.name in entered("agents", "list", "--alive").out
    for name in (agent.agent_id, agent.name, agent.pk):
        assert entered("agents", "show", name).code == 0
    assert entered("agents", "drain", agent.name).code == 0
    assert Agent.objects.get().mode == "draining"
    assert entered("agents", "enable", agent.name).code == 0
    assert entered("agents", "show", "nobody").code == 4


@pytest.mark.slow("2 s")
def test_no_name_names_nothing(entered: Crawlyard, project: Project) -> None:
    """As an empty variable of a script has it: not the only one there is, and not all."""
    make_agent(name="")
    assert entered("agents", "drain", "").code == 4
    assert Agent.objects.get().mode == "enabled"
    for words in (("sources", "run", ""), ("jobs", "list", "-p", ""), ("runs", "list", "-p", "")):
        assert entered(*words).code == 4, words


@pytest.mark.slow("3 s")
def test_route_explain(entered: Crawlyard, project: Project, tmp_path: Path) -> None:
    activate_rules(project)
    item = tmp_path / "item.json"
    item.write_text('{"data_type": "change", "code": 0}')
    said = entered("route", "explain", "news", item)
    assert said.code == 0, said.err
    assert "changes" in said.out
    none = entered("route", "explain", "news", "-", "-o", "json", stdin="{other: 1}")
    assert none.code == 1, none.out
    assert json.loads(none.out)["decision"] is not None
    assert entered("route", "explain", "news", "-", stdin="[1]").code == 2
    assert entered("route", "explain", "news", "-", stdin="{a: [").code == 2
    assert entered("route", "explain", "news", tmp_path / "none").code == 2
    assert entered("route", "items", "-p", "news").code == 0


@pytest.fixture
def service(
    project: Project, tmp_path: Path, settings: Any, sqlite_broker_url: str
) -> Iterator[Service]:
    from apps.runtime.services import close_shared_broker

    close_shared_broker()
    settings.BROKER_URL = sqlite_broker_url
    make_frontier(project, name="pages")
    made = Service(f"rocksdb://{tmp_path}/seeds?sync=0")
    made.start()
    yield made
    made.stop()
    close_shared_broker()


@pytest.mark.slow("4 s")
def test_seeds(
    service: Service, entered: Crawlyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from apps.seeds.services import clients

    monkeypatch.setattr(clients, "TIMEOUT_SECONDS", 30.0)
    assert "pages" in entered("seeds", "list", "-p", "news").out
    file = tmp_path / "seeds.txt"
    file.write_text("https://example.com/a\nhttps://example.com/b\nhttps://example.com/a\n")
    said = entered("seeds", "add", "pages", file, "-o", "json")
    assert said.code == 0, said.err
    assert [json.loads(said.out)[name] for name in ("new", "duplicates", "refused")] == [2, 1, 0]
    assert entered("seeds", "add", "pages", "-", "--lines", "json", stdin="{}\n").code == 1
    assert entered("seeds", "add", "pages", tmp_path / "none").code == 2
    known = entered("seeds", "lookup", "news/pages", "https://example.com/a", "-o", "json")
    assert known.code == 0, known.err
    assert json.loads(known.out)["known"]["state"] == "init"
    assert entered("seeds", "lookup", "pages", "https://example.com/c").code == 1
    assert entered("seeds", "stats", "pages").code == 0


@pytest.mark.slow("4 s")
def test_requests(entered: Crawlyard, project: Project, request_nodes: dict[str, str]) -> None:
    make_biz(project)
    said = entered("requests", "add", "news", "news", "https://example.com/1", "-o", "json")
    assert said.code == 0, said.err
    (number,) = json.loads(said.out)["ids"]
    lines = 'https://example.com/2\n\n{"url": "https://example.com/3"}\n'
    more = entered("requests", "add", "news", "news", "--file", "-", "-o", "json", stdin=lines)
    assert json.loads(more.out)["count"] == 2
    story = json.loads(entered("requests", "trace", number, "-o", "json").out)
    assert story["steps"]
    assert entered("requests", "trace", 12345).code == 4
    listed = json.loads(entered("requests", "list", "--biz", "news", "-o", "json").out)
    assert len(listed) == 3
    assert "news" in entered("requests", "stats", "-p", "news").out
    assert entered("requests", "add", "news", "news").code == 2
    assert entered("requests", "add", "news", "news", "-f", "-", stdin="{").code == 2
    assert entered("requests", "add", "news", "none", "https://example.com/").code == 4


@pytest.mark.slow("2 s")
def test_sources(entered: Crawlyard, project: Project) -> None:
    sourced(project)
    name = json.loads(entered("sources", "list", "news", "-o", "json").out)[0]["name"]
    ran = entered("sources", "run", "news", name, "-o", "json")
    assert json.loads(ran.out) == [{"name": name, "became": "queued"}]
    missing = entered("sources", "run", "news", "nope")
    assert (missing.code, "sources: nope: " in missing.err) == (4, True)
    assert entered("sources", "stop", "news").code == 0
    assert entered("sources", "history", "--source", name).code == 0


@pytest.mark.slow("6 s")
def test_config(entered: Crawlyard, project: Project, tmp_path: Path) -> None:
    activate_rules(project)
    shown = entered("config", "get", "routing", "-p", "news")
    assert shown.code == 0, shown.err
    file = tmp_path / "rules.yaml"
    file.write_text(shown.out)
    same = entered("config", "apply", "routing", file, "-p", "news", "--dry-run")
    assert same.code == 0, same.err
    assert "no changes" in same.err
    assert "retry_limits: 1" in shown.out
    file.write_text(shown.out.replace("retry_limits: 1", "retry_limits: 5"))
    changed = entered("config", "apply", "routing", file, "-p", "news", "--dry-run")
    assert "1 -> 5" in changed.out
    assert Configuration.objects.get(project=project).newest == 1
    applied = entered("config", "apply", "routing", file, "-p", "news", "-m", "more tries")
    assert applied.code == 0, applied.err
    assert Configuration.objects.get(project=project).active.number == 2
    differs = entered("config", "diff", "routing", "1", "2", "-p", "news")
    assert (differs.code, "retry_limits" in differs.out) == (1, True)
    assert entered("config", "diff", "routing", "-p", "news").code == 0
    assert entered("config", "revert", "routing", "-p", "news").code == 0
    assert Configuration.objects.get(project=project).active.number == 1
    assert entered("config", "activate", "routing", "2", "-p", "news").code == 0
    assert entered("config", "activate", "routing", "2", "-p", "news").code == 6
    assert "more tries" in entered("config", "versions", "routing", "-p", "news").out
    assert entered("config", "running", "routing", "-p", "news").code == 0
    assert "routing" in entered("config", "list").out
    file.write_text("outbounds: 7\n")
    wrong = entered("config", "apply", "routing", file, "-p", "news", "--dry-run")
    assert (wrong.code, "error: " in wrong.err) == (2, True)
    assert entered("config", "apply", "routing", file, "-p", "news").code == 2
    assert entered("config", "get", "biz", "-p", "news").code == 4


@pytest.mark.covers("UX.6")
@pytest.mark.slow("2 s")
def test_channels(entered: Crawlyard, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, job = make_channel(project=project, name="ops"), make_job(project=project, name="shop")
    assert "ops" in entered("channels", "list", "-p", "news").out
    assert entered("channels", "subscribe", "ops", "--job", job.pk, "--each-end").code == 0
    row = RunSubscription.objects.get()
    assert (row.channel, row.job, row.every_end) == (channel, job, True)
    assert "ops" in entered("channels", "subscriptions", "-p", "news").out
    assert entered("channels", "subscribe", "nobody", "--job", job.pk).code == 2
    assert entered("channels", "unsubscribe", row.pk).code == 0
    assert not RunSubscription.objects.exists()
    assert entered("channels", "notify-me", job.pk, "--when", "end").code == 2, "no address"
    User.objects.update(email="ann@example.com")
    assert entered("channels", "notify-me", job.pk, "--when", "end").code == 0
    assert RunSubscription.objects.get().every_end
    monkeypatch.setattr(channels, "ANSWER_SECONDS", 0.0)
    said = entered("channels", "test", channel.pk)
    assert (said.code, "no worker" in said.err) == (1, True)


@pytest.mark.slow("1 s")
def test_incidents(entered: Crawlyard, project: Project) -> None:
    incident = make_incident(project=project)
    assert str(incident.pk) in entered("incidents", "list", "-p", "news").out
    assert entered("incidents", "ack", incident.pk, "--note", "I look").code == 0
    assert Incident.objects.get().acknowledged_at is not None
    assert entered("incidents", "show", incident.pk).code == 0


@pytest.mark.slow("2 s")
def test_messages(entered: Crawlyard, monkeypatch: pytest.MonkeyPatch) -> None:
    back, gone = make_letter(), make_letter(queue="runners")
    now, never = make_outgoing(), make_outgoing(key="logs")
    # An admin of a project sees none of them.
    assert entered("dead-letters", "list").code == 3
    assert entered("outbox", "drop", never.pk).code == 3
    monkeypatch.setenv("CRAWLYARD_TOKEN", make_token(make_superuser()).secret)
    listed = json.loads(entered("dead-letters", "list", "--queue", "runners", "-o", "json").out)
    assert [row["id"] for row in listed] == [gone.pk]
    assert "nobody understands it" in entered("dead-letters", "show", back.pk).out
    assert entered("dead-letters", "requeue", back.pk).code == 0
    dropped = entered("dead-letters", "drop", gone.pk, "-o", "json")
    assert json.loads(dropped.out)["state"] == "dropped", dropped.err
    states = DeadLetter.objects.order_by("pk").values_list("state", flat=True)
    assert list(states) == ["requeued", "dropped"]
    # What is decided stays so; what is not there is not found.
    assert entered("dead-letters", "requeue", gone.pk).code == 6
    assert entered("dead-letters", "drop", 999_999).code == 4

    listed = json.loads(entered("outbox", "list", "--failed", "--key", "logs", "-o", "json").out)
    assert [row["id"] for row in listed] == [never.pk]
    sent = entered("outbox", "retry", now.pk, "-o", "json")
    assert json.loads(sent.out)["next_try_at"] is None, sent.err
    assert entered("outbox", "drop", never.pk).code == 0
    assert not OutboxMessage.objects.filter(pk=never.pk).exists()
    assert entered("outbox", "drop", never.pk).code == 4
