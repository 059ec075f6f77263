"""Accounts of the daemons at RabbitMQ, Redis and PostgreSQL, with the rights of each.

``DAEMONS`` is the only table of rights; ``rabbitmq``, ``redis_acl`` and ``postgresql`` write them
in the language of each server, and ``secrets_of`` returns a daemon's addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from django.apps import apps

from yardkit import topology
from yardkit.broker.base import DEAD_QUEUE, QueueSpec
from yardkit.broker.gateway import GATEWAY

_EXCHANGES: Final = (topology.EVENTS, topology.HEARTBEATS, topology.LIFECYCLE, GATEWAY)
# RabbitMQ's name for the default exchange in permissions.
_DEFAULT_EXCHANGE: Final = "amq.default"
# Prefixes of queues of one process, one run or one request each.
_MANY: Final = (
    topology.agent_commands("").name,
    topology.agent_addresses("").name,
    topology.center_heartbeats("").name,
    topology.center_reports("").name,
    topology.runner_wakeups("").name,
    topology.web_events("").name,
    "run.",
    "reply.",
    "celery.",
    "requests.",
    "amq.",
)


def _exactly(*specs: QueueSpec | str) -> tuple[str, ...]:
    return tuple(re.escape(spec if isinstance(spec, str) else spec.name) for spec in specs)


def _below(*prefixes: str) -> tuple[str, ...]:
    return tuple(f"{re.escape(prefix)}.*" for prefix in prefixes)


_SHARED: Final = _exactly(*topology.SHARED, DEAD_QUEUE)
# Queues named by users in sources, rules and settings of bizzes: every name that is not reserved.
_PEOPLES: Final = (
    f"(?!({'|'.join(_SHARED + _exactly(*_EXCHANGES))})$|{'|'.join(_exactly(*_MANY))}).+"
)
# Celery declares and binds the queue it sends to, which needs the right to read.
_TASKS: Final = _exactly(topology.TASKS, topology.BUILDS)
_REPLIES: Final = _below("reply.")
_AGENTS: Final = _below(topology.agent_commands("").name, topology.agent_addresses("").name)
_CENTERS: Final = _below(topology.center_heartbeats("").name, topology.center_reports("").name)
_RUNNERS: Final = _below(topology.runner_wakeups("").name)
_WEB_EVENTS: Final = _below(topology.web_events("").name)
# Waiting requests of each biz: in the broker, or in Redis.
_REQUESTS: Final = _below("requests.")
_REQUEST_KEYS: Final = (":requests:*",)
# Secret files of the object store.
_OBJECTS: Final = frozenset({"objects_access_key", "objects_secret_key"})


@dataclass(frozen=True, slots=True)
class Rights:
    """Rights of one daemon.

    Attributes:
        reads: queues and exchanges that it consumes, as patterns.
        makes: queues that it declares besides those that all declare, as patterns.
        redis: keys, as globs behind the installation's prefix (``:host:*``); ``{`` before the
            prefix for keys with a cluster's hash tag.
        database: whether it uses the database.
        people: whether it may change users, tokens and sessions.
        objects: whether it uses the object store.
        platform: whether it declares the shared queues; false for agents.
    """

    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    redis: tuple[str, ...] = ()
    database: bool = True
    people: bool = False
    objects: bool = False
    platform: bool = True


_SENDS_TASKS: Final = Rights(reads=_TASKS, makes=_TASKS)

DAEMONS: Final[Mapping[str, Rights]] = {
    "web": Rights(
        reads=(*_TASKS, *_exactly(topology.EVENTS), *_WEB_EVENTS, *_REPLIES, *_REQUESTS, _PEOPLES),
        makes=(*_TASKS, *_WEB_EVENTS, *_REPLIES, *_REQUESTS, _PEOPLES),
        redis=(":*",),
        people=True,
        objects=True,
    ),
    "center": Rights(
        reads=(
            *_exactly(topology.CENTER_REGISTER, topology.CENTER_CONTROL, topology.CENTER_REQUESTS),
            *_exactly(topology.CENTER_ADDRESSES, topology.HEARTBEATS),
            *_CENTERS,
            *_TASKS,
        ),
        makes=(*_CENTERS, *_TASKS),
        redis=(":host:*", ":hosts:lock"),
        # It signs addresses of objects, and reads and writes none.
        objects=True,
    ),
    "agent": Rights(
        reads=_AGENTS,
        makes=(*_AGENTS, *_exactly(topology.CENTER_REGISTER, topology.HEARTBEATS, DEAD_QUEUE)),
        database=False,
        platform=False,
    ),
    "runner": Rights(
        reads=(*_exactly(topology.RUNNERS, topology.LIFECYCLE_ANSWERS), *_RUNNERS, *_TASKS),
        makes=(*_RUNNERS, *_TASKS),
    ),
    "router": Rights(
        reads=(*_REPLIES, *_TASKS, _PEOPLES),
        makes=(*_REPLIES, *_TASKS, *_REQUESTS, _PEOPLES),
        redis=("{:tokens:*", *_REQUEST_KEYS),
    ),
    "seeds": Rights(reads=(*_exactly(topology.SEEDS), *_TASKS), makes=_TASKS),
    "collector": Rights(reads=_TASKS, makes=(*_TASKS, _PEOPLES)),
    "fetcher": Rights(
        reads=(*_REPLIES, *_TASKS, *_REQUESTS),
        makes=(*_REPLIES, *_TASKS, *_REQUESTS, _PEOPLES),
        redis=_REQUEST_KEYS,
        # It keeps pages.
        objects=True,
    ),
    "statistics": Rights(reads=(*_exactly(topology.STATISTICS, DEAD_QUEUE), *_TASKS), makes=_TASKS),
    "logs": Rights(reads=(*_exactly(topology.LOGS), *_TASKS), makes=_TASKS),
    # Deliveries declare the queues that they fill.
    "datasets": Rights(
        reads=(*_exactly(topology.ITEMS), *_TASKS), makes=(*_TASKS, _PEOPLES), objects=True
    ),
    "monitor": Rights(reads=_TASKS, makes=_TASKS, redis=_REQUEST_KEYS),
    "beat": _SENDS_TASKS,
    "worker": Rights(
        reads=(*_TASKS, *_REPLIES, *_REQUESTS),
        # Records that it extracts again go to queues of request groups.
        makes=(*_TASKS, *_REPLIES, *_REQUESTS, _PEOPLES),
        redis=_REQUEST_KEYS,
        people=True,
        objects=True,
    ),
    "builds": _SENDS_TASKS,
}


def account_name(installation: str, daemon: str) -> str:
    """Return an account's name, the same at all servers: ``crawlyard_center``."""
    return f"{installation}_{daemon}"


