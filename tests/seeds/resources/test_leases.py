"""Leases and returns of resources."""

from __future__ import annotations

import logging
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from apps.access.models import AuditRecord
from apps.seeds.engine.scores import Candidate, choose, rank
from apps.seeds.errors import BadLease, LeaseOver, PoolDisabled, WrongResourceLease
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.services.resources import (
    Leased,
    NoneFree,
    Returned,
    give_back,
    give_back_of_run,
    lease,
    release_expired,
)
from apps.seeds.states import ResourceState
from tests.seeds.resources.factories import PASSWORD, after, make_pool, make_resource, take
from yardkit.protocol import ResourceOutcome

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
FREE, LEASED, BANNED = ResourceState.FREE, ResourceState.LEASED, ResourceState.BANNED
OK, NOT_OK, BAN, UNUSED = ResourceOutcome


def end(leased: Leased, outcome: ResourceOutcome, now: datetime = NOW, **more: Any) -> Returned:
    pool = ResourcePool.objects.get(pk=leased.resource.pool_id)
    return give_back(
        project=pool.project_id,
        resource=leased.resource.pk,
        lease=leased.lease,
        outcome=outcome,
        now=now,
        **more,
    )


def fresh(leased: Leased) -> Resource:
    return Resource.objects.get(pk=leased.resource.pk)


@pytest.mark.covers("S3.21")
def test_a_lease_hands_out_the_secret_for_as_long_as_the_pool_says() -> None:
    pool = make_pool()
    made = make_resource(pool)
    got = take(pool, NOW, "run:7:boot")
    assert got.secret == {"user": made.name, "password": PASSWORD}
    assert (got.lease, got.until) == (1, after(NOW, 4 * 3600))
    row = fresh(got)
    assert (row.state, row.leased_by, row.leased_until) == (LEASED, "run:7:boot", got.until)
    assert (row.used_count, row.last_used_at) == (1, NOW)
    assert lease(pool=pool, owner="run:8:x", now=NOW) == NoneFree(got.until)


@pytest.mark.covers("S3.21")
def test_feedback_moves_the_score_and_failures_cool_down() -> None:
    pool = make_pool(cool_down_seconds=60, rest_seconds=5)
    make_resource(pool)
    now = NOW
    for failures in (1, 2, 3):
        done = end(take(pool, now), NOT_OK, now, reason="captcha")
        assert done.code == "returned"
        assert done.resource.failures_in_a_row == failures
        pause = 60 * 2 ** (failures - 1)
        assert done.resource.available_at == after(now, pause)
        assert lease(pool=pool, owner="x", now=now) == NoneFree(after(now, pause))
        now = after(now, pause)
    row = end(take(pool, now), OK, now).resource
    assert row.score == pytest.approx(0.9**3 * 0.9 + 0.1)
    assert (row.failures_in_a_row, row.available_at, row.reason) == (0, after(now, 5), "")
    assert (row.succeeded_count, row.failed_count, row.used_count) == (1, 3, 4)


@pytest.mark.covers("S3.21")
def test_a_ban_lasts_until_somebody_lifts_it_and_is_recorded() -> None:
    pool = make_pool()
    make_resource(pool)
    done = end(take(pool, NOW, "run:7:b"), BAN, reason="locked by the site")
    assert done.resource.state == BANNED
    assert lease(pool=pool, owner="x", now=after(NOW, 10**9)) == NoneFree(None)
    entry = AuditRecord.objects.get(action="seeds.ban_resource")
    assert entry.actor_label == "run:7:b"
    assert entry.after == {"state": "banned", "reason": "locked by the site"}


def test_so_many_failures_in_a_row_ban() -> None:
    pool = make_pool(ban_after=2, cool_down_seconds=0)
    make_resource(pool)
    assert end(take(pool, NOW), NOT_OK).resource.state == FREE
    banned = end(take(pool, NOW), NOT_OK).resource
    assert (banned.state, banned.banned_at) == (BANNED, NOW)
    assert banned.reason == "2 consecutive failures"


