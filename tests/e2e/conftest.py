"""The cluster of the failure tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import rabbit_node
from tests.e2e.cluster import Cluster
from tests.e2e.rabbit_node import RabbitNode
from tests.plugins.needs import required_kinds
from tests.plugins.stores import lend_postgres_database


@pytest.fixture(scope="package")
def own_rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """A RabbitMQ node that tests may stop and start."""
    if not rabbit_node.SERVER:
        problem = "RabbitMQ: no rabbitmq-server on this machine to start a node of our own with"
        if "services" in required_kinds():
            pytest.fail(problem, pytrace=False)
        pytest.skip(problem)
    node = RabbitNode(tmp_path_factory.mktemp("rabbit"))
    try:
        node.start()
        yield node
    finally:
        node.stop()


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