def permissions(rights: Rights) -> dict[str, str]:
    """Return RabbitMQ's permissions ``configure``, ``write`` and ``read``."""
    exchanges = _exactly(*_EXCHANGES)
    if not rights.platform:
        return {
            "configure": _any(rights.makes),
            "write": _any((*_exactly(_DEFAULT_EXCHANGE, topology.HEARTBEATS),)),
            "read": _any(rights.reads),
        }
    # Binding a queue writes to it and reads the exchange.
    return {
        "configure": _any((*_SHARED, *exchanges, *rights.makes)),
        "write": _any((*_exactly(_DEFAULT_EXCHANGE), *exchanges, *_SHARED, *rights.makes)),
        "read": _any((*_exactly(GATEWAY), *rights.reads)),
    }


def rabbitmq(*, installation: str, vhost: str, passwords: Mapping[str, str]) -> dict[str, Any]:
    """Return definitions to import: a user without tags for each daemon with a password."""
    return {
        "users": [
            {"name": account_name(installation, name), "password": password, "tags": ""}
            for name, password in passwords.items()
        ],
        "permissions": [
            {"user": account_name(installation, name), "vhost": vhost} | permissions(DAEMONS[name])
            for name in passwords
        ],
    }


def redis_acl(*, installation: str, prefix: str, passwords: Mapping[str, str]) -> Iterator[str]:
    """Yield lines of an ACL file: a user for each daemon that uses Redis."""
    for name, password in passwords.items():
        if keys := DAEMONS[name].redis:
            globs = " ".join(f"~{_glob(prefix, key)}" for key in keys)
            yield (
                f"user {account_name(installation, name)} reset on >{password} {globs}"
                " +@all -@admin -@dangerous +info"
            )


