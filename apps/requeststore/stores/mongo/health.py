"""Health of a MongoDB; what this login may not query stays unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from pymongo import MongoClient
from pymongo.errors import OperationFailure
from pymongo.server_description import ServerDescription

from apps.requeststore.stores.base import NodeHealth, SlowOperation
from apps.requeststore.stores.mongo.client import Document

T = TypeVar("T")

_ANSWER_MILLISECONDS: Final = 3000
_SLOW_SECONDS: Final = 1
_MOST_SLOW: Final = 10
_KINDS: Final = ["command", "query", "getmore", "insert", "update", "remove"]
_NOT_OURS: Final = ("admin.", "config.", "local.")
_SHOWN: Final = ("op", "ns", "secs_running", "microsecs_running", "planSummary")
_ROLES: Final = {"RSPrimary": ": primary", "RSSecondary": ": secondary", "RSArbiter": ": arbiter"}
_MEGABYTE: Final = 1024 * 1024


def health_of(client: MongoClient[Document]) -> NodeHealth:
    """Raises ``PyMongoError`` when the server does not answer."""
    admin = client.admin
    # Needs no privilege; without an answer nothing else is queried.
    version = str(admin.command("buildInfo").get("version", ""))

    def ask(name: str, **options: Any) -> Document:
        return admin.command(name, maxTimeMS=_ANSWER_MILLISECONDS, **options)

    nothing: Document = {}
    status = _allowed(lambda: ask("serverStatus"), nothing)
    databases = _allowed(lambda: ask("listDatabases"), nothing)
    servers = client.topology_description.server_descriptions().values()
    members = _allowed(lambda: _members(ask("replSetGetStatus")), None)
    return NodeHealth(
        kind="mongodb",
        version=version,
        storage_bytes=_storage(client, databases),
        memory_bytes=_bytes(_number(status.get("mem"), "resident"), _MEGABYTE),
        connections=_number(status.get("connections"), "current"),
        members=members_found(servers) if members is None else members,
        slow=_allowed(lambda: _slow(client), []),
    )


def _allowed(ask: Callable[[], T], unknown: T) -> T:
    """Return the answer, or ``unknown`` where a right, command or role is missing or it is
    slow.
    """
    try:
        return ask()
    except OperationFailure:
        return unknown


def _storage(client: MongoClient[Document], listed: Document) -> int | None:
    """Return the bytes on disk of all databases."""
    if listed.get("totalSize"):
        return int(listed["totalSize"])
    nothing: Document = {}
    sizes = [
        _number(
            _allowed(partial(client[database["name"]].command, "dbStats"), nothing), "totalSize"
        )
        for database in listed.get("databases", [])
    ]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _members(status: Document) -> list[str]:
    return [
        f"{member.get('name', '?')}: {str(member.get('stateStr', '?')).lower()}"
        for member in status.get("members", [])
    ]


def members_found(servers: Iterable[ServerDescription]) -> list[str]:
    """Return the servers that the driver has found, with their roles where they have any.

    A mongos and a standalone mongod have none: only the members of a replica set differ.
    """
    return sorted(
        f"{server.address[0]}:{server.address[1]}{_ROLES.get(server.server_type_name, '')}"
        for server in servers
    )


def _slow(client: MongoClient[Document]) -> list[SlowOperation]:
    """Return operations of a second or longer, without their data."""
    pipeline: list[Document] = [
        {"$currentOp": {"allUsers": True, "idleConnections": False}},
        {
            "$match": {
                "active": True,
                "op": {"$in": _KINDS},
                "secs_running": {"$gte": _SLOW_SECONDS},
            }
        },
        {"$sort": {"secs_running": -1}},
        {"$project": dict.fromkeys(_SHOWN, 1)},
    ]
    operations: list[SlowOperation] = []
    for operation in client.admin.aggregate(pipeline, maxTimeMS=_ANSWER_MILLISECONDS):
        where = str(operation.get("ns", ""))
        if where.startswith(_NOT_OURS) or len(operations) == _MOST_SLOW:
            continue
        # Only the kind of plan: index keys are too long.
        plan = str(operation.get("planSummary", "")).partition(" ")[0]
        seconds = float(operation.get("microsecs_running", 0)) / 1e6 or float(
            operation["secs_running"]
        )
        text = " ".join(filter(None, (str(operation["op"]), where, plan)))
        operations.append(SlowOperation(round(seconds, 1), text[:200]))
    return operations


def _number(document: object, name: str) -> int | None:
    value = document.get(name) if isinstance(document, dict) else None
    return int(value) if isinstance(value, int | float) else None


def _bytes(value: int | None, unit: int) -> int | None:
    return None if value is None else value * unit
