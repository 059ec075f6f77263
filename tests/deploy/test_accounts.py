"""An account for each daemon: all of them work with theirs, and are refused outside of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.exceptions
import psycopg
import pytest
import redis
from django.core.management import CommandError

from crawlyard.accounts import DAEMONS, account_name
from crawlyard.units import box
from tests.deploy.servers import Accounts, command, lend_accounts, printed
from tests.e2e.counting_site import CountingSite, tree
from tests.e2e.installation import Installation
from tests.e2e.rabbit_node import RabbitNode, lend_rabbit_node
from yardkit import topology
from yardkit.broker.factory import connect

PAGES = 60
# What the processes of an installation are called, and whose account each has.
PROCESSES = {
    "log_ingester": "logs",
    "dataset_writer": "datasets",
    "agent-1": "agent",
    **{name: name for name in DAEMONS if name not in ("logs", "datasets", "agent", "builds")},
}


def test_every_process_of_a_box_has_an_account() -> None:
    names = {unit.name.rpartition("-")[0] or unit.name for unit in box(host="", port=1, agents=1)}
    assert set(DAEMONS) == names


def test_passwords_are_made_once_and_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "passwords"
    first = json.loads(printed("rabbitmq", folder, "--vhost", "yard"))
    assert json.loads(printed("rabbitmq", folder, "--vhost", "yard")) == first
    assert {one["name"] for one in first["users"]} == {f"crawlyard_{name}" for name in DAEMONS}
    assert len({one["password"] for one in first["users"]}) == len(DAEMONS)
    assert {one["tags"] for one in first["users"]} == {""}
    assert {one["vhost"] for one in first["permissions"]} == {"yard"}
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


@pytest.mark.parametrize("text", ["", "short", "it's-a-quote-in-sql", "two words in an acl"])
def test_a_password_that_a_server_would_read_as_another_is_refused(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "center").write_text(f"{text}\n")
    for server in ("rabbitmq", "redis", "postgresql"):
        with pytest.raises(CommandError, match="center holds no password") as told:
            printed(server, tmp_path)
        assert told.value.returncode == 2


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    with lend_rabbit_node(tmp_path_factory.mktemp("accounts-rabbit"), management=True) as node:
        yield node


@pytest.fixture(scope="module")
def accounts(
    node: RabbitNode, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Accounts]:
    with lend_accounts(tmp_path_factory.mktemp("passwords"), node, redis_url) as accounts:
        yield accounts


@pytest.fixture
def yard(accounts: Accounts, node: RabbitNode, tmp_path: Path) -> Iterator[Installation]:
    # Stores that make tables by themselves are their owner's.
    stores = dict.fromkeys(
        ("DATABASE_URL", "SEEDS_URL", "RECORDS_URL", "REQUESTS_URL", "LOGS_URL"), accounts.database
    )
    stores |= {"BROKER_URL": accounts.broker, "REDIS_URL": accounts.redis}
    with Installation(tmp_path, stores) as yard:
        for process, daemon in PROCESSES.items():
            yard.daemons.own[process] = accounts.environment(daemon)
        yard.daemons.own["runner"]["BROKER_MANAGEMENT_URL"] = node.management_url
        yield yard


@pytest.mark.services
@pytest.mark.timeout(600)
def test_every_daemon_works_with_its_account(yard: Installation) -> None:
    names = [name for name in PROCESSES if name not in ("web", "agent-1")]
    yard.start_some(*names, agents=1)
    rest = yard.rest
    project = rest.make("/projects", name="Sites", slug="sites", allowed_networks=["127.0.0.0/8"])
    rest.until(yard.agents_serve, "agents")
    with CountingSite(tree(PAGES)) as site:
        job = rest.make(
            "/jobs",
            project=project["id"],
            name="a site",
            spider="yardspider.spiders:SiteSpider",
            arguments={"url": site.url},
        )
        run = rest.make(f"/jobs/{job['id']}/start")["id"]
        row, books = rest.ended(run)
    assert row["state"] == "exited", (row, yard.explain())
    assert (books["total"], books["left"], books["balanced"]) == (PAGES + 1, 0, True), books
    assert rest.until(lambda: rest.rows(f"/runs/{run}/logs"), "log lines")
    for name in yard.daemons.processes:
        log = yard.daemons.log(name)
        for words in ("ACCESS_REFUSED", "refused for user", "permission denied", "NOPERM"):
            assert words not in log, (name, log[-3000:])
    assert yard.tracebacks() == {}


@pytest.mark.services
@pytest.mark.parametrize("daemon", sorted(DAEMONS))
def test_a_daemon_reads_no_queue_of_another_one(accounts: Accounts, daemon: str) -> None:
    queues = [spec.name for spec in topology.SHARED] + [topology.center_reports("c").name, "dead"]
    with contextlib.closing(connect(accounts.broker, name="owner")) as broker:
        # Each is there: what is refused is not refused for being unknown.
        broker.declare(*topology.SHARED, topology.center_reports("c"))
    allowed = set()
    connection = pika.BlockingConnection(pika.URLParameters(accounts.url(accounts.broker, daemon)))
    for name in queues:
        with contextlib.suppress(pika.exceptions.ChannelClosedByBroker):
            connection.channel().basic_get(name)
            allowed.add(name)
    connection.close()
    wanted = {
        "center": {
            "center.register",
            "center.control",
            "center.requests",
            "center.addresses",
            "center.reports.c",
        },
        "runner": {"runners", "lifecycle.answers"},
        "statistics": {"statistics", "dead"},
        "logs": {"logs"},
        "datasets": {"items"},
        "seeds": {"seeds"},
    }
    assert allowed == wanted.get(daemon, set())


@pytest.mark.services
@pytest.mark.parametrize("daemon", [name for name in DAEMONS if DAEMONS[name].redis])
def test_a_daemon_sees_no_keys_but_its_own(accounts: Accounts, daemon: str) -> None:
    wanted = {
        "web": {"crawlyard:1:x", "crawlyard:host:x", "crawlyard:requests:x"},
        "center": {"crawlyard:host:x"},
        "router": {"crawlyard:requests:x", "{crawlyard:tokens:x}:y"},
    }
    with contextlib.closing(redis.Redis.from_url(accounts.url(accounts.redis, daemon))) as client:
        allowed = set()
        for key in (
            *("crawlyard:1:x", "crawlyard:host:x", "crawlyard:requests:x"),
            *("{crawlyard:tokens:x}:y", "somebody:else"),
        ):
            with contextlib.suppress(redis.exceptions.NoPermissionError):
                client.get(key)
                allowed.add(key)
        for words in (("FLUSHALL",), ("CONFIG", "GET", "*"), ("ACL", "LIST")):
            with pytest.raises(redis.exceptions.NoPermissionError):
                command(client, *words)
    assert allowed == wanted.get(daemon, {"crawlyard:requests:x"})


@pytest.mark.services
@pytest.mark.parametrize("daemon", [name for name in DAEMONS if DAEMONS[name].database])
def test_no_daemon_changes_tables_and_few_change_people(accounts: Accounts, daemon: str) -> None:
    with psycopg.connect(accounts.url(accounts.database, daemon), autocommit=True) as connection:
        for statement in (
            "CREATE TABLE mine (id int)",
            "ALTER TABLE jobs_run ADD COLUMN mine int",
            "TRUNCATE jobs_run",
            "DELETE FROM django_migrations",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
        connection.execute("UPDATE jobs_run SET reason = reason")
        changes = "UPDATE access_apitoken SET name = name"
        if DAEMONS[daemon].people:
            connection.execute(changes)
        else:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(changes)


@pytest.mark.services
def test_said_again_it_covers_what_an_upgrade_brought(accounts: Accounts) -> None:
    with psycopg.connect(accounts.database, autocommit=True) as owner:
        role = account_name(accounts.prefix, "center")
        owner.execute(
            f'GRANT DELETE ON access_savedfilter TO "{role}"; REVOKE ALL ON jobs_run FROM "{role}"'
        )
    accounts.make_roles()
    with psycopg.connect(accounts.url(accounts.database, "center"), autocommit=True) as center:
        center.execute("UPDATE jobs_run SET reason = reason")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            center.execute("DELETE FROM access_savedfilter")


def test_an_agent_has_the_broker_alone() -> None:
    assert not DAEMONS["agent"].database
    assert DAEMONS["agent"].redis == ()
