"""Leases over a real broker, answered by the daemon: run by test_on_postgres.py.

Service and test write at the same time, which SQLite in memory refuses.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from apps.seeds.daemon.resources import sweep
from apps.seeds.models import Resource, ResourcePool
from apps.seeds.services import pools
from apps.seeds.states import ResourceState
from tests.seeds.daemon.conftest import Service, asker, broker, clock, frontier, service  # noqa: F401 - fixtures
from tests.seeds.resources.factories import PASSWORD, make_pool, make_resource
from yardkit import topology
from yardkit.broker import Broker, Outgoing
from yardkit.protocol import LeaseResource, ResourceOutcome, SeedsRefused, decode, encode
from yardkit.resources import NoResource, ResourceClient
from yardkit.seeds import CallRefused, SeedServiceAway
from yardkit.tokens import pools_scope, sign_scope

pytestmark = pytest.mark.django_db(transaction=True)

OK, NOT_OK, BAN, UNUSED = ResourceOutcome


@pytest.fixture(params=["sqlite", pytest.param("rabbitmq", marks=pytest.mark.services)])
def broker_url(request: pytest.FixtureRequest) -> str:
    """Of an empty broker."""
    name = "sqlite_broker_url" if request.param == "sqlite" else "new_rabbit_vhost"
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture
def store_url(tmp_path: object) -> str:
    """Where the service has its seeds, of which there are none."""
    return f"rocksdb://{tmp_path}/seeds?sync=0"


@pytest.fixture
def pool(frontier: object) -> ResourcePool:  # noqa: F811
    """Before the service starts to look."""
    return make_pool()


@pytest.fixture
def client(asker: Broker, pool: ResourcePool) -> ResourceClient:  # noqa: F811
    return make_client(asker, pool)


def make_client(broker: Broker, pool: ResourcePool, owner: str = "run:7:a") -> ResourceClient:  # noqa: F811
    token = sign_scope(settings.SECRET_KEY, pools_scope(pool.project_id))
    return ResourceClient(broker, pool.project_id, token, owner=owner, timeout=20, patience=0)


@pytest.mark.covers("S3.21")
def test_leased_and_given_back(
    service: Service,  # noqa: F811
    client: ResourceClient,
    pool: ResourcePool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    made = make_resource(pool)
    leased = client.lease(pool.name)
    assert (leased.name, leased.secret["password"]) == (made.name, PASSWORD)
    assert Resource.objects.get().leased_by == "run:7:a"
    with pytest.raises(NoResource) as caught:
        client.lease(pool.name)
    assert caught.value.next_at == leased.until
    done = client.give_back(leased, NOT_OK, "captcha")
    assert (done.code, done.state) == ("returned", "free")
    assert done.score == pytest.approx(0.9)
    assert client.give_back(leased, BAN).code == "repeated"
    assert PASSWORD not in caplog.text + str(caught.value) + repr(leased)


def test_waiting_gets_what_is_given_back(
    service: Service,  # noqa: F811
    client: ResourceClient,
    pool: ResourcePool,
    asker: Broker,  # noqa: F811
) -> None:
    make_resource(pool)
    leased = client.lease(pool.name, seconds=3600)
    other = make_client(asker, pool, "run:8:a")
    later = threading.Timer(0.3, lambda: client.give_back(leased, OK))
    later.start()
    got = other.lease(pool.name, wait_seconds=30)
    later.join()
    assert (got.id, got.lease) == (leased.id, leased.lease + 1)
    assert client.give_back(leased, OK).code == "late"
    with pytest.raises(CallRefused) as caught:
        client.give_back(got, OK)
    assert caught.value.code == "wrong_lease"


def test_what_is_refused_says_why(
    service: Service,  # noqa: F811
    client: ResourceClient,
    pool: ResourcePool,
    asker: Broker,  # noqa: F811
) -> None:
    make_resource(pool)
    other = make_pool(name=pool.name)
    stranger = ResourceClient(
        asker,
        pool.project_id,
        sign_scope(settings.SECRET_KEY, pools_scope(other.project_id)),
        owner="x",
        patience=0,
    )
    for who, name, seconds, code in (
        (stranger, pool.name, 0.0, "wrong_token"),
        (client, "nothing", 0.0, "unknown_pool"),
        (client, "a\x00b", 0.0, "unknown_pool"),
        (client, pool.name, -1.0, "bad_lease"),
        (client, pool.name, float("nan"), "bad_lease"),
    ):
        with pytest.raises(CallRefused) as caught:
            who.lease(name, seconds=seconds)
        assert caught.value.code == code
    leased = client.lease(pool.name)
    with pytest.raises(CallRefused) as caught:
        stranger.give_back(leased, OK)
    assert caught.value.code == "wrong_token"
    pools.delete_resource(resource=Resource.objects.get(), actor=None)
    with pytest.raises(CallRefused) as caught:
        client.give_back(leased, OK)
    assert caught.value.code == "unknown_resource"
    pools.change_pool(pool=pool, actor=None, values={"is_enabled": False})
    with pytest.raises(CallRefused) as caught:
        client.lease(pool.name)
    assert caught.value.code == "pool_disabled"


def test_a_call_that_comes_twice_leases_once(
    service: Service,  # noqa: F811
    client: ResourceClient,
    pool: ResourcePool,
    asker: Broker,  # noqa: F811
) -> None:
    make_resource(pool)
    make_resource(pool)
    call = LeaseResource(
        project=pool.project_id,
        token=sign_scope(settings.SECRET_KEY, pools_scope(pool.project_id)),
        pool=pool.name,
        owner="run:7:a",
        key="the same",
    )
    question = Outgoing(encode(call), key=topology.SEEDS.name, persistent=False)
    answers = [decode(asker.request(question, 20).body) for _ in range(2)]
    assert answers[0] == answers[1]
    assert not isinstance(answers[0], SeedsRefused)
    assert Resource.objects.filter(state=ResourceState.LEASED).count() == 1


def test_the_daemon_takes_back_what_ran_out(pool: ResourcePool) -> None:
    make_resource(pool, state=ResourceState.LEASED, leased_until=timezone.now())
    later = timezone.now() + timedelta(hours=1)
    make_resource(pool, state=ResourceState.LEASED, leased_until=later)
    sweep()
    states = sorted(Resource.objects.values_list("state", "expired_count"))
    assert states == [("free", 1), ("leased", 0)]


def test_nobody_answers(asker: Broker, pool: ResourcePool) -> None:  # noqa: F811
    token = sign_scope(settings.SECRET_KEY, pools_scope(pool.project_id))
    client = ResourceClient(
        asker, pool.project_id, token, owner="run:7:a", timeout=0.2, patience=0.2
    )
    with pytest.raises(SeedServiceAway):
        client.lease(pool.name)