def test_unused_says_nothing_about_it() -> None:
    pool = make_pool()
    make_resource(pool, score=0.5, failures_in_a_row=2, reason="captcha")
    row = end(take(pool, NOW), UNUSED).resource
    assert (row.score, row.failures_in_a_row, row.reason) == (0.5, 2, "captcha")
    assert (row.succeeded_count, row.failed_count) == (0, 0)


@pytest.mark.covers("S3.21")
def test_after_four_hours_it_is_taken_back_and_the_old_word_is_late() -> None:
    pool = make_pool()
    make_resource(pool)
    old = take(pool, NOW, "run:1:a")
    assert isinstance(lease(pool=pool, owner="x", now=after(NOW, 4 * 3600 - 1)), NoneFree)
    new = take(pool, after(NOW, 4 * 3600), "run:2:a")
    assert new.resource.pk == old.resource.pk
    late = end(old, BAN, after(NOW, 5 * 3600))
    row = fresh(old)
    assert (late.code, row.state, row.leased_by) == ("late", LEASED, "run:2:a")
    assert (row.late_count, row.expired_count, row.score) == (1, 1, 1.0)
    assert end(new, OK).code == "returned"


def test_housekeeping_takes_back_what_ran_out_in_every_pool() -> None:
    pools = [make_pool(), make_pool()]
    for pool in pools:
        make_resource(pool)
        make_resource(pool)
        take(pool, NOW, seconds=10)
        take(pool, NOW, seconds=60)
    assert release_expired(now=after(NOW, 9)) == 0
    assert release_expired(now=after(NOW, 10)) == 2
    assert release_expired(now=after(NOW, 10)) == 0
    assert Resource.objects.filter(state=LEASED).count() == 2
    freed = Resource.objects.filter(state=FREE).first()
    assert freed is not None
    # It was in use until then: it does not count as unused the whole time.
    assert freed.last_used_at == after(NOW, 10)


def test_a_word_said_twice_counts_once() -> None:
    pool = make_pool()
    make_resource(pool)
    got = take(pool, NOW)
    assert [end(got, OK).code, end(got, BAN).code] == ["returned", "repeated"]
    row = fresh(got)
    assert (row.state, row.succeeded_count, row.late_count) == (FREE, 1, 0)


def test_only_its_owner_gives_it_back() -> None:
    pool = make_pool()
    make_resource(pool)
    got = take(pool, NOW, "run:1:a")
    with pytest.raises(WrongResourceLease):
        end(got, OK, owner="run:2:a")
    for number in (0, got.lease + 1):
        with pytest.raises(WrongResourceLease):
            give_back(
                project=pool.project_id, resource=got.resource.pk, lease=number, outcome=OK, now=NOW
            )
    other = make_pool()
    with pytest.raises(Resource.DoesNotExist):
        give_back(
            project=other.project_id, resource=got.resource.pk, lease=got.lease, outcome=OK, now=NOW
        )
    assert end(got, OK, owner="run:1:a").code == "returned"


def test_the_same_call_twice_gets_the_same_resource() -> None:
    pool = make_pool()
    make_resource(pool)
    make_resource(pool)
    first = take(pool, NOW, key="k1")
    again = take(pool, NOW, key="k1")
    assert (again.resource.pk, again.lease) == (first.resource.pk, first.lease)
    assert take(pool, NOW, key="k2").resource.pk != first.resource.pk
    end(first, OK)
    with pytest.raises(LeaseOver):
        lease(pool=pool, owner="run:1:a", now=NOW, key="k1")
    with pytest.raises(LeaseOver):
        lease(pool=pool, owner="somebody else", now=NOW, key="k2")


