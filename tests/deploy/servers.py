"""The accounts of all daemons at real servers."""

from __future__ import annotations

import contextlib
import io
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis
import requests
from django.core.management import call_command
from psycopg import sql

from crawlyard.accounts import DAEMONS, account_name
from tests.e2e.rabbit_node import RabbitNode
from tests.plugins.stores import lend_postgres_database


def printed(server: str, folder: Path, *options: str) -> str:
    """What ``manage.py accounts`` says."""
    out = io.StringIO()
    call_command("accounts", server, "--passwords", str(folder), *options, stdout=out)
    return out.getvalue()


def command(client: redis.Redis, *words: str) -> None:
    client.execute_command(*words)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def lend_accounts(folder: Path, node: RabbitNode, redis_url: str) -> Iterator[Accounts]:
    """With their passwords in ``folder`` and a database on loan; none of them is left."""
    with lend_postgres_database() as database:
        accounts = Accounts(folder, node, database, redis_url)
        try:
            accounts.make()
            yield accounts
        finally:
            accounts.remove()


class Accounts:
    """Those of all daemons at real servers."""

    def __init__(self, folder: Path, node: RabbitNode, database: str, redis_url: str) -> None:
        # Roles and users of Redis belong to a whole server, which others use as well.
        self.prefix = f"test{secrets.token_hex(4)}"
        self.broker, self.database, self.redis = node.url, database, redis_url
        self._passwords = folder
        self._node = node

    def make(self) -> None:
        folder, options = self._passwords, ("--prefix", self.prefix)
        definitions = json.loads(printed("rabbitmq", folder, *options, "--vhost", "/"))
        api = f"{self._node.management_url}/api/definitions"
        answer = requests.post(api, json=definitions, timeout=20)
        assert answer.ok, answer.text
        self.make_roles()
        with contextlib.closing(redis.Redis.from_url(self.redis)) as client:
            for line in printed("redis", folder, *options).splitlines():
                command(client, "ACL", "SETUSER", *line.split()[1:])

    def make_roles(self) -> None:
        statements = printed("postgresql", self._passwords, "--prefix", self.prefix)
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(statements.encode())

    def write_secrets(self, shared: Path, target: Path) -> None:
        """A folder for each daemon, for the user of the containers as accounts.sh leaves them."""
        options = ("--prefix", self.prefix, "--from", str(shared), "--into", str(target))
        printed("files", self._passwords, *options)
        for path in [target, *target.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o444)

    def url(self, url: str, daemon: str) -> str:
        parts = urlsplit(url)
        password = (self._passwords / daemon).read_text()
        place = parts.netloc.rpartition("@")[2]
        name = account_name(self.prefix, daemon)
        return urlunsplit(parts._replace(netloc=f"{name}:{password}@{place}"))

    def environment(self, daemon: str) -> dict[str, str]:
        """Of one process: the agent has the broker alone, and few have Redis."""
        found = {"BROKER_URL": self.url(self.broker, daemon), "REDIS_URL": ""}
        if DAEMONS[daemon].database:
            found["DATABASE_URL"] = self.url(self.database, daemon)
        if DAEMONS[daemon].redis:
            found["REDIS_URL"] = self.url(self.redis, daemon)
        return found

    def remove(self) -> None:
        with psycopg.connect(self.database, autocommit=True) as connection:
            found = connection.execute(
                "SELECT rolname FROM pg_roles WHERE starts_with(rolname, %s)", [self.prefix]
            )
            for (role,) in found.fetchall():
                for statement in ("DROP OWNED BY {}", "DROP ROLE {}"):
                    connection.execute(sql.SQL(statement).format(sql.Identifier(role)))
        with contextlib.closing(redis.Redis.from_url(self.redis)) as client:
            for daemon in DAEMONS:
                command(client, "ACL", "DELUSER", account_name(self.prefix, daemon))
