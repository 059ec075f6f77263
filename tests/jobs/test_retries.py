"""Retry rules: what is accepted, and which end of a run is tried again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from apps.jobs.engine.retry import MAX_DELAY_SECONDS, read_rules, rule_for, validate_retry_rules
from apps.jobs.models import Run
from apps.jobs.services import finish_run, retry_if_wanted, stop_run
from apps.jobs.states import RunState, Trigger
from tests.access.factories import make_user
from tests.jobs.factories import NOW, make_job, make_run

S = RunState
LATER = NOW + timedelta(minutes=5)


# --- the rules ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [{"on": "lost", "retries": 1}],
        [{"on": "failed", "codes": [137, -9], "retries": 100, "delay_seconds": 0.5, "backoff": 2}],
        [{"on": "cancelled", "retries": 1, "delay_seconds": 86_400}],
    ],
)
def test_rules_that_can_be_followed(rules: Any) -> None:
    validate_retry_rules(rules)


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ({}, "Enter a JSON list of rules"),
        ("lost", "Enter a JSON list of rules"),
        ([{"on": "lost", "retries": 1}] * 21, "21 rules are given, at most 20"),
        ([{"on": "lost", "retries": 1}, 7], "Rule 2 is not a JSON object"),
        ([{"retries": 1}], "Rule 1, on: must be one of failed, lost, cancelled"),
        ([{"on": "exited", "retries": 1}], "Rule 1, on: must be one of"),
        ([{"on": [], "retries": 1}], "Rule 1, on: must be one of"),
        ([{"on": "lost"}], "Rule 1, retries: must be a whole number from 1 to 100"),
        ([{"on": "lost", "retries": 101}], "Rule 1, retries: must be a whole"),
        ([{"on": "lost", "retries": True}], "Rule 1, retries: must be a whole"),
        ([{"on": "lost", "retries": 1.5}], "Rule 1, retries: must be a whole"),
        ([{"on": "failed", "retries": 1, "codes": 137}], "Rule 1, codes: must be a list"),
        ([{"on": "failed", "retries": 1, "codes": ["137"]}], "Rule 1, codes: must be a list"),
        ([{"on": "failed", "retries": 1, "codes": [9999]}], "Rule 1, codes: must be a list"),
        ([{"on": "lost", "retries": 1, "delay_seconds": -1}], "Rule 1, delay_seconds: must be"),
        ([{"on": "lost", "retries": 1, "delay_seconds": 86_401}], "Rule 1, delay_seconds"),
        ([{"on": "lost", "retries": 1, "delay_seconds": float("nan")}], "Rule 1, delay_seconds"),
        ([{"on": "lost", "retries": 1, "delay_seconds": None}], "Rule 1, delay_seconds"),
        ([{"on": "lost", "retries": 1, "backoff": 0.5}], "Rule 1, backoff: must be a number"),
        ([{"on": "lost", "retries": 1, "again": 1}], "Rule 1, again: unknown field"),
    ],
)
def test_rules_that_cannot_be_followed_are_refused_by_number_and_field(
    rules: Any, problem: str
) -> None:
    with pytest.raises(ValidationError) as refusal:
        validate_retry_rules(rules)
    assert any(problem in message for message in refusal.value.messages)


def test_everything_wrong_is_told_at_once() -> None:
    with pytest.raises(ValidationError) as refusal:
        validate_retry_rules([{"on": "x"}, {"on": "lost", "retries": 0, "more": 1}])
    assert len(refusal.value.messages) == 4


def test_the_first_rule_that_fits_decides() -> None:
    rules = read_rules(
        [
            {"on": "failed", "codes": [1, 2], "retries": 1},
            {"on": "failed", "retries": 5, "delay_seconds": 60, "backoff": 3},
        ]
    )

    def found(end: str, code: int | None, attempt: int) -> int | None:
        rule = rule_for(rules, end=end, exit_code=code, attempt=attempt)
        return rule.retries if rule else None

    assert found("failed", 1, 1) == 1
    # The second one would allow more, but it is not the first that fits.
    assert found("failed", 1, 2) is None
    assert found("failed", 137, 5) == 5
    assert found("failed", None, 1) == 5
    assert found("failed", 137, 6) is None
    assert found("lost", None, 1) is None
    assert [rules[1].delay(attempt) for attempt in (1, 2, 3)] == [60, 180, 540]
    assert rules[1].delay(100) == MAX_DELAY_SECONDS


# --- the retry ----------------------------------------------------------------------------------


def ended(run: Run, state: RunState, **fields: Any) -> Run | None:
    """End a run as its runner does; the retry that came of it."""
    assert finish_run(run=run, state=state, reason="over", now=LATER, **fields)
    return Run.objects.filter(retry_of=run).first()


@pytest.mark.django_db
def test_a_retry_is_a_run_like_the_one_before() -> None:
    job = make_job(
        arguments={"depth": 1},
        retry_rules=[{"on": "failed", "codes": [137], "retries": 2, "delay_seconds": 60}],
    )
    run = make_run(
        job=job,
        state=S.RUNNING,
        arguments={"depth": 7},
        image_reference="shop:1",
        image_digest="sha256:ab",
        requested_by="ann",
        priority=3,
    )
    # What the job says by now is for the runs that somebody starts by now.
    job.arguments = {"depth": 2, "more": True}
    job.save()
    retry = ended(run, S.FAILED, exit_code=137)
    assert retry is not None
    assert (retry.state, retry.trigger, retry.attempt) == (S.QUEUED, Trigger.RETRY, 2)
    assert (retry.arguments, retry.priority) == ({"depth": 7}, 3)
    assert (retry.image_reference, retry.image_digest) == ("shop:1", "sha256:ab")
    assert retry.not_before == LATER + timedelta(seconds=60)
    assert f"run {run.pk} ended failed" in retry.moves.get().reason
    Run.objects.filter(pk=retry.pk).update(state=S.RUNNING, host="host-1", watched_at=NOW)
    retry.refresh_from_db()
    third = ended(retry, S.FAILED, exit_code=137)
    assert third is not None
    assert third.attempt == 3
    Run.objects.filter(pk=third.pk).update(state=S.RUNNING, host="host-1", watched_at=NOW)
    third.refresh_from_db()
    assert ended(third, S.FAILED, exit_code=137) is None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("state", "code", "tried"),
    [
        (S.FAILED, 1, False),
        (S.FAILED, 2, True),
        (S.FAILED, None, False),
        (S.LOST, None, True),
        (S.CANCELLED, None, True),
        (S.EXITED, 0, False),
    ],
)
def test_which_ends_are_tried_again(state: RunState, code: int | None, tried: bool) -> None:
    rules = [
        {"on": "failed", "codes": [2], "retries": 1},
        {"on": "lost", "retries": 1},
        {"on": "cancelled", "retries": 1},
    ]
    run = make_run(job=make_job(retry_rules=rules), state=S.RUNNING)
    assert (ended(run, state, exit_code=code) is not None) == tried


@pytest.mark.django_db
@pytest.mark.parametrize("end", [S.CANCELLED, S.FAILED, S.LOST])
def test_what_was_stopped_on_purpose_is_not_tried_again(end: RunState) -> None:
    rules = [{"on": on, "retries": 5} for on in ("failed", "lost", "cancelled")]
    run = make_run(job=make_job(retry_rules=rules), state=S.RUNNING)
    stop_run(run=run, now=NOW, actor=make_user())
    assert ended(run, end) is None


@pytest.mark.django_db
def test_what_had_not_begun_and_what_is_switched_off_is_not_tried_again() -> None:
    rules = [{"on": on, "retries": 5} for on in ("failed", "lost", "cancelled")]
    for placed in ({}, {"host": "host-1", "placed_at": NOW}):
        queued = make_run(job=make_job(retry_rules=rules), **placed)
        stop_run(run=queued, now=NOW, actor=None)
        assert not Run.objects.filter(retry_of=queued).exists()
    run = make_run(job=make_job(retry_rules=rules, enabled=False), state=S.RUNNING)
    assert ended(run, S.LOST) is None


@pytest.mark.django_db
def test_rules_that_cannot_be_read_do_not_hold_up_the_end_of_a_run() -> None:
    run = make_run(job=make_job(retry_rules=[{"on": "nonsense"}]), state=S.RUNNING)
    assert ended(run, S.FAILED) is None
    run.refresh_from_db()
    assert run.state == S.FAILED


@pytest.mark.django_db
def test_a_run_is_retried_once_whoever_asks() -> None:
    job = make_job(retry_rules=[{"on": "lost", "retries": 9}])
    run = make_run(job=job, state=S.RUNNING)
    assert ended(run, S.LOST) is not None
    with transaction.atomic():
        assert retry_if_wanted(run, now=LATER) is None
    with pytest.raises(IntegrityError), transaction.atomic():
        make_run(job=job, retry_of=run)
