"""Politeness in a center with a real broker file: what runs and agents hear of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings

from apps.agents.center.threads import CenterThreadDied
from apps.agents.hosts.models import HostState
from apps.agents.hosts.services import create_rule, resume_host, stop_host
from apps.jobs.models import Run
from tests.agents.center_harness import REPLY, CenterHarness
from tests.agents.conftest import running
from yardkit import topology
from yardkit.broker import Outgoing
from yardkit.protocol import (
    AllocateDownloader,
    AnyMessage,
    Dispatched,
    DownloadCommand,
    DownloadResult,
    DownloadResults,
    DownloadsFinished,
    DownloadsHeld,
    DownloadsRefused,
    Heartbeat,
    HostResult,
    Policy,
    Release,
    Skipped,
    Withdraw,
    decode_request,
)
from yardkit.tokens import sign_run_token

pytestmark = pytest.mark.django_db(transaction=True)

HOST = "example.com"
REPORTS = topology.center_reports("c1").name


@pytest.fixture
def open_run(transactional_db: None) -> Run:
    """A run whose pages are somewhere else."""
    return running(())


def start(harness: CenterHarness, run: Run, *agents: str, **allocate: Any) -> str:
    """Register ``agents`` and allocate them; the queue of the first."""
    queues = [harness.agent(agent) for agent in agents or ("a",)]
    assert len(harness.allocate(run, **allocate).agents) == len(queues)
    assert isinstance(harness.receive(queues[0]), AllocateDownloader)
    return queues[0]


def sums(harness: CenterHarness, run: Run) -> dict[str, int]:
    """The counters, which must add up at any moment."""
    entry = harness.center.runs.get(run.pk)
    assert entry is not None
    with harness.center.runs._lock:
        counters = dict(entry.counters)
    assert counters["received"] == sum(counters.values()) - counters["received"]
    return counters


def collect(harness: CenterHarness, queue: str, kind: type[AnyMessage], count: int) -> list[Any]:
    """Messages of one kind until they carry ``count`` requests."""
    found: list[Any] = []
    while sum(len(one.items) for one in found) < count:
        message = harness.receive(queue)
        assert isinstance(message, kind), message
        found.append(message)
    return found


def test_requests_to_a_host_are_held_told_and_sent_one_after_another(
    harness: CenterHarness, open_run: Run
) -> None:
    create_rule(actor=None, host=HOST, requests_per_second=20, concurrency=0)
    queue = start(harness, open_run, obey_robots=False)
    harness.until(lambda: harness.center.gate._rules.find(HOST) is not None)
    harness.download(open_run, host=HOST, count=10)
    commands = collect(harness, queue, DownloadCommand, 10)
    assert {command.report_to for command in commands} == {REPORTS}
    assert len(commands) >= 5
    told = collect(harness, REPLY, DownloadsHeld, 1)
    assert told[0].wait_seconds >= 20
    assert told[0].reason == f"{HOST} is asked at most 20 times a second"
    waited = sum(len(one.items) for one in told)
    collect(harness, REPLY, Dispatched, waited)
    harness.until(lambda: sums(harness, open_run)["dispatched"] == 10)
    assert sums(harness, open_run)["held"] == 0


def test_what_may_pass_is_sent_at_once_and_reports_to_nobody(
    harness: CenterHarness, run: Run
) -> None:
    queue = start(harness, run)
    harness.download(run, host="127.0.0.1", count=500)
    commands = collect(harness, queue, DownloadCommand, 500)
    assert {command.report_to for command in commands} == {""}
    assert harness.broker.depth(REPLY).ready == 0


@pytest.mark.slow("2 s")
def test_a_rule_holds_even_for_this_machine_itself(harness: CenterHarness, run: Run) -> None:
    stop_host(host="127.0.0.1", actor=None)
    queue = start(harness, run, obey_robots=False)
    harness.until(lambda: harness.center.gate._rules.find("127.0.0.1") is not None)
    harness.download(run, host="127.0.0.1", count=7)
    (held,) = collect(harness, REPLY, DownloadsHeld, 7)
    assert "stopped" in held.reason
    assert sums(harness, run)["held"] == 7
    harness.until(lambda: HostState.objects.filter(held=7, stopped=True).exists())
    state = HostState.objects.get()
    assert (state.host, state.center, state.in_flight) == ("127.0.0.1", "c1", 0)
    resume_host(host="127.0.0.1", actor=None)
    collect(harness, queue, DownloadCommand, 7)
    collect(harness, REPLY, Dispatched, 7)


@pytest.mark.slow("1 s")
def test_reports_of_the_agents_make_room_and_a_busy_host_is_left_alone(
    harness: CenterHarness, open_run: Run
) -> None:
    create_rule(actor=None, host=HOST, requests_per_second=0, concurrency=2)
    queue = start(harness, open_run, obey_robots=False)
    harness.until(lambda: harness.center.gate._rules.find(HOST) is not None)
    harness.download(open_run, host=HOST, count=5)
    collect(harness, queue, DownloadCommand, 2)
    harness.until(lambda: sums(harness, open_run)["held"] == 3)
    report = DownloadsFinished(run=open_run.pk, agent="a", hosts=[HostResult(HOST, 2)])
    harness.send(REPORTS, report)
    collect(harness, queue, DownloadCommand, 2)
    busy = DownloadsFinished(run=open_run.pk, agent="a", hosts=[HostResult(HOST, 2, 1, 3600.0)])
    harness.send(REPORTS, busy)
    harness.until(lambda: HostState.objects.filter(blocked_until__isnull=False, held=1).exists())
    assert "too busy" in HostState.objects.get().reason
    assert sums(harness, open_run)["held"] == 1


def test_robots_txt_is_fetched_through_an_agent_and_kept_to(
    harness: CenterHarness, open_run: Run
) -> None:
    create_rule(actor=None, host=HOST, requests_per_second=0, concurrency=0)
    queue = start(harness, open_run)
    harness.until(lambda: harness.center.gate._rules.find(HOST) is not None)
    harness.download(open_run, host=HOST, count=20)
    fetch = harness.receive(queue)
    assert isinstance(fetch, DownloadCommand)
    # Nobody reports its end: that would free a place which a page has taken.
    assert (fetch.reply_to, fetch.run, fetch.report_to) == (REPORTS, open_run.pk, "")
    (item,) = fetch.items
    assert item.id < 0
    assert decode_request(item.request).url == f"http://{HOST}/robots.txt"
    text = b"User-agent: *\nDisallow: /1"
    result = DownloadResult(item.id, 1, f"http://{HOST}/robots.txt", 200, [], text)
    harness.send(REPORTS, DownloadResults(run=open_run.pk, agent="a", items=[result]))
    sent = [item.id for one in collect(harness, queue, DownloadCommand, 9) for item in one.items]
    assert sent == [0, 2, 3, 4, 5, 6, 7, 8, 9]
    word = harness.receive(REPLY)
    while isinstance(word, DownloadsHeld | Dispatched):
        word = harness.receive(REPLY)
    assert isinstance(word, DownloadsRefused)
    assert word.reason == f"robots.txt of http://{HOST} forbids it"
    assert len(word.items) == 11
    assert sums(harness, open_run)["refused"] == 11


def test_the_first_page_of_a_site_goes_to_the_agent_that_has_read_its_robots_txt(
    harness: CenterHarness, open_run: Run
) -> None:
    queues = {agent: topology.agent_commands(agent).name for agent in ("a", "b")}
    start(harness, open_run, *queues)
    assert isinstance(harness.receive(queues["b"]), AllocateDownloader)
    for number in range(6):
        host = f"h{number}.{HOST}"
        harness.download(open_run, host=host, count=1)
        harness.until(lambda: any(harness.waits(queue) for queue in queues.values()))
        agent = "a" if harness.waits(queues["a"]) else "b"
        fetch = harness.receive(queues[agent])
        assert isinstance(fetch, DownloadCommand)
        address = f"http://{host}/robots.txt"
        answer = DownloadResult(fetch.items[0].id, 1, address, 404, [], b"")
        other = "b" if agent == "a" else "a"
        harness.send(REPORTS, DownloadResults(run=open_run.pk, agent=other, items=[answer]))
        # By chance each time, it would be the other one in one of 64 tests.
        collect(harness, queues[other], DownloadCommand, 1)


def held(harness: CenterHarness, run: Run, **allocate: Any) -> str:
    """20 requests of a run are held at a host that is stopped; the queue of its agent."""
    stop_host(host=HOST, actor=None)
    queue = start(harness, run, obey_robots=False, **allocate)
    harness.until(lambda: harness.center.gate._rules.find(HOST) is not None)
    harness.download(run, host=HOST)
    collect(harness, REPLY, DownloadsHeld, 20)
    return queue


def test_a_run_that_ends_leaves_nothing_behind(harness: CenterHarness, open_run: Run) -> None:
    held(harness, open_run)
    token = sign_run_token(settings.SECRET_KEY, open_run.pk)
    harness.send(topology.CENTER_CONTROL.name, Release(run=open_run.pk, token=token))
    (skipped,) = collect(harness, REPLY, Skipped, 20)
    assert skipped.reason == "the run has ended"
    assert sums(harness, open_run)["skipped"] == 20


def test_what_is_held_for_a_queue_that_is_gone_is_dropped_and_counted(
    harness: CenterHarness, open_run: Run
) -> None:
    stop_host(host=HOST, actor=None)
    start(harness, open_run, obey_robots=False)
    harness.until(lambda: harness.center.gate._rules.find(HOST) is not None)
    harness.download(open_run, host=HOST, reply_to="run.gone")
    harness.until(lambda: sums(harness, open_run)["skipped"] == 20)


def test_a_center_that_stops_gives_back_what_it_holds(
    harness: CenterHarness, open_run: Run
) -> None:
    held(harness, open_run)
    harness.center.teardown()
    (skipped,) = collect(harness, REPLY, Skipped, 20)
    assert skipped.reason == "the center that held the request has stopped"
    assert sums(harness, open_run)["held"] == 0
    harness.restart()


@pytest.mark.slow("2 s")
def test_a_held_request_does_not_expire(
    harness: CenterHarness, open_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yardkit.topology.DOWNLOAD_EXPIRES_SECONDS", 1.0)
    queue = held(harness, open_run)
    clock = harness.center.clock
    until = clock.monotonic() + 1.5
    harness.until(lambda: clock.monotonic() > until)
    resume_host(host=HOST, actor=None)
    harness.until(lambda: not harness.center.gate._rules.find(HOST))
    message = harness.receive(queue)
    assert isinstance(message, DownloadCommand)
    assert message.dispatched_at > clock.time() - 1.0
    assert sums(harness, open_run)["expired"] == 0


@pytest.mark.slow("1 s")
def test_agents_that_die_while_requests_are_held(harness: CenterHarness, open_run: Run) -> None:
    held(harness, open_run)
    harness.silence("a")
    resume_host(host=HOST, actor=None)
    collect(harness, REPLY, Skipped, 8)
    assert sums(harness, open_run)["dispatched"] == 0


def test_a_chained_request_stays_with_its_agent_though_it_was_held(
    harness: CenterHarness, open_run: Run
) -> None:
    create_rule(actor=None, host=HOST, requests_per_second=0, concurrency=0)
    queue = start(harness, open_run, "a", "b", obey_robots=False, policy=Policy.CHAINED, agents=2)
    harness.until(lambda: harness.center.gate._rules.find(HOST) is not None)
    harness.download(open_run, host=HOST, agent="a")
    collect(harness, queue, DownloadCommand, 20)


@pytest.mark.parametrize("body", [b"", b"\x80\x04.", b"\xff" * 9])
def test_rubbish_among_the_reports_is_refused(
    harness: CenterHarness, run: Run, body: bytes
) -> None:
    harness.broker.publish([Outgoing(body=body, key=REPORTS)]).result(10)
    assert "not a message" in harness.refused()
    heartbeat = Heartbeat(
        agent="a",
        name="a",
        boot="1",
        total_memory_bytes=1,
        free_memory_bytes=1,
        cpu_percent=0.0,
        downloaders=0,
        qps=0.0,
    )
    harness.send(REPORTS, heartbeat)
    assert "Heartbeat is no report" in harness.refused()


@pytest.mark.fault
def test_a_gate_that_dies_is_replaced_and_its_runs_try_again(
    harness: CenterHarness, open_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = held(harness, open_run)
    engine = harness.center.gate._engine

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(engine, "views", fail)
    with pytest.raises(CenterThreadDied, match="a defect"):
        harness.until(lambda: False)
    collect(harness, REPLY, Skipped, 20)
    assert sums(harness, open_run)["skipped"] == 20
    resume_host(host=HOST, actor=None)
    harness.until(lambda: harness.center.gate._rules.find(HOST) is None)
    harness.download(open_run, host=HOST, count=3)
    assert isinstance(harness.receive(queue), DownloadCommand)


# --- runs that pause ----------------------------------------------------------------------------


def withdraw(run: Run, token: str = "") -> Withdraw:
    """What a run that pauses sends to the center that holds requests of it."""
    return Withdraw(run=run.pk, token=token or sign_run_token(settings.SECRET_KEY, run.pk))


@pytest.mark.slow("2 s")
@pytest.mark.covers("S1.11")
def test_a_run_that_pauses_gets_back_what_is_held_and_nothing_of_it_is_sent(
    harness: CenterHarness, open_run: Run
) -> None:
    stop_host(host=HOST, actor=None)
    queue = start(harness, open_run, obey_robots=False)
    harness.until(lambda: harness.center.gate._rules.find(HOST) is not None)
    harness.download(open_run, host=HOST, count=9)
    (held,) = collect(harness, REPLY, DownloadsHeld, 9)
    assert held.center == REPORTS
    harness.send(held.center, withdraw(open_run))
    (back,) = collect(harness, REPLY, Skipped, 9)
    assert back.withdrawn
    assert sorted(back.items) == [(number, 1) for number in range(9)]
    assert sums(harness, open_run) == {
        "received": 9, "dispatched": 0, "skipped": 9, "expired": 0, "refused": 0, "held": 0,
    }  # fmt: skip
    resume_host(host=HOST, actor=None)
    harness.until(lambda: not harness.center.gate._rules.find(HOST))
    assert harness.broker.depth(queue).ready == 0
    # It is asked for again after the pause, and then sent.
    harness.download(open_run, host=HOST, count=1)
    collect(harness, queue, DownloadCommand, 1)


def test_only_the_run_itself_gets_back_what_is_held(harness: CenterHarness, open_run: Run) -> None:
    stop_host(host=HOST, actor=None)
    start(harness, open_run, obey_robots=False)
    harness.until(lambda: harness.center.gate._rules.find(HOST) is not None)
    harness.download(open_run, host=HOST, count=2)
    collect(harness, REPLY, DownloadsHeld, 2)
    harness.send(REPORTS, withdraw(open_run, token="r1.forged"))
    assert "token is not that of run" in harness.refused()
    assert sums(harness, open_run)["held"] == 2


def test_a_run_the_center_does_not_know_has_nothing_to_get_back(
    harness: CenterHarness, open_run: Run
) -> None:
    harness.send(REPORTS, withdraw(open_run))
    harness.until(lambda: harness.broker.depth(REPORTS).ready == 0)
    assert harness.center.runs.get(open_run.pk) is None


def test_a_report_and_a_request_that_break_the_engine_cost_only_themselves(
    harness: CenterHarness, open_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = harness.center.gate._engine
    offer, finished = engine.offer, engine.finished

    def broken_offer(view: Any, items: Any, now: float) -> None:
        if any(item.id == 2 for item in items):
            raise RuntimeError("a defect of the offer")
        offer(view, items, now)

    def broken_finished(run: int, results: Any, now: float) -> None:
        raise RuntimeError("a defect of the report")

    queue = start(harness, open_run, obey_robots=False)
    monkeypatch.setattr(engine, "offer", broken_offer)
    harness.download(open_run, host=HOST, count=3)
    collect(harness, queue, DownloadCommand, 2)
    (refused,) = collect(harness, REPLY, DownloadsRefused, 1)
    assert refused.items == [(2, 1)]
    assert "RuntimeError: a defect of the offer" in refused.reason
    assert sums(harness, open_run)["refused"] == 1
    monkeypatch.setattr(engine, "finished", broken_finished)
    harness.send(
        REPORTS, DownloadsFinished(agent="a", run=open_run.pk, hosts=[HostResult(HOST, 2)])
    )
    assert harness.refused() == "RuntimeError: a defect of the report"
    monkeypatch.setattr(engine, "finished", finished)
    harness.send(
        REPORTS, DownloadsFinished(agent="a", run=open_run.pk, hosts=[HostResult(HOST, 2)])
    )
    harness.until(lambda: engine._hosts[HOST].in_flight == 0)
    assert harness.center.gate._engine is engine
