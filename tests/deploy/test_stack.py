"""The whole of compose.yaml at work, an account for each process, and a job runs through it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.deploy.servers import Accounts, lend_accounts
from tests.deploy.stack import WEBS, Stack
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.demo_process import free_port
from tests.e2e.docker_installation import TAG, build_by_webhook, make_project, push_book_shop
from tests.e2e.rabbit_node import RabbitNode, lend_rabbit_node
from tests.e2e.rest import Rest
from tests.plugins.git_server import GitServer
from tests.plugins.stores import lend_postgres_database

pytestmark = [
    pytest.mark.docker,
    pytest.mark.services,
    pytest.mark.long("the image with real servers, test_image.py; the file, test_compose.py"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        shutil.which("docker-compose") is None,
        reason="no docker-compose on PATH (apt-get install docker-compose)",
    ),
]

PAGES = 120
SERVICES = {
    *WEBS,
    *("center", "router", "seeds", "collector", "fetcher", "statistics", "logs", "datasets"),
    *("monitor", "beat", "worker", "builds", "runner", "agent"),
}
TOKEN = """
import json
from apps.access.models import User
from apps.access.services import create_token
user = User.objects.create_superuser("admin", "admin@example.com", "a-better-one-4711")
print(json.dumps(create_token(actor=user, user=user, name="stack", scopes=["*:write"]).secret))
"""


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """With the management that accounts are made by."""
    with lend_rabbit_node(tmp_path_factory.mktemp("stack-rabbit"), management=True) as node:
        yield node


@pytest.fixture
def accounts(node: RabbitNode, redis_url: str, tmp_path: Path) -> Iterator[Accounts]:
    with lend_accounts(tmp_path / "passwords", node, redis_url) as accounts:
        yield accounts


@pytest.fixture
def stack(
    docker_engine: docker.DockerClient,
    product_image: str,
    accounts: Accounts,
    node: RabbitNode,
    tmp_path: Path,
) -> Iterator[Stack]:
    ports = {name: free_port() for name in WEBS}
    address = f"http://127.0.0.1:{ports[WEBS[0]]}"
    with lend_postgres_database() as stores:
        stack = Stack(
            tmp_path,
            image=product_image,
            accounts=accounts,
            secrets={
                "platform/database_url": accounts.database,
                "platform/broker_url": node.url,
                "platform/redis_url": accounts.redis,
                **{
                    f"platform/{name}_url": stores
                    for name in ("seeds", "records", "requests", "logs")
                },
                "management/broker_management_url": node.management_url,
            },
            ports=ports,
            PUBLIC_URL=address,
            CSRF_TRUSTED_ORIGINS=address,
            GIT_ALLOWED_NETWORKS="127.0.0.0/8",
            BUILD_NETWORK="none",
            REST_RATE="none",
            # Of a machine that others use as well.
            RUN_MAX_CPU_PERCENT="101",
        )
        try:
            stack.up()
            yield stack
        finally:
            stack.end()


def test_every_service_is_healthy_and_a_job_balances_its_books(
    stack: Stack,
    docker_engine: docker.DockerClient,
    git_server: GitServer,
    spider_image: str,
    tmp_path: Path,
) -> None:
    containers = stack.until_healthy(docker_engine, seconds=150)
    assert set(containers) == SERVICES | {"migrate"}
    assert containers["migrate"].attrs["State"]["ExitCode"] == 0
    status, said = containers["web1"].exec_run(
        ["python3", "/app/manage.py", "shell", "-v0", "-c", TOKEN]
    )
    assert status == 0, said.decode()
    rest = Rest(
        stack.address,
        json.loads(said.decode().splitlines()[-1]),
        lambda: stack.explain(docker_engine),
    )
    repository = push_book_shop(git_server, tmp_path)
    project = make_project(rest, repository, git_server, spider_image)
    _build, image = build_by_webhook(rest, project, repository.tag(TAG))
    with CountingSite(tree(PAGES)) as site:
        job = rest.make(
            "/jobs",
            project=project["id"],
            name="the whole shop",
            image=image["id"],
            spider="book_shop:BookShop",
            arguments={"url": site.url},
            speed=0,
        )
        run = rest.make(f"/jobs/{job['id']}/start")

        end, books = rest.ended(run["id"])
    assert end["state"] == "exited", (end, stack.explain(docker_engine))
    assert books["balanced"], books
    assert (books["left"], books["failed"], books["out"]) == (0, 0, 0), books
    assert books["total"] == books["success"] == PAGES + 1, books
    assert rest.until(lambda: rest.rows(f"/runs/{run['id']}/logs"), "log lines")
    said = stack.explain(docker_engine)
    for words in ("ACCESS_REFUSED", "refused for user", "permission denied", "NOPERM"):
        assert words not in said, said
    # All of it was done without one of them falling over.
    after = stack.until_healthy(docker_engine, seconds=30)
    assert {name: one.attrs["RestartCount"] for name, one in after.items() if one} == dict.fromkeys(
        SERVICES | {"migrate"}, 0
    )
