"""Outbound that starts runs, with real jobs, and at last a real process."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import InterfaceError, connection

from apps.jobs.daemon import RunnerDaemon
from apps.jobs.models import Job, Run
from apps.jobs.services import overlap
from apps.jobs.states import OverlapPolicy, RunState, Trigger
from apps.routing.engine import rules
from apps.routing.engine.items import Item
from apps.routing.engine.messages import Counters, message
from apps.routing.engine.outbounds import registry
from apps.routing.engine.outbounds.base import (
    DELIVERED,
    MOST_BYTES,
    Outbound,
    Outcome,
    SendStatus,
    Sent,
    Settings,
)
from apps.routing.services.configuration import RoutingKind
from tests.jobs.conftest import runner, spiders  # noqa: F401 - fixtures
from tests.jobs.factories import make_job, make_run
from tests.jobs.runners import until
from tests.outages import tables_away
from tests.runtime.processes import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db
NAME = "jobs.StartRunOutbound"
ITEM = {"company_name": "宁乡县老粮仓镇楚江冻库", "rt": True, "data_type": "change"}


def rule(job: str, init: dict[str, Any] | None = None, **said: Any) -> rules.Outbound:
    return rules.Outbound("starts", NAME, init={"job": job, **(init or {})}, **said)


def outbound(job: Job, init: dict[str, Any] | None = None, **said: Any) -> Outbound:
    made = rule(job.name, init, **said)
    assert registry.check(made) == []
    return registry.build(made, Settings(project=job.project_id))


def sent(job_rule: rules.Outbound, item: Item, uuid: str = "u-1", attempt: int = 0) -> Sent:
    counters = Counters(1, attempt, attempt)
    now = datetime(2026, 11, 21, tzinfo=UTC)
    said = message(job_rule, item, uuid=uuid, counters=counters, submit_time=now)
    return Sent(uuid, said, said.get("priority", 0), True)


def start(job: Job, item: Item | None = None, uuid: str = "u-1", **said: Any) -> Outcome:
    init = said.pop("init", None)
    attempt = said.pop("attempt", 0)
    one = sent(rule(job.name, init, **said), ITEM if item is None else item, uuid, attempt)
    return outbound(job, init, **said).send([one])[0]


def test_an_item_starts_a_run_with_what_it_has() -> None:
    job = make_job(arguments={"pages": 3, "data_type": "all"})
    assert start(job) == DELIVERED
    run = Run.objects.get()
    assert run.job == job
    assert run.state == RunState.QUEUED
    assert run.trigger == Trigger.ITEM
    company = ITEM["company_name"]
    assert run.arguments == {"pages": 3, "data_type": "change", "company_name": company}
    assert run.moves.get().reason == "routed task u-1, outbound starts"


@pytest.mark.parametrize("wrapped", [False, True])
def test_arguments_are_taken_from_keys_of_the_message(wrapped: bool) -> None:
    job = make_job()
    init = {"arguments": {"company": "company_name", "uuid": "task_uuid", "absent": "nothing"}}
    assert start(job, init=init, task_params_wrapped=wrapped, constants={"x": 1}) == DELIVERED
    assert Run.objects.get().arguments == {"company": ITEM["company_name"], "uuid": "u-1"}


def test_task_params_and_constants_say_what_there_is() -> None:
    job = make_job()
    start(job, task_params=("data_type",), constants={"task_src": 3})
    assert Run.objects.get().arguments == {"data_type": "change", "task_src": 3}


def test_a_repeat_starts_no_second_run_and_a_retry_does() -> None:
    job = make_job(overlap=OverlapPolicy.ALLOW)
    assert [start(job) for _ in range(3)] == [DELIVERED] * 3
    assert Run.objects.count() == 1
    assert start(job, attempt=1) == DELIVERED
    assert start(job, uuid="u-2") == DELIVERED
    assert Run.objects.count() == 3


def test_a_batch_is_answered_one_by_one() -> None:
    job = make_job(overlap=OverlapPolicy.QUEUE)
    one = rule(job.name)
    batch = [
        sent(one, {"a": 1}, "u-1"),
        Sent("u-2", {"text": "x" * MOST_BYTES}),
        sent(one, {"a": "x" * 100_000}, "u-3"),
        sent(one, {"a": 4}, "u-4"),
        sent(one, {"a": 1}, "u-1"),
    ]
    outcomes = outbound(job).send(batch)
    assert [each.code for each in outcomes] == ["", "too_large", "bad_arguments", "", ""]
    assert [each.verdict for each in outcomes[1:3]] == [SendStatus.REFUSED] * 2
    assert [run.arguments for run in Run.objects.order_by("id")] == [{"a": 1}, {"a": 4}]
    assert outbound(job).depth() == 2


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_arguments_that_no_run_can_have_are_refused() -> None:
    job = make_job()
    outcome = start(job, {"a": nested(25)})
    assert (outcome.verdict, outcome.code) == (SendStatus.REFUSED, "bad_arguments")
    assert "Nested more than" in outcome.reason
    assert not Run.objects.exists()


def test_an_unknown_job_and_one_of_another_project_are_refused() -> None:
    job, other = make_job(), make_job(name="elsewhere")
    made = rule(other.name)
    outcome = registry.build(made, Settings(project=job.project_id)).send([sent(made, ITEM)])[0]
    assert (outcome.verdict, outcome.code) == (SendStatus.REFUSED, "unknown_job")
    assert not Run.objects.exists()


def test_a_process_that_does_not_say_whose_jobs_are_meant_loses_no_item() -> None:
    made = rule(make_job().name)
    outcome = registry.build(made, Settings()).send([sent(made, ITEM)])[0]
    assert (outcome.verdict, outcome.code) == (SendStatus.AWAY, "no_project")


def test_a_disabled_job_refuses_and_takes_the_item_when_it_is_enabled() -> None:
    job = make_job(enabled=False)
    outcome = start(job)
    assert (outcome.verdict, outcome.code) == (SendStatus.REFUSED, "job_disabled")
    Job.objects.update(enabled=True)
    assert start(job) == DELIVERED
    assert Run.objects.count() == 1


def test_the_jobs_policy_says_what_becomes_of_a_later_one() -> None:
    skips, queues = make_job(overlap="skip"), make_job(overlap="queue")
    for job in (skips, queues):
        make_run(job=job, state=RunState.RUNNING)
    outcome = start(skips)
    assert (outcome.verdict, outcome.code) == (SendStatus.REFUSED, "job_running")
    assert start(queues, uuid="u-2") == DELIVERED
    assert queues.runs.get(state=RunState.QUEUED).waits_for is not None


def test_where_enough_wait_the_item_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "WAITING_LIMIT", 2)
    job = make_job(overlap="queue")
    outcomes = [start(job, uuid=f"u-{number}") for number in range(4)]
    assert [each.verdict for each in outcomes] == ["delivered"] * 3 + ["away"]
    assert outcomes[3].code == "too_many_waiting"
    Run.objects.order_by("id").first().delete()  # type: ignore[union-attr]
    assert start(job, uuid="u-3") == DELIVERED


def test_depth_is_what_waits_of_this_job() -> None:
    job = make_job()
    for state in (RunState.QUEUED, RunState.QUEUED, RunState.RUNNING, RunState.EXITED):
        make_run(job=job, state=state)
    make_run()
    made = outbound(job)
    assert made.depth() == 2
    made.close()
    assert made.depth() is None
    assert made.send([sent(rule(job.name), ITEM)])[0].code == "closed"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("table", ["jobs_run", "jobs_job", "runtime_processedmessage"])
def test_trouble_of_the_database_is_away_and_no_run_is_lost_or_twice(table: str) -> None:
    job = make_job(overlap="queue")
    made, one = outbound(job), rule(job.name)
    with tables_away(table):
        outcomes = made.send([sent(one, ITEM, "u-1"), sent(one, ITEM, "u-2")])
        depth = made.depth()
    assert [each.code for each in outcomes] == ["database_away"] * 2
    assert {each.verdict for each in outcomes} == {SendStatus.AWAY}
    assert depth == (None if table != "runtime_processedmessage" else 0)
    assert made.send([sent(one, ITEM, "u-1"), sent(one, ITEM, "u-2")]) == [DELIVERED] * 2
    assert Run.objects.count() == 2


def test_a_connection_that_is_closed_is_an_outage() -> None:
    job = make_job()
    made, one = outbound(job), rule(job.name)

    def closed(execute: Any, sql: str, *more: Any) -> None:
        raise InterfaceError("connection already closed")

    with connection.execute_wrapper(closed):
        assert [each.code for each in made.send([sent(one, ITEM)])] == ["database_away"]
        assert made.depth() is None
    assert made.send([sent(one, ITEM)]) == [DELIVERED]


@pytest.mark.django_db(transaction=True)
def test_routers_at_once_start_one_run_an_item() -> None:
    job = make_job(overlap="queue")
    one = rule(job.name)
    batch = [sent(one, ITEM, f"u-{number}") for number in range(5)]
    verdicts: list[list[str]] = []
    together = threading.Barrier(3)

    def router() -> None:
        made = outbound(job)
        together.wait()
        deadline = time.monotonic() + PATIENCE_SECONDS
        # In an in-memory database one writer cannot wait for another.
        while "away" in (found := [each.verdict for each in made.send(batch)]):
            if time.monotonic() > deadline:
                break
        verdicts.append([*found])
        connection.close()

    threads = [threading.Thread(target=router) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert verdicts == [["delivered"] * 5] * 3
    assert Run.objects.count() == 5


def test_a_run_of_an_item_really_runs_with_it(
    runner: RunnerDaemon,  # noqa: F811
    spiders: Path,  # noqa: F811
) -> None:
    (spiders / "shows.py").write_text(
        "import os\nraise RuntimeError(os.environ['CRAWLYARD_ARGUMENTS'])\n"
    )
    job = make_job(spider="shows:Spider")
    assert start(job, {"page": 7}) == DELIVERED
    run = Run.objects.get()
    until(runner, run, lambda: run.state == RunState.FAILED)
    assert '{"page":7}' in run.reason.replace(" ", "")


# --- rules ----------------------------------------------------------------------------------------


def problems(init: dict[str, Any]) -> list[tuple[str, str]]:
    data = {
        "version": 1,
        "needs": 1,
        "project": "p",
        "outbound": [{"name": "o", "selector": ["a"], "class": NAME, "init": init}],
    }
    return [(each.code, each.text) for each in RoutingKind().check(data)]


def test_rules_may_name_it() -> None:
    assert problems({"job": "抓取", "arguments": {"a": "company_name"}}) == []
    assert registry.find(NAME).default_expects_result is False


@pytest.mark.parametrize(
    ("init", "code", "text"),
    [
        ({}, "missing_parameter", "init.job is needed"),
        ({"job": ""}, "wrong_parameter", "init.job: "),
        ({"job": "a", "arguments": ["a"]}, "wrong_parameter", "init.arguments must be a mapping"),
        ({"job": "a", "arguments": {"a": 1}}, "wrong_parameter", "must be texts"),
        ({"job": "a", "environment": {"A": "1"}}, "unknown_parameter", "init.environment"),
    ],
)
def test_parameters_that_it_has_not_are_refused(init: dict[str, Any], code: str, text: str) -> None:
    (found,) = problems(init)
    assert found[0] == code
    assert text in found[1]
