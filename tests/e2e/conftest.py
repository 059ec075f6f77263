"""Stores of an installation, and the cluster of the failure tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.rabbit_node import RabbitNode, lend_rabbit_node
from tests.plugins.stores import lend_postgres_database, lend_servers


@pytest.fixture(
    params=[
        pytest.param("embedded", marks=pytest.mark.twin),
        pytest.param("services", marks=pytest.mark.services),
    ]
)
def stores(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings of an installation: nothing but embedded defaults, and again of servers."""
    if request.param == "embedded":
        yield {}
        return
    with lend_servers(request.getfixturevalue("redis_url")) as servers:
        yield servers


@pytest.fixture(scope="package")
def own_rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """A RabbitMQ node that tests may stop and start."""
    with lend_rabbit_node(tmp_path_factory.mktemp("rabbit")) as node:
        yield node


@pytest.fixture(scope="package")
def lasting_cluster(
    own_rabbit: RabbitNode, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """PostgreSQL, Redis and the node above, with the daemons that all failure tests share."""
    with lend_postgres_database() as database:
        cluster = Cluster(
            tmp_path_factory.mktemp("cluster"),
            DATABASE_URL=database,
            BROKER_URL=own_rabbit.url,
            REDIS_URL=redis_url,
        )
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.end()


@pytest.fixture
def cluster(lasting_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster in good order, whatever the test before has done to it."""
    lasting_cluster.restore()
    yield lasting_cluster
    lasting_cluster.restore()
