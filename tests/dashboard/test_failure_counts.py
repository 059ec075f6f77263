"""What the failure page says of a part that is away, against what is really so; over REST."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone, translation

from apps.access.states import Role
from apps.agents.states import ALIVE_FOR
from apps.dashboard import backlog as backlog_module
from apps.dashboard import probes
from apps.dashboard.api import health
from apps.dashboard.backlog import Backlog, BacklogReader
from apps.dashboard.failures.impact import ImpactCounts
from apps.dashboard.failures.part import SystemPart
from apps.dashboard.failures.parts import process_parts
from apps.dashboard.failures.view import OUTBOX_LATE
from apps.dashboard.probes import Prober, ProbeResult
from apps.jobs.models import Run
from apps.jobs.services import runs as run_services
from apps.jobs.services import start_run
from apps.jobs.states import RunState
from apps.routing.daemon.delivery import LEASE_SECONDS
from apps.routing.models import RoutedItem
from apps.routing.services import claim_parked
from apps.routing.states import ItemState
from apps.runtime.models import OutboxMessage
from apps.runtime.queries import LIVE_SECONDS
from apps.runtime.services import close_shared_broker, register_daemon, relay_outbox, shared_broker
from tests.access.factories import bearer, enter, make_superuser, make_token, make_user
from tests.agents.factories import make_agent
from tests.jobs.factories import make_job, make_project, make_run
from tests.queuestats.factories import report
from tests.routing.factories import arrive, later, moved
from yardkit import topology
from yardkit.broker import Outgoing

pytestmark = pytest.mark.django_db

ADDRESS = "/api/v1/health/parts"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is asked for itself, and anew; the rest is well."""
    questions = {"database": lambda: "here", "broker": probes.broker}
    monkeypatch.setattr(probes, "questions", lambda: questions)
    monkeypatch.setattr(probes, "_prober", Prober())
    monkeypatch.setattr(backlog_module, "_reader", BacklogReader())


@pytest.fixture
def no_broker(settings: Any, asked: None) -> Iterator[None]:
    """Nobody listens where the broker should be."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    close_shared_broker()
    settings.BROKER_URL = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
    yield
    close_shared_broker()


def parts_now() -> dict[str, Any]:
    answer = enter(make_superuser()).get(ADDRESS)
    assert answer.status_code == 200
    told: dict[str, Any] = answer.json()
    return told


def part_of(told: dict[str, Any], key: str) -> dict[str, Any]:
    return next(each for each in told["results"] if each["key"] == key)


def facts_of(told: dict[str, Any], key: str) -> dict[str, int | None]:
    return {fact["key"]: fact["number"] for fact in part_of(told, key)["facts"]}


@pytest.mark.slow("5 s")
def test_without_the_broker_what_is_to_be_said_waits_and_is_sent_when_it_is_back(
    no_broker: None, settings: Any, sqlite_broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make_run(state=RunState.RUNNING)
    report(running, total=700, success=90, failed=8, queued=597, in_flight=0, out=5)
    started = start_run(job=make_job(), now=timezone.now(), actor=make_superuser())

    told = parts_now()
    assert not told["well"]
    assert "broker" in told["bad"]
    waits = OutboxMessage.objects.count()
    assert waits > 0
    assert told["unsent"]["messages"] == waits
    facts = facts_of(told, "broker")
    assert facts == {"runs": 2, "left": 602, "out": 5, "outbox": waits}
    # What lies in a broker that does not answer is nobody's guess, least of all 0.
    assert facts_of(told, "center")["waiting"] is None
    assert facts_of(told, "logs")["waiting"] is None
    page = enter(make_superuser()).get("/admin/health").content.decode()
    section = page.partition('data-part="center"')[2].partition("</section>")[0]
    assert 'data-fact="waiting">unknown<' in section

    # "All processes connect again by themselves": the message is there, and the run as it was.
    close_shared_broker()
    settings.BROKER_URL = sqlite_broker_url
    monkeypatch.setattr(probes, "_prober", Prober())
    monkeypatch.setattr(backlog_module, "_reader", BacklogReader())
    broker = shared_broker()
    broker.declare(*topology.SHARED)
    assert relay_outbox(broker) == waits
    told = parts_now()
    assert part_of(told, "broker")["state"] in ("well", "slow")
    assert told["unsent"] == {"messages": 0, "since": None, "late": False}
    assert facts_of(told, "center")["waiting"] == 0
    assert Run.objects.get(pk=started.pk).state == RunState.QUEUED


def test_without_an_ingester_lines_wait_in_the_broker_and_are_counted(
    asked: None, settings: Any, sqlite_broker_url: str
) -> None:
    close_shared_broker()
    settings.BROKER_URL = sqlite_broker_url
    broker = shared_broker()
    broker.declare(*topology.SHARED)
    broker.publish([Outgoing(body=b"x", key=topology.LOGS.name)] * 7).result(10)
    told = parts_now()
    close_shared_broker()
    assert part_of(told, "logs")["state"] == "away"
    assert facts_of(told, "logs")["waiting"] == 7


@pytest.fixture
def well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that are there, and a broker whose queues are empty."""
    answers = {"database": ProbeResult(True, "here"), "broker": ProbeResult(True, "here")}
    monkeypatch.setattr(health, "probe", lambda: answers)
    monkeypatch.setattr(health, "backlog", Backlog)