def test_what_an_ended_run_holds_comes_back() -> None:
    pool = make_pool()
    for _ in range(3):
        make_resource(pool)
    mine = [take(pool, NOW, "run:1:a"), take(pool, NOW, "run:1:b")]
    others = take(pool, NOW, "run:11:a")
    assert give_back_of_run(run=1, now=NOW) == 2
    assert {fresh(each).state for each in mine} == {FREE}
    assert fresh(others).state == LEASED
    assert end(mine[0], OK).code == "late"
    assert give_back_of_run(run=1, now=NOW) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"owner": ""},
        {"owner": "x" * 201},
        {"owner": "a\nb"},
        {"seconds": -1},
        {"seconds": float("nan")},
        {"seconds": 8 * 86_400},
        {"key": "k" * 65},
        {"key": "\x00"},
    ],
    ids=str,
)
def test_what_cannot_be_leased_so(wrong: dict[str, Any]) -> None:
    pool = make_pool()
    make_resource(pool)
    asked: dict[str, Any] = {"pool": pool, "owner": "x", "now": NOW, **wrong}
    with pytest.raises(BadLease):
        lease(**asked)


def test_a_pool_that_is_switched_off_hands_out_nothing() -> None:
    pool = make_pool(is_enabled=False)
    make_resource(pool)
    with pytest.raises(PoolDisabled):
        lease(pool=pool, owner="x", now=NOW)


def test_an_empty_pool_says_that_waiting_does_not_help() -> None:
    assert lease(pool=make_pool(), owner="x", now=NOW) == NoneFree(None)


@pytest.mark.slow("1 s")
@pytest.mark.parametrize("seed", range(8))
def test_the_database_chooses_as_the_engine_does(seed: int) -> None:
    dice = random.Random(seed)
    pool = make_pool(rotation_percent=dice.choice([1, 30, 70, 100]))
    for _ in range(dice.randint(1, 30)):
        used = None if dice.random() < 0.2 else after(NOW, -dice.choice([5, 600, 90_000]))
        make_resource(
            pool,
            score=dice.choice([0.0, 0.35, 0.9, 1.0]),
            last_used_at=used,
            state=dice.choice(ResourceState.values if dice.random() < 0.2 else [FREE]),
            available_at=after(NOW, dice.choice([-9, 0, 9])),
        )
    while True:
        rows = Resource.objects.filter(pool=pool, state=FREE, available_at__lte=NOW)
        free = [
            Candidate(row.pk, row.score, row.last_used_at.timestamp() if row.last_used_at else None)
            for row in rows
        ]
        expected = choose(free, pool.rotation_percent)
        got = lease(pool=pool, owner="x", now=NOW)
        if expected is None:
            assert isinstance(got, NoneFree)
            break
        assert isinstance(got, Leased)
        assert got.resource.pk == expected.name


def test_the_stored_rank_is_that_of_the_engine() -> None:
    pool = make_pool()
    make_resource(pool)
    row = end(take(pool, NOW), NOT_OK, after(NOW, 5)).resource
    row.refresh_from_db()
    assert row.rank == rank(row.score, after(NOW, 5).timestamp())


def test_equal_ones_take_turns() -> None:
    pool = make_pool()
    names = {make_resource(pool).name for _ in range(10)}
    now, used = NOW, []
    for _ in range(30):
        now = after(now, 1)
        got = take(pool, now)
        used.append(got.resource.name)
        end(got, OK, now)
    assert set(used[:10]) == set(used[10:20]) == set(used[20:]) == names


def test_a_lease_is_a_few_statements(django_assert_num_queries: Any) -> None:
    pool = make_pool()
    for _ in range(5):
        make_resource(pool)
    # A savepoint and its release, what ran out, how many are free, where the zone ends, the
    # choice, the update.
    with django_assert_num_queries(7):
        got = take(pool, NOW)
    with django_assert_num_queries(4):
        give_back(
            project=pool.project_id, resource=got.resource.pk, lease=got.lease, outcome=OK, now=NOW
        )


def test_nothing_written_down_has_the_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    pool = make_pool()
    make_resource(pool)
    got = take(pool, NOW, seconds=1)
    release_expired(now=after(NOW, 1))
    end(got, OK)
    got = take(pool, after(NOW, 1))
    end(got, BAN, reason="gone")
    assert "leased by" in caplog.text
    texts = [
        caplog.text,
        repr(got),
        str(got),
        *(repr(each.after) for each in AuditRecord.objects.all()),
    ]
    assert not [text for text in texts if PASSWORD in text]