def _glob(prefix: str, key: str) -> str:
    return f"{{{prefix}{key[1:]}" if key.startswith("{") else f"{prefix}{key}"


def postgresql(*, installation: str, passwords: Mapping[str, str]) -> Iterator[str]:
    """Yield statements for the owner of the tables, who alone migrates: a role for each daemon.

    Every role may change rows of most tables, since daemons share runs, hosts and history; tables
    of users are for daemons that authenticate. No role may change a table's definition.
    """
    people = ", ".join(_quoted(table) for table in sorted(_tables_of_people()))
    # Order matters: no account has excess rights even for a moment.
    yield "BEGIN;"
    for name, password in passwords.items():
        rights = DAEMONS[name]
        if not rights.database:
            continue
        role = _quoted(account_name(installation, name))
        rows = "SELECT, INSERT, UPDATE, DELETE"
        # To be repeated after an upgrade, which may add daemons and tables, and after a restore.
        yield f"DO $$ BEGIN CREATE ROLE {role}; EXCEPTION WHEN duplicate_object THEN NULL; END $$;"
        yield f"ALTER ROLE {role} LOGIN PASSWORD '{password}';"
        yield f"GRANT USAGE ON SCHEMA public TO {role};"
        yield f"GRANT {rows} ON ALL TABLES IN SCHEMA public TO {role};"
        yield f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role};"
        yield f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT {rows} ON TABLES TO {role};"
        yield f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE ON SEQUENCES TO {role};"
        yield f"REVOKE INSERT, UPDATE, DELETE ON django_migrations FROM {role};"
        if not rights.people:
            yield f"REVOKE INSERT, UPDATE, DELETE ON {people} FROM {role};"
    yield "COMMIT;"


def secrets_of(
    daemon: str, *, installation: str, password: str, shared: Mapping[str, str]
) -> dict[str, str]:
    """Return the secret files of one daemon: its own account in addresses, other content unchanged.

    Args:
        shared: content of the files shared by all processes, such as ``broker_url``.

    Raises:
        ValueError: one of the three addresses is missing, or another file names the database with
            the owner's account.
    """
    rights = DAEMONS[daemon]
    # Whether the daemon has an account there.
    accounts = {
        "broker_url": True,
        "database_url": rights.database,
        "redis_url": bool(rights.redis),
    }
    if missing := accounts.keys() - shared.keys():
        raise ValueError(f"there is no {min(missing)}")
    name = account_name(installation, daemon)
    secrets = {
        account: _as(shared[account], name, password) for account, has in accounts.items() if has
    }
    if rights.platform:
        for account in shared.keys() - accounts.keys() - (set() if rights.objects else _OBJECTS):
            if shared[account] == shared["database_url"]:
                raise ValueError(
                    f"{account} is the address of database_url, with the account that owns all"
                    " tables; give it a database of its own"
                )
            secrets[account] = shared[account]
    return secrets


def _as(url: str, name: str, password: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{name}:{password}@{parts.netloc.rpartition('@')[2]}").geturl()


def _tables_of_people() -> set[str]:
    """Return tables of users, roles, tokens and sessions; all daemons write the audit trail."""
    labels = ("access", "auth", "sessions")
    models = [model for label in labels for model in apps.get_app_config(label).get_models(True)]
    return {model._meta.db_table for model in models if model._meta.model_name != "auditrecord"}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _any(patterns: Iterable[str]) -> str:
    return f"^({'|'.join(dict.fromkeys(patterns))})$"