def test_without_a_router_items_wait_and_keep_their_names(well: None) -> None:
    project = make_project()
    parked = [moved(entry, ItemState.PARKED, outbound="full") for entry in arrive(project, 3)]
    arrive(project, 2)
    past = timezone.now() - timedelta(minutes=5)
    register_daemon(
        kind="router", name="r-1", boot="1", host="box", pid=1, state="running", now=past
    )
    told = parts_now()
    assert part_of(told, "router")["state"] == "away"
    assert part_of(told, "router")["since"].startswith(past.strftime("%Y-%m-%dT%H:%M"))
    in_ledger = RoutedItem.objects.filter(state=ItemState.PARKED).count()
    assert facts_of(told, "router") == {"routed": 2, "parked": in_ledger}
    # "Offered again under the same task_uuid", in order.
    ask: dict[str, Any] = {
        "project": project.pk,
        "outbound": "full",
        "now": later(5),
        "lease_seconds": 60,
    }
    again = claim_parked(**ask, limit=9)
    assert [each.task_uuid for each in again] == [each.task_uuid for each in parked]


def test_who_is_in_trouble_since_when(well: None) -> None:
    now = timezone.now()
    for name, seconds in (("a", 0), ("b", 300), ("c", 900)):
        when = now - timedelta(seconds=seconds)
        register_daemon(
            kind="center", name=name, boot="1", host="box", pid=1, state="running", now=when
        )
    make_agent(silent_seconds=600)
    told = parts_now()
    assert part_of(told, "center")["state"] == "trouble"
    # The first one that went silent, and the last one that was heard.
    assert part_of(told, "center")["since"].startswith(
        (now - timedelta(seconds=900)).strftime("%Y-%m-%dT%H:%M:%S")
    )
    assert part_of(told, "agents")["state"] == "away"
    assert part_of(told, "agents")["since"] is not None
    assert part_of(told, "collector")["since"] is None


def test_a_prober_remembers_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "FRESH_SECONDS", 0.0)
    well = [True, True, False]

    def flickers() -> str:
        if not well.pop(0):
            raise OSError("gone")
        return "v1"

    prober = Prober()
    first, second, third = [prober.ask({"it": flickers}, seconds=30)["it"] for _time in range(3)]
    assert first.since is not None
    assert second.since == first.since
    assert third.ok is False
    assert third.since is not None
    assert third.since > first.since


# --- what the sentences promise -------------------------------------------------------------------


def texts_of(key: str) -> str:
    with translation.override("en"):
        found: SystemPart = next(
            each for each in process_parts(ImpactCounts(), {}) if each.key == key
        )
        return " ".join((found.happens, found.lost, found.back, found.noticed))


@pytest.mark.parametrize(
    ("part", "seconds"),
    [
        ("center", topology.DOWNLOAD_EXPIRES_SECONDS),
        ("center", LIVE_SECONDS),
        ("agents", ALIVE_FOR.total_seconds()),
        ("runner", run_services.WATCH_LEASE_SECONDS),
        ("runner", run_services.REAP_AFTER_SECONDS),
        ("router", LEASE_SECONDS),
        # A second one notices that the first is silent.
        ("beat", LIVE_SECONDS),
        ("monitor", LIVE_SECONDS),
    ],
)
def test_the_seconds_of_the_texts_are_those_of_the_programs(part: str, seconds: float) -> None:
    assert f"{seconds:.0f} s" in texts_of(part)


# --- who may ask ----------------------------------------------------------------------------------


def test_only_who_sees_everything_may_ask(well: None, client: Any) -> None:
    assert client.get(ADDRESS).status_code == 401
    project = make_project()
    assert enter(make_user(roles={project: Role.ADMIN})).get(ADDRESS).status_code == 403
    root = make_superuser()
    allowed = bearer(make_token(root, scopes=("dashboard:read",)))
    assert client.get(ADDRESS, headers=allowed).status_code == 200
    narrow = bearer(make_token(root, scopes=("jobs:read",)))
    assert client.get(ADDRESS, headers=narrow).status_code == 403


def test_it_tells_what_the_page_tells(well: None) -> None:
    OutboxMessage.objects.create(
        message_id="m", key="q", body=b"", created_at=timezone.now() - 2 * OUTBOX_LATE
    )
    told = parts_now()
    assert told["unsent"]["late"] is True
    assert told["well"] is False
    assert {each["kind"] for each in told["results"]} == {"server", "process"}
    assert told["bad"] == [each["key"] for each in told["results"] if each["bad"]]
    center = part_of(told, "center")
    assert all(center[text] for text in ("without_it", "lost", "when_back", "noticed"))
    assert "manage.py run_center" in center["commands"]
    assert center["runbook"] == "run_center"
